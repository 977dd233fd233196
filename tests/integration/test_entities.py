"""Entity windows on a real Redis: the bits of the offline fold, whatever the batches and shards, and no double counting."""

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from assay.schemas.limits import MAX_ENTITY_BASE_BYTES, MAX_ENTITY_ROW_BYTES
from assay.tables.entity_answer import EntityAnswer
from assay.tables.entity_call import EXPIRE_S
from assay.tables.entity_columns import columns_of
from assay.tables.entity_fold import EntityWindows
from assay.tables.entity_layout import ABSENT, BACK, KEY_LETTERS, LAYOUT_VERSION, MANY_PEOPLE, TAIL, TILE_S
from assay.tables.entity_rows import PREFIX_BYTES
from assay.tables.entity_state import State
from assay.tables.events import EVENT, Events
from assay.tables.features import DAY, ENTITIES, ENTITY_FEATURES, NAMES, PROFILE_FEATURES
from assay.tables.keyspace import Keyspace, Part
from tests.entity_reference import DAY_MS, HOUR_MS, MINUTE_MS, START_MS, built, drawn_event, drawn_events, referred

from .entity_payments import assert_same, expected, fresh, observe, payments

pytestmark = pytest.mark.services

MERCHANT = ENTITIES.index("merchant")
WINDOW = {name: column for column, name in enumerate(NAMES[PROFILE_FEATURES:])}
GOLDEN = Path(__file__).parents[1] / "golden" / "entity_windows.json"


def observed_on_redis(url: str, events: Events, size: int, shards: int) -> EntityAnswer:
    """The answers of a Redis that never saw these entities, to micro-batches of a size."""

    async def run() -> EntityAnswer:
        entities = fresh(url, shards=shards)
        await entities.start()
        try:
            return await observe(entities, events, np.arange(len(events)) % 3, size)
        finally:
            await entities.close()

    return asyncio.run(run())


@settings(max_examples=100, deadline=None)
@given(drawn_events, st.integers(1, 50), st.sampled_from([1, 2, 5]))
def test_windows_on_redis_are_what_their_definition_says(redis_url: str, drawn: list[Any], size: int, shards: int) -> None:
    events = built(drawn)
    answer = observed_on_redis(redis_url, events, size, shards)
    expected_values, numbers = referred(events)
    np.testing.assert_allclose(answer.values[:, :ENTITY_FEATURES], expected_values, rtol=1e-5, atol=2e-3)
    assert np.array_equal(answer.sequences, numbers)
    assert_same(answer, expected(events))


@settings(max_examples=40, deadline=None)
@given(drawn_events, st.integers(1, 20), st.data())
def test_what_is_sent_again_changes_nothing(redis_url: str, drawn: list[Any], size: int, data: st.DataObject) -> None:
    events = built(drawn)
    again = data.draw(st.integers(1, len(events)))

    async def run() -> None:
        entities = fresh(redis_url, shards=2)
        whole = fresh(redis_url, shards=2)
        partitions = np.arange(len(events)) % 3
        await observe(entities, events[:again], partitions[:again], size)
        overlapping = await observe(entities, events, partitions, size)
        at_once = await observe(whole, events, partitions)
        await entities.close()
        await whole.close()
        assert overlapping.values[again:].tobytes() == at_once.values[again:].tobytes()
        assert np.array_equal(overlapping.sequences[again:], at_once.sequences[again:])

    asyncio.run(run())


def held(state: State, slot: int) -> dict[str, Any]:
    """All that an entity's row holds."""
    entry = state.slots[slot]
    rings = [state._tiles[at : at + count] for at, count in zip(entry["tiles_at"], entry["tiles"], strict=True)]
    crowds = [state._people[at : at + count] for at, count in zip(entry["crowd_at"], entry["crowd"], strict=True)]
    return {
        "numbers": [int(entry[name]) for name in ("sequence", "clock_ms", "latest")],
        "tiles": [[(*tile.item()[:3], float(tile["sum"])) for tile in ring] for ring in rings],
        "people": [crowd.tolist() for crowd in crowds],
    }


