"""Under which key the digests in Redis are: what is under another one is not used, and said."""

import time
import uuid
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio
from pydantic import SecretStr
from redis.asyncio import Redis

from assay.deploy.check import State
from assay.deploy.service_checks import redis_key, redis_lost
from assay.schemas.errors import ServiceError
from assay.streams.settings import Settings
from assay.tables.batch_history import BatchValues
from assay.tables.batch_load import load
from assay.tables.changes import CHANGE
from assay.tables.digests import OFFLINE
from assay.tables.entities import Entities
from assay.tables.entity_answer import EntityAnswer
from assay.tables.events import EVENT
from assay.tables.key_marks import KeyedLink, KeyMarks
from assay.tables.keyspace import Keyspace, Part
from assay.tables.learned_rows import LearnedRows
from assay.tables.redis_node import OtherKeyError
from assay.tables.risk_call import risk_library
from assay.tables.transaction_index import DECIDED, index_library

pytestmark = pytest.mark.services
UNHURRIED_S = 10.0
NOW_MS = time.time_ns() // 1_000_000
NOTHING = BatchValues(np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.float32), np.zeros(0, np.int64))


class Place:
    """A prefix of one test in a Redis."""

    def __init__(self, url: str) -> None:
        self.url, self.prefix = url, uuid.uuid4().hex[:12]

    def keyspace(self, key: str, shards: int = 1) -> Keyspace:
        return Keyspace(self.prefix, "topic-id", shards, key)

    async def connect(self, key: str, *reads: Part, shards: int = 1) -> None:
        """Connect as who writes outcomes, and go. Raises OtherKeyError."""
        link = KeyedLink(self.url, KeyMarks(self.keyspace(key, shards), Part.OUTCOMES, reads))
        try:
            await link.connect()
        finally:
            assert link.connected or not link._nodes
            await link.disconnect()

    async def mark(self, redis: Redis, part: Part, key: str, shard: int = 0) -> None:
        await redis.set(self.keyspace(key, shard + 1).mark(shard, part), key)

    def entities(self, key: str) -> Entities:
        return Entities(
            self.url, prefix=self.prefix, source="topic-id", fingerprint=key, deadline=UNHURRIED_S, rest=0.0
        )  # fmt: skip

    def settings(self, key: str) -> Settings:
        return Settings.load(redis_url=SecretStr(self.url), topic_prefix=self.prefix, hash_key=SecretStr(key))


@pytest.fixture
def place(redis_url: str) -> Place:
    return Place(redis_url)


@pytest_asyncio.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


def event(offset: int) -> np.ndarray:
    events = np.zeros(1, EVENT)
    events["instrument"], events["offset"], events["time_ms"] = 7, offset, 1_767_225_600_000
    return events


async def observe(entities: Entities, offset: int) -> EntityAnswer:
    return await entities.observe(event(offset), [0])


async def test_who_connects_marks_nothing_and_so_shuts_nobody_out(place: Place) -> None:
    await place.connect("one")
    await place.connect("another")


@pytest.mark.parametrize("shard", [0, 2])
async def test_another_key_than_that_of_any_shard_is_refused_with_the_way_out(place: Place, redis: Redis, shard: int) -> None:
    await place.mark(redis, Part.OUTCOMES, "one", shard)
    await place.connect("one", shards=3)
    with pytest.raises(OtherKeyError, match=r"outcomes were written under another ASSAY_HASH_KEY.*`assay rebuild outcomes`"):
        await place.connect("another", shards=3)


async def test_so_is_another_key_than_that_of_a_part_that_is_only_read(place: Place, redis: Redis) -> None:
    await place.mark(redis, Part.BATCH, "one")
    await place.connect("another", Part.WINDOWS)
    with pytest.raises(OtherKeyError, match="batch features were"):
        await place.connect("another", Part.WINDOWS, Part.BATCH)


async def test_who_writes_first_marks_it_and_who_comes_at_the_same_time_is_refused(place: Place) -> None:
    one, another = place.entities("one"), place.entities("another")
    await one.start()
    await another.start()  # while nothing is there yet
    assert (await observe(one, 1)).available
    answer = await observe(another, 2)
    assert (answer.available, answer.reason, another.under_other_key) == (False, "other_key", True)
    for entities in (one, another):
        await entities.close()


async def test_a_redis_that_is_emptied_beside_a_connected_worker_stays_under_its_key(place: Place, redis: Redis) -> None:
    entities = place.entities("one")
    assert (await observe(entities, 1)).available
    await redis.delete(*[key async for key in redis.scan_iter(f"{{{place.prefix}:*")])
    assert (await observe(entities, 2)).available
    await entities.close()
    again = place.entities("one")
    await again.start()
    assert (await observe(again, 3)).available
    await again.close()


