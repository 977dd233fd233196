"""Batch features through a real Redis: what was loaded is read beside the windows, newest as-of first, as training reads it."""

import time
import uuid
from pathlib import Path

import numpy as np
import pytest
from redis.asyncio import Redis

from assay.deploy.redis_cluster import local_cluster
from assay.schemas.errors import ServiceError
from assay.tables.batch_history import BatchHistory, BatchValues
from assay.tables.batch_load import Loaded, load
from assay.tables.batch_rows import BATCH_LIST, COLUMNS, BatchRows
from assay.tables.entities import Entities
from assay.tables.entity_answer import REDIS_FEATURES, EntityAnswer
from assay.tables.events import EVENT, Events
from assay.tables.features import DAY, ENTITY_FEATURES
from assay.tables.keyspace import Keyspace

pytestmark = pytest.mark.services

HOUR_MS = 3_600_000
START_MS = int(time.time() * 1000) // HOUR_MS * HOUR_MS - 20 * DAY * 1000  # rows expire by the wall clock
RATE, DAYS = (column for column, feature in enumerate(BATCH_LIST) if feature.entity == "merchant")
UNHURRIED_S = 30.0


def at(hours: float) -> int:
    return START_MS + int(hours * HOUR_MS)


def values(*lines: tuple[int, int, float, float]) -> BatchValues:
    """Of (feature, merchant, value, hours after the start)."""
    features, merchants, numbers, hours = zip(*lines, strict=True)
    as_of_ms = np.array([at(hour) for hour in hours], np.int64)
    return BatchValues(np.array(features), np.array(merchants, np.uint64), np.array(numbers, np.float32), as_of_ms)


def payments(*lines: tuple[int, float]) -> Events:
    """Of (merchant, hours after the start)."""
    events = np.zeros(len(lines), EVENT)
    events["offset"] = np.arange(len(lines))
    events["merchant"], events["user"] = [merchant for merchant, _ in lines], 1
    events["time_ms"] = [at(hours) for _, hours in lines]
    return events


class Stand:
    """A prefix of its own: loads into it, and asks it."""

    def __init__(self, url: str, shards: int = 1) -> None:
        self.url, self.keyspace = url, Keyspace(uuid.uuid4().hex[:12], "", shards)
        self.entities = Entities(url, prefix=self.keyspace.prefix, shards=shards, deadline=UNHURRIED_S, families=(BatchRows(),))
        self._asked = 0

    async def load(self, *lines: tuple[int, int, float, float]) -> Loaded:
        return await load(values(*lines), self.url, self.keyspace)

    async def observe(self, events: Events) -> EntityAnswer:
        events["offset"] += self._asked
        self._asked += len(events)
        answer = await self.entities.observe(events, np.zeros(len(events), np.int64))
        assert answer.available, answer.reason
        return answer

    async def see(self, feature: int, *lines: tuple[int, float]) -> list[float]:
        return (await self.observe(payments(*lines))).values[:, COLUMNS][:, feature].tolist()


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
async def stand(redis_url: str, request: pytest.FixtureRequest):
    made = Stand(redis_url, request.param)
    yield made
    await made.entities.close()


async def test_what_was_loaded_is_read_and_what_was_not_is_never(stand: Stand) -> None:
    assert await stand.load((RATE, 5, 0.25, 0), (RATE, 6, 0.5, 0), (DAYS, 6, 30, 0)) == Loaded(2, 3, 0)
    never = BATCH_LIST[RATE].never
    assert await stand.see(RATE, (5, 1), (6, 1), (7, 1), (5, 2)) == [0.25, 0.5, never, 0.25]
    assert await stand.see(DAYS, (5, 1), (6, 1)) == [never, 30.0]


async def test_an_older_as_of_never_replaces_a_newer_one(stand: Stand) -> None:
    await stand.load((RATE, 5, 0.25, 10))
    assert await stand.load((RATE, 5, 0.75, 9), (DAYS, 5, 3, 9)) == Loaded(1, 2, 1)
    assert await stand.see(RATE, (5, 11)) == [0.25]
    assert await stand.see(DAYS, (5, 11)) == [3.0]


async def test_within_a_file_the_newest_as_of_counts_wherever_it_stands(stand: Stand) -> None:
    assert await stand.load((RATE, 5, 0.5, 10), (RATE, 5, 0.25, 9)) == Loaded(1, 2, 1)
    assert await stand.see(RATE, (5, 11)) == [0.5]


async def test_a_value_of_the_same_as_of_is_a_correction(stand: Stand) -> None:
    await stand.load((RATE, 5, 0.25, 10))
    await stand.load((RATE, 5, 0.5, 10))
    assert await stand.see(RATE, (5, 11)) == [0.5]


async def test_loading_a_file_again_changes_nothing(stand: Stand) -> None:
    for _ in range(2):
        await stand.load((RATE, 5, 0.25, 0), (DAYS, 5, 30, 1))
    assert await stand.see(RATE, (5, 2)) == [0.25]