def assert_rows_hold_the_same(url: str, events: Events, size: int) -> None:
    """On Redis, after micro-batches of a size, and offline."""
    prefix = uuid.uuid4().hex[:12]

    async def rows(names: list[bytes]) -> list[bytes]:
        entities, client = fresh(url, prefix=prefix), Redis.from_url(url)
        await entities.start()
        await observe(entities, events, np.zeros(len(events), int), size)
        found = await client.mget(names) if names else []
        await entities.close()
        await client.aclose()
        return found

    offline = EntityWindows()
    offline.observe(events)
    which = [(kind, digest) for kind, name in enumerate(ENTITIES) for digest in np.unique(events[name]) if digest]
    keys = [b"{%s:0}:%d:%c" % (prefix.encode(), LAYOUT_VERSION, KEY_LETTERS[kind]) + digest.tobytes() for kind, digest in which]
    for (kind, digest), row in zip(which, asyncio.run(rows(keys)), strict=True):
        digests = np.zeros((1, len(ENTITIES)), np.uint64)
        digests[0, kind] = digest
        state = State.of_rows([row], np.array([kind], np.uint8))
        assert state is not None
        assert held(state, 0) == held(offline._state, offline._roll.slots(digests)[0, kind])


@settings(max_examples=60, deadline=None)
@given(st.lists(drawn_event, min_size=1, max_size=120), st.integers(1, 50))
def test_a_row_on_redis_holds_what_the_offline_fold_holds(redis_url: str, drawn: list[Any], size: int) -> None:
    assert_rows_hold_the_same(redis_url, built(drawn), size)


@pytest.mark.parametrize("size", [1, 50])
@pytest.mark.parametrize("known", [MANY_PEOPLE - 1, MANY_PEOPLE, MANY_PEOPLE + 1])
@pytest.mark.parametrize("after_ms", [30 * DAY_MS - 10_000, 30 * DAY_MS, 30 * DAY_MS + 10_000])
def test_who_was_seen_a_month_ago_gives_way_as_offline(redis_url: str, after_ms: int, known: int, size: int) -> None:
    late_ms = [-10_000, 0, 10_000]  # around what lies a month behind the newcomer
    times_ms = [*[0] * known, after_ms, *(after_ms - 30 * DAY_MS + late for late in late_ms)]
    events = np.zeros(len(times_ms), EVENT)
    events["offset"], events["merchant"], events["time_ms"] = np.arange(len(events)), 9, START_MS + np.array(times_ms)
    for name in ("user", "instrument", "device"):
        events[name] = np.arange(1, len(events) + 1, dtype=np.uint64) << np.uint64(56)
    assert_rows_hold_the_same(redis_url, events, size)


async def rows_of_merchants(client: Redis, prefix: str) -> list[bytes]:
    return [await client.get(key) async for key in client.scan_iter(f"{{{prefix}:*:m*", count=10_000)]


async def test_a_base_that_has_all_that_one_can_have_is_as_large_as_its_bound(redis_url: str) -> None:
    ago_ms = [1_000 * size * back for size, most in zip(TILE_S, BACK, strict=True) for back in range(most + 1)]
    events = np.zeros(3_000, EVENT)
    events["offset"], events["time_ms"], events["merchant"] = np.arange(3_000), START_MS, 9
    events["time_ms"][: len(ago_ms)] = START_MS - np.sort(ago_ms)[::-1]
    for name in ("user", "instrument", "device"):
        events[name] = np.random.default_rng(6).integers(1, 2**64, 3_000, np.uint64)
    events["instrument"] |= np.uint64(1)
    entities, client = fresh(redis_url, prefix=(prefix := uuid.uuid4().hex[:12])), Redis.from_url(redis_url)
    await observe(entities, events[:-2], np.zeros(2_998, int), 500)
    await observe(entities, events[-2:], np.zeros(2, int), 1)  # the first reads a long tail, with the second a base is sent
    [row] = await rows_of_merchants(client, prefix)
    await entities.close()
    await client.aclose()
    assert int.from_bytes(row[:4], "little") == MAX_ENTITY_BASE_BYTES