@pytest.mark.parametrize("written", ["a transaction", "a decline"])
async def test_whatever_is_learnt_marks_the_outcomes_and_another_key_can_not_learn_there(place: Place, written: str) -> None:
    def rows(key: str) -> LearnedRows:
        keyspace = place.keyspace(key)
        link = KeyedLink(place.url, KeyMarks(keyspace, Part.OUTCOMES), (risk_library(), index_library()))
        return LearnedRows(link, keyspace, keyspace, OFFLINE, 60)

    decided, declines = np.zeros(1, DECIDED), np.zeros(1, CHANGE)
    decided["user"], declines["merchant"] = 7, 9
    what = (decided, declines[:0]) if written == "a transaction" else (decided[:0], declines)
    one, another = rows("one"), rows("another")
    await one.connect()
    await another.connect()
    await one.keep(*what)
    with pytest.raises(OtherKeyError, match="outcomes were written"):
        await another.keep(*what)
    assert not another.connected
    await one.close()


async def test_windows_under_another_key_are_unavailable_rather_than_never_seen(place: Place, redis: Redis) -> None:
    await place.mark(redis, Part.WINDOWS, "one")
    other = place.entities("another")
    with pytest.raises(ServiceError, match="assay rebuild entities"):
        await other.start()
    answer = await observe(other, 2)
    await other.close()
    assert (answer.available, answer.reason, other.under_other_key) == (False, "other_key", True)


async def test_once_they_are_under_our_key_they_are_used_without_a_restart(place: Place, redis: Redis) -> None:
    await place.mark(redis, Part.WINDOWS, "one")
    entities = place.entities("another")
    with pytest.raises(ServiceError):
        await entities.start()
    await place.mark(redis, Part.WINDOWS, "another")
    await observe(entities, 1)  # which has it looked at again
    assert entities._recovery is not None
    await entities._recovery
    assert (await observe(entities, 2)).available
    assert not entities.under_other_key
    await entities.close()


@pytest.mark.parametrize("part", list(Part))
async def test_batch_features_are_not_loaded_beside_anything_under_another_key(place: Place, redis: Redis, part: Part) -> None:
    await place.mark(redis, part, "one")
    with pytest.raises(ServiceError, match=f"{part} were written under another ASSAY_HASH_KEY"):
        await load(NOTHING, place.url, place.keyspace("another"))


async def test_a_load_marks_what_it_wrote(place: Place) -> None:
    values = BatchValues(np.zeros(1, np.int64), np.ones(1, np.uint64), np.ones(1, np.float32), np.full(1, NOW_MS))
    await load(NOTHING, place.url, place.keyspace("another"))
    await load(values, place.url, place.keyspace("one"))
    with pytest.raises(ServiceError, match="batch features were written"):
        await load(values, place.url, place.keyspace("another"))


async def test_word_of_a_loss_is_kept_until_redis_has_taken_it(place: Place, redis: Redis) -> None:
    settings = place.settings("one")
    place.prefix = settings.entity_prefix
    entities = place.entities(settings.digests().fingerprint)
    await observe(entities, 1)
    await redis.delete(*[key async for key in redis.scan_iter(f"{{{place.prefix}:*")])
    await observe(entities, 2)
    entities._failed(ConnectionError("gone for a moment"))
    await entities.close()  # with which it goes out
    assert (await redis_lost(settings)).state is State.FAIL


async def test_the_doctor_says_that_a_worker_found_windows_missing_until_they_are_made_anew(place: Place, redis: Redis) -> None:
    settings = place.settings("one")
    place.prefix = settings.entity_prefix
    entities = place.entities(settings.digests().fingerprint)
    await observe(entities, 1)
    assert (await redis_lost(settings)).state is State.OK
    await redis.delete(*[key async for key in redis.scan_iter(f"{{{place.prefix}:*")])
    await observe(entities, 2)
    assert entities._recovery is not None
    await entities._recovery
    found = await redis_lost(settings)
    await entities.close()
    assert (found.state, "assay rebuild entities" in found.mend) == (State.FAIL, True)


async def test_the_doctor_says_under_which_key_it_is(place: Place, redis: Redis) -> None:
    one, another = place.settings("one"), place.settings("another")
    place.prefix = one.entity_prefix
    assert (await redis_key(one)).found == "nothing is there yet"
    await place.mark(redis, Part.WINDOWS, one.digests().fingerprint)
    assert (await redis_key(one)).state is State.OK
    refused = await redis_key(another)
    assert (refused.state, "assay rebuild entities" in refused.mend) == (State.FAIL, True)