async def test_i4_training_sees_what_serving_saw_while_values_came_and_went(stand: Stand) -> None:
    """Loads and payments in the order of time, over days; then all of it offline, at once."""
    generator = np.random.default_rng(4)
    hours = np.sort(generator.uniform(0, 15 * 24, 400))
    loaded: list[tuple[int, int, float, float]] = []
    live, paid = [], []
    for number, hour in enumerate(hours):
        merchant = int(generator.integers(1, 6))
        if number % 4 == 0:
            loaded.append((int(generator.choice([RATE, DAYS])), merchant, float(generator.integers(1, 99)), hour))
            await stand.load(loaded[-1])
        else:
            paid.append((merchant, hour))
            live.append(await stand.observe(payments(paid[-1])))
    offline = np.full((len(paid), REDIS_FEATURES), np.nan, np.float32)
    BatchHistory(values(*loaded)).fill(payments(*paid), offline)
    served = np.concatenate([answer.values[:, COLUMNS] for answer in live])
    assert served.tobytes() == offline[:, COLUMNS].tobytes()
    assert np.isnan(served).any()
    assert (served == BATCH_LIST[RATE].never).any()


async def test_the_age_of_what_was_read_is_told(stand: Stand) -> None:
    await stand.load((RATE, 5, 0.25, 0), (DAYS, 5, 30, 4), (RATE, 6, 0.25, 5))
    answer = await stand.observe(payments((5, 6), (6, 6), (7, 6)))
    np.testing.assert_array_equal(answer.ages_ms["batch"], [6 * HOUR_MS, HOUR_MS, np.nan])
    assert stand.entities.newest_ms == {BATCH_LIST[RATE].name: at(5), BATCH_LIST[DAYS].name: at(4)}


async def test_what_is_in_the_place_of_a_row_and_is_none_is_unavailable_and_counted(stand: Stand) -> None:
    await stand.load((RATE, 5, 0.25, 0))
    client = Redis.from_url(stand.url)
    [key] = [key async for key in client.scan_iter(f"{{{stand.keyspace.prefix}:*}}:bm*")]
    await client.set(key, b"nonsense")
    assert np.isnan(await stand.see(RATE, (5, 1))).all()
    assert stand.entities.unreadable_rows == 1
    await stand.load((RATE, 5, 0.5, 0))
    await client.aclose()
    assert await stand.see(RATE, (5, 1)) == [0.5]


async def test_a_row_expires_when_its_newest_value_is_forgotten(stand: Stand) -> None:
    await stand.load((RATE, 5, 0.25, 0), (DAYS, 5, 1, 48))
    client = Redis.from_url(stand.url)
    [key] = [key async for key in client.scan_iter(f"{{{stand.keyspace.prefix}:*}}:bm*")]
    expires_ms = await client.pexpiretime(key)
    await client.aclose()
    assert expires_ms == at(48) + 90 * DAY * 1000


async def test_a_value_that_is_forgotten_already_leaves_no_row(stand: Stand) -> None:
    await stand.load((RATE, 5, 0.25, -24 * 90))
    client = Redis.from_url(stand.url)
    assert [key async for key in client.scan_iter(f"{{{stand.keyspace.prefix}:*}}:bm*")] == []
    await client.aclose()


async def test_where_rows_may_not_be_read_the_windows_go_on_without(redis_url: str) -> None:
    client = Redis.from_url(redis_url)
    name = uuid.uuid4().hex[:8]
    windows = ["*}:[0-9]:*", "*}:key:*"]
    await client.acl_setuser(name, enabled=True, passwords=["+secret"], keys=windows, commands=["+@all"])
    made = Stand(redis_url.replace("redis://", f"redis://{name}:secret@"))
    first = await made.entities.observe(payments((5, 0)), np.zeros(1, np.int64))
    assert first.reason == "refused"
    answer = await made.observe(payments((5, 1)))
    await made.entities.close()
    await client.acl_deluser(name)
    await client.aclose()
    assert np.isnan(answer.values[:, COLUMNS]).all()
    assert not np.isnan(answer.values[:, :ENTITY_FEATURES]).any()


async def test_on_a_cluster_each_row_is_on_the_node_of_its_shard(tmp_path: Path) -> None:
    with local_cluster(tmp_path) as cluster:
        made = Stand(cluster.url, shards=6)
        merchants = range(1, 40)
        loaded = await made.load(*((RATE, merchant, merchant / 100, 0) for merchant in merchants))
        seen = await made.see(RATE, *((merchant, 1) for merchant in merchants))
        await made.entities.close()
    assert loaded == Loaded(39, 39, 0)
    assert seen == [np.float32(merchant / 100) for merchant in merchants]


async def test_a_load_without_redis_says_what_to_do() -> None:
    with pytest.raises(ServiceError, match="0 of 1 are written") as caught:
        await load(values((RATE, 5, 0.25, 0)), "redis://127.0.0.1:1/0", Keyspace("x", "", 1))
    assert "again" in caught.value.mend