async def test_i5_max_entity_row_bytes_one_observation_more_is_counted_and_has_no_room(redis_url: str) -> None:
    most = (MAX_ENTITY_ROW_BYTES - PREFIX_BYTES) // TAIL.itemsize
    events = np.zeros(most + 2, EVENT)
    events["offset"], events["time_ms"], events["merchant"], events["user"] = np.arange(most + 2), START_MS, 9, 1
    entities, client = fresh(redis_url, prefix=(prefix := uuid.uuid4().hex[:12])), Redis.from_url(redis_url)
    await observe(entities, events[:most], np.zeros(most, int))
    assert [len(row) for row in await rows_of_merchants(client, prefix)] == [MAX_ENTITY_ROW_BYTES]
    assert entities.dropped == 0
    await observe(entities, events[most : most + 1], np.zeros(1, int))
    assert entities.dropped == 1
    after = await observe(entities, events[most + 1 :], np.zeros(1, int))  # the row is compacted before
    await entities.close()
    await client.aclose()
    assert (entities.dropped, after.sequences[0, MERCHANT]) == (1, most + 1)


async def test_workers_that_compact_the_same_rows_lose_nothing(redis_url: str) -> None:
    events, partitions = payments(900, few=4)
    prefix = uuid.uuid4().hex[:12]
    workers = [fresh(redis_url, prefix=prefix) for _ in range(3)]
    parts = [await observe(workers[i // 5 % 3], events[i : i + 5], partitions[i : i + 5]) for i in range(0, len(events), 5)]
    for worker in workers:
        await worker.close()
    values, sequences = (np.concatenate([getattr(part, name) for part in parts]) for name in ("values", "sequences"))
    assert_same(EntityAnswer(values, sequences, available=True), expected(events))


async def test_golden_vectors_hold_on_redis(redis_url: str) -> None:
    golden = json.loads(GOLDEN.read_text())
    events = np.zeros(len(golden["events"]), EVENT)
    for name in golden["columns"]:
        events[name] = [row[golden["columns"].index(name)] for row in golden["events"]]
    entities = fresh(redis_url)
    await entities.start()
    answer = await observe(entities, events, np.zeros(len(events), int), 5)
    await entities.close()
    columns = [WINDOW[name] for name in golden["windows"]]
    assert answer.values[:, columns].astype("<f4").tobytes().hex() == "".join(golden["values"])
    assert answer.sequences.tolist() == golden["sequences"]


async def test_a_batch_of_256_is_256_batches_of_one(redis_url: str) -> None:
    events, partitions = payments(256)
    whole, single = fresh(redis_url), fresh(redis_url)
    at_once = await observe(whole, events, partitions)
    one_by_one = await observe(single, events, partitions, 1)
    await whole.close()
    await single.close()
    assert_same(at_once, one_by_one)
    assert_same(at_once, expected(events))


async def test_shards_change_no_value(redis_url: str) -> None:
    events, partitions = payments(600, few=200)
    answers = []
    for shards in (1, 4):
        entities = fresh(redis_url, shards=shards)
        answers.append(await observe(entities, events, partitions, 64))
        await entities.close()
    assert_same(*answers)


@pytest.mark.parametrize("step_ms", [MINUTE_MS, 30 * MINUTE_MS])  # two days, and two months
async def test_many_users_of_one_merchant_are_counted_as_offline(redis_url: str, step_ms: int) -> None:
    events, partitions = payments(6_000, few=2, step_ms=step_ms)
    entities = fresh(redis_url)
    answer = await observe(entities, events, partitions, 256)
    await entities.close()
    assert_same(answer, expected(events))


async def test_within_a_micro_batch_each_sees_those_before_it(redis_url: str) -> None:
    events = np.zeros(5, EVENT)
    events["offset"], events["merchant"], events["user"], events["amount"] = np.arange(5), 9, 1, 2.0
    events["time_ms"] = START_MS
    entities = fresh(redis_url)
    answer = await entities.observe(events, np.zeros(5, int))
    await entities.close()
    assert answer.sequences[:, MERCHANT].tolist() == [1, 2, 3, 4, 5]
    assert answer.values[:, WINDOW["merchant_count_1h"]].tolist() == [1, 2, 3, 4, 5]
    assert answer.values[:, WINDOW["merchant_sum_1h"]].tolist() == [2, 4, 6, 8, 10]


async def test_a_replay_changes_nothing_and_is_answered_with_the_windows_as_they_stand(redis_url: str) -> None:
    events = np.zeros(6, EVENT)
    events["offset"], events["merchant"], events["user"], events["amount"] = np.arange(6), 9, 1, 2.0
    events["time_ms"] = START_MS
    zeros = np.zeros(6, int)
    entities = fresh(redis_url)
    await entities.observe(events[:4], zeros[:4])
    replayed = await entities.observe(events[:4], zeros[:4])
    overlapping = await entities.observe(events[2:], zeros[2:])
    elsewhere = await entities.observe(events[:1], np.ones(1, int))
    await entities.close()
    assert replayed.values[:, WINDOW["merchant_count_1h"]].tolist() == [4, 4, 4, 4]
    assert replayed.sequences[:, MERCHANT].tolist() == [4, 4, 4, 4]
    assert overlapping.values[:, WINDOW["merchant_count_1h"]].tolist() == [4, 4, 5, 6]
    assert elsewhere.values[:, WINDOW["merchant_count_1h"]].tolist() == [
        7
    ]  # an offset says nothing about those of another partition


async def test_offsets_of_another_source_are_not_compared(redis_url: str) -> None:
    events, partitions = payments(10)
    first = fresh(redis_url, prefix=(prefix := uuid.uuid4().hex), source="topic-one")
    second = fresh(redis_url, prefix=prefix, source="topic-two")
    before = await observe(first, events, partitions)
    after = await observe(second, events, partitions)
    await first.close()
    await second.close()
    assert (after.sequences[before.sequences > 0] > before.sequences[before.sequences > 0]).all()


async def test_every_key_expires_but_the_marks_that_say_whose_the_others_are(redis_url: str) -> None:
    events, partitions = payments(50)
    entities = fresh(redis_url, prefix=(prefix := uuid.uuid4().hex), shards=2)
    await observe(entities, events, partitions)
    await entities.close()
    client = Redis.from_url(redis_url)
    lives = {key: await client.ttl(key) async for key in client.scan_iter(f"{{{prefix}:*", count=10_000)}
    await client.aclose()
    assert len(lives) > 20
    marks = {Keyspace(prefix, "", 2).mark(shard, Part.WINDOWS) for shard in range(2)}
    assert {key for key, life in lives.items() if life == -1} == marks
    assert all(37 * DAY < life <= 2 * EXPIRE_S for key, life in lives.items() if key not in marks)


async def test_an_absent_entity_is_declared_so_and_a_transaction_without_any_asks_nothing(redis_url: str) -> None:
    events, _ = payments(3)
    for name in ENTITIES:
        events[name] = 0
    events["device"][0] = 5
    entities = fresh(redis_url)
    some = await entities.observe(events, [0, 0, 0])
    unreachable = fresh("redis://127.0.0.1:1/0")
    none = await unreachable.observe(events[1:], [0, 0])
    await entities.close()
    assert some.available
    assert (some.values[0, columns_of("device")] != ABSENT).all()
    assert (np.delete(some.values[0, :ENTITY_FEATURES], columns_of("device")) == ABSENT).all()
    assert (some.values[1:, :ENTITY_FEATURES] == ABSENT).all()
    assert some.sequences.tolist() == [[0, 0, 0, 1, 0], [0] * 5, [0] * 5]
    assert none.available
    assert (none.values[:, :ENTITY_FEATURES] == ABSENT).all()


async def test_late_observations_land_in_their_tile_and_move_no_clock_back(redis_url: str) -> None:
    events = np.zeros(5, EVENT)
    events["offset"], events["merchant"], events["user"] = np.arange(5), 9, 1
    events["time_ms"] = START_MS + np.array([0, -10 * MINUTE_MS, -3 * HOUR_MS, -40 * HOUR_MS, 0])
    entities = fresh(redis_url)
    answer = await entities.observe(events, np.zeros(5, int))
    await entities.close()
    assert answer.values[:, WINDOW["merchant_count_1h"]].tolist() == [1, 2, 2, 2, 3]  # within an hour of the clock
    assert answer.values[:, WINDOW["merchant_count_24h"]].tolist() == [1, 2, 3, 3, 4]
    assert answer.sequences[:, MERCHANT].tolist() == [1, 2, 3, 4, 5]


async def test_overlapping_calls_are_applied_in_the_order_in_which_they_were_made(redis_url: str) -> None:
    events, partitions = payments(640)
    entities = fresh(redis_url, shards=3)
    answers = await asyncio.gather(*(entities.observe(events[i : i + 64], partitions[i : i + 64]) for i in range(0, 640, 64)))
    await entities.close()
    want = expected(events)
    for i, answer in enumerate(answers):
        rows = slice(64 * i, 64 * i + 64)
        assert_same(answer, EntityAnswer(want.values[rows], want.sequences[rows], available=True))
