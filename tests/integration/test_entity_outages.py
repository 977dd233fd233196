"""A Redis that is slow, gone, new, full of something else or not one: the tier falls, and the windows come right again."""

import asyncio
import signal
from pathlib import Path

import numpy as np
import pytest
from redis.asyncio import Redis

from assay.schemas import limits
from assay.schemas.errors import ServiceError, SettingError
from assay.schemas.limits import MAX_ENTITY_BASE_BYTES, MAX_ENTITY_ROW_BYTES
from assay.tables import entities as entities_module
from assay.tables.entities import Entities
from assay.tables.entity_answer import EntityAnswer
from assay.tables.entity_call import library
from assay.tables.entity_layout import LAYOUT_VERSION, TAIL
from assay.tables.features import ENTITIES

from .entity_payments import UNHURRIED_S, assert_same, expected, fresh, observe, payments
from .own_redis import OwnRedis

pytestmark = pytest.mark.services


async def until_caught_up(entities: Entities) -> None:
    async with asyncio.timeout(UNHURRIED_S):
        while entities.waiting:
            entities._recover()
            await asyncio.sleep(0.02)


def assert_unavailable(answer: EntityAnswer, *reasons: str) -> None:
    assert not answer.available
    assert answer.reason in reasons
    assert np.isnan(answer.values).all()
    assert not answer.sequences.any()


async def test_a_stalled_redis_costs_the_deadline_and_what_waits_is_applied_once_and_in_order(
    own_redis: OwnRedis,
) -> None:
    events, partitions = payments(96)
    entities = fresh(own_redis.url, deadline=0.2)
    await entities.start()
    first = await observe(entities, events[:32], partitions[:32])
    own_redis.signal(signal.SIGSTOP)
    stalled = await entities.observe(events[32:64], partitions[32:64])
    own_redis.signal(signal.SIGCONT)  # now it applies what it was sent; nobody reads the answer
    await until_caught_up(entities)
    entities._deadline = UNHURRIED_S
    last = await observe(entities, events[64:], partitions[64:])
    await entities.close()
    assert_unavailable(stalled, "deadline")
    want = expected(events)
    assert_same(first, EntityAnswer(want.values[:32], want.sequences[:32], available=True))
    assert_same(last, EntityAnswer(want.values[64:], want.sequences[64:], available=True))
    assert entities.dropped == 0


async def test_when_redis_dies_the_tier_falls_and_what_waited_is_in_the_windows_afterwards(own_redis: OwnRedis) -> None:
    events, partitions = payments(160)
    entities = fresh(own_redis.url, deadline=1.0, rest=0.0)
    await entities.start()
    await observe(entities, events[:32], partitions[:32])
    await asyncio.to_thread(own_redis.stop)
    outage = [await entities.observe(events[i : i + 16], partitions[i : i + 16]) for i in range(32, 128, 16)]
    waited = entities.waiting
    await asyncio.to_thread(own_redis.start)  # empty: it kept nothing on disk
    await until_caught_up(entities)
    entities._deadline = UNHURRIED_S
    after = await observe(entities, events[128:], partitions[128:])
    await entities.close()
    for answer in outage:
        assert_unavailable(answer, "unreachable", "resting")
    assert waited == 96
    want = expected(events[32:])
    assert_same(after, EntityAnswer(want.values[96:], want.sequences[96:], available=True))


async def test_a_few_that_wait_go_along_with_the_next_micro_batch(own_redis: OwnRedis) -> None:
    events, partitions = payments(64)
    entities = fresh(own_redis.url)
    for i in range(0, 48, 16):  # answered without Redis: it rests
        entities._failures = limits.FAILURES_TO_REST
        entities._rests_until = float("inf")
        assert_unavailable(await entities.observe(events[i : i + 16], partitions[i : i + 16]), "resting")
    entities._failures = 0
    answer = await observe(entities, events[48:], partitions[48:])
    await entities.close()
    assert entities.waiting == 0
    want = expected(events)
    assert_same(answer, EntityAnswer(want.values[48:], want.sequences[48:], available=True))


async def test_after_failures_in_a_row_it_rests_and_only_a_probe_ends_that(own_redis: OwnRedis) -> None:
    events, partitions = payments(100)
    now = [0.0]
    entities = fresh(own_redis.url, deadline=1.0, rest=10.0, clock=lambda: now[0])
    await asyncio.to_thread(own_redis.stop)
    reasons = []
    for i in range(20):
        reasons.append((await entities.observe(events[i : i + 1], partitions[i : i + 1])).reason)
    assert reasons[0] == "unreachable"
    assert reasons[-1] == "resting"
    await asyncio.to_thread(own_redis.start)
    still = await entities.observe(events[20:21], partitions[20:21])
    await asyncio.sleep(0.1)
    assert still.reason == "resting"
    assert entities.resting
    now[0] = 11.0
    probing = await entities.observe(events[21:22], partitions[21:22])
    assert probing.reason == "resting"  # nobody's deadline is spent on the probe
    await until_caught_up(entities)
    assert not entities.resting
    answer = await observe(entities, events[22:], partitions[22:])
    await entities.close()
    want = expected(events)
    assert_same(answer, EntityAnswer(want.values[22:], want.sequences[22:], available=True))


async def test_what_waits_is_bounded_and_what_is_dropped_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entities_module, "MAX_WAITING_OBSERVATIONS", 50)
    events, partitions = payments(100)
    entities = fresh("redis://127.0.0.1:1/0", deadline=1.0)
    for i in range(0, 100, 10):
        assert_unavailable(await entities.observe(events[i : i + 10], partitions[i : i + 10]), "unreachable", "resting")
    assert (entities.waiting, entities.dropped) == (50, 50)
    await entities.close()
    assert (entities.waiting, entities.dropped) == (0, 100)


async def test_when_too_much_waits_it_is_sent_first_and_nobody_waits_for_it(
    own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entities_module, "MAX_CAUGHT_UP_AT_ONCE", 10)
    events, partitions = payments(64)
    entities = fresh(own_redis.url)
    entities._failures, entities._rests_until = limits.FAILURES_TO_REST, float("inf")
    await entities.observe(events[:32], partitions[:32])
    entities._failures = 0
    assert_unavailable(await entities.observe(events[32:48], partitions[32:48]), "behind")
    await until_caught_up(entities)
    answer = await observe(entities, events[48:], partitions[48:])
    await entities.close()
    want = expected(events)
    assert_same(answer, EntityAnswer(want.values[48:], want.sequences[48:], available=True))


async def test_a_cancelled_call_leaves_no_answer_for_the_next_one(redis_url: str) -> None:
    events, partitions = payments(300)
    entities = fresh(redis_url)
    await entities.start()
    for turns in range(1, 6):
        i = 40 * turns - 40
        task = asyncio.create_task(entities.observe(events[i : i + 20], partitions[i : i + 20]))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        await observe(entities, events[i + 20 : i + 40], partitions[i + 20 : i + 40])
    answer = await observe(entities, events[200:], partitions[200:])
    await entities.close()
    want = expected(events)
    assert_same(answer, EntityAnswer(want.values[200:], want.sequences[200:], available=True))


async def test_a_function_that_vanished_is_loaded_again(own_redis: OwnRedis) -> None:
    events, partitions = payments(64)
    entities = fresh(own_redis.url)
    await entities.start()
    await observe(entities, events[:20], partitions[:20])
    client = Redis.from_url(own_redis.url)
    await client.execute_command("FUNCTION", "FLUSH")
    await client.aclose()
    assert_unavailable(await entities.observe(events[20:40], partitions[20:40]), "refused")
    answer = await observe(entities, events[40:], partitions[40:])
    await entities.close()
    want = expected(events)
    assert_same(answer, EntityAnswer(want.values[40:], want.sequences[40:], available=True))


async def test_a_micro_batch_that_redis_keeps_refusing_is_dropped_so_that_others_go_on(own_redis: OwnRedis) -> None:
    events, partitions = payments(40)
    events["merchant"] = 77
    entities = fresh(own_redis.url, prefix="poisoned", rest=0.0)
    await entities.start()
    client = Redis.from_url(own_redis.url)
    key = b"{poisoned:0}:%d:applied:" % LAYOUT_VERSION
    await client.set(key, "not a hash")
    assert_unavailable(await entities.observe(events[:20], partitions[:20]), "refused")
    await until_caught_up(entities)
    await client.delete(key)
    await client.aclose()
    answer = await observe(entities, events[20:], partitions[20:])
    await entities.close()
    assert entities.dropped == 20
    assert_same(answer, expected(events[20:]))


async def test_a_row_that_is_none_heals_and_lowers_no_tier(own_redis: OwnRedis) -> None:
    events, partitions = payments(30)
    events["merchant"] = 77
    entities = fresh(own_redis.url, prefix="broken")
    client = Redis.from_url(own_redis.url)
    await client.set(b"{broken:0}:%d:m" % LAYOUT_VERSION + (77).to_bytes(8, "little"), "not a row")
    await observe(entities, events[:10], partitions[:10])  # its row can't take them
    answer = await observe(entities, events[10:], partitions[10:], 10)
    await entities.close()
    await client.aclose()
    assert (entities.unreadable_rows, entities.dropped) == (1, 10)
    assert answer.sequences[:, ENTITIES.index("merchant")].tolist() == [*range(1, 21)]


async def test_what_waited_for_a_busy_merchant_is_all_in_its_row(own_redis: OwnRedis) -> None:
    events, partitions = payments(9_001, few=3)
    events["merchant"] = 77
    ours = False
    entities = fresh(own_redis.url, may_write=lambda: ours)
    for start in range(0, 9_000, 250):
        await entities.observe(events[start : start + 250], partitions[start : start + 250])
    assert entities.waiting == 9_000 > (MAX_ENTITY_ROW_BYTES - MAX_ENTITY_BASE_BYTES) // TAIL.itemsize
    ours = True
    await until_caught_up(entities)
    answer = await observe(entities, events[9_000:], partitions[9_000:])
    await entities.close()
    want = expected(events)
    assert entities.dropped == 0
    assert_same(answer, EntityAnswer(want.values[9_000:], want.sequences[9_000:], available=True))


async def test_a_redis_that_was_emptied_is_told_once(own_redis: OwnRedis, caplog: pytest.LogCaptureFixture) -> None:
    events, partitions = payments(60)
    entities, client = fresh(own_redis.url), Redis.from_url(own_redis.url)
    await observe(entities, events[:20], partitions[:20], 5)
    assert entities.lost == 0
    await client.flushall()
    await observe(entities, events[20:], partitions[20:], 40)
    await observe(entities, *payments(20, seed=2), 5)  # repeats are no loss
    await entities.close()
    await client.aclose()
    assert entities.lost == 1
    assert "assay rebuild entities" in caplog.text


async def test_a_base_takes_the_place_only_of_what_it_was_made_from(own_redis: OwnRedis) -> None:
    events, partitions = payments(10)
    events["merchant"] = 77
    entities, client = fresh(own_redis.url, prefix="other"), Redis.from_url(own_redis.url)
    await observe(entities, events[:9], partitions[:9], 1)  # a base waits to be sent
    key = b"{other:0}:%d:m" % LAYOUT_VERSION + (77).to_bytes(8, "little")
    row = await client.get(key)
    at = len(row) - 2 * TAIL.itemsize
    other = row[:at] + row[at - TAIL.itemsize : at] * 2  # as after a failover that lost the last appends
    await client.set(key, other)
    await observe(entities, events[9:], partitions[9:])
    after = await client.get(key)
    await entities.close()
    await client.aclose()
    assert after[: len(other)] == other
    assert len(after) == len(other) + TAIL.itemsize


async def test_loading_is_idempotent_and_versions_live_side_by_side(own_redis: OwnRedis) -> None:
    client = Redis.from_url(own_redis.url)
    await client.function_load(
        "#!lua name=assay_entities_other\nredis.register_function('assay_observe_other', function() end)"
    )
    for _ in range(2):
        entities = fresh(own_redis.url)
        await entities.start()
        await entities.start()
        await entities.close()
    names = {entry[1].decode() for entry in await client.function_list()}
    await client.aclose()
    assert names == {"assay_entities_other", library().name}


async def test_start_says_what_to_mend_and_observing_goes_on_without() -> None:
    events, partitions = payments(4)
    entities = fresh("redis://somebody:secret-word@127.0.0.1:1/0", deadline=1.0)
    with pytest.raises(ServiceError, match=r"127\.0\.0\.1:1 does not answer.*assay services up") as caught:
        await entities.start()
    assert "secret-word" not in str(caught.value)
    assert_unavailable(await entities.observe(events, partitions), "unreachable")
    await entities.close()


async def test_refused_credentials_are_named(tmp_path: Path) -> None:
    server = OwnRedis(tmp_path)
    await asyncio.to_thread(server.start, "--requirepass", "a-word")
    try:
        for url in (server.url, server.url.replace("//", "//:wrong@")):
            entities = fresh(url)
            with pytest.raises(ServiceError, match="credentials"):
                await entities.start()
            await entities.close()
    finally:
        server.stop()


@pytest.mark.parametrize("url", ["http://127.0.0.1:6379", "127.0.0.1:6379", ""])
async def test_what_is_no_redis_url_is_refused(url: str) -> None:
    with pytest.raises(SettingError, match="ASSAY_REDIS_URL"):
        Entities(url, prefix="x")


async def test_braces_in_the_prefix_are_refused() -> None:
    with pytest.raises(SettingError, match="braces"):
        Entities("redis://127.0.0.1:1/0", prefix="a{b}")


async def test_each_shard_is_one_slot_of_a_redis_cluster(tmp_path: Path) -> None:
    server = OwnRedis(tmp_path)
    await asyncio.to_thread(server.start, "--cluster-enabled", "yes")
    client = Redis.from_url(server.url)
    try:
        await client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        async with asyncio.timeout(UNHURRIED_S):
            while "cluster_state:ok" not in str(await client.execute_command("CLUSTER", "INFO")):
                await asyncio.sleep(0.02)
        events, partitions = payments(200, few=100)
        entities = fresh(server.url, shards=8)
        await entities.start()
        answer = await observe(entities, events, partitions, 50)
        await entities.close()
        assert_same(answer, expected(events))
    finally:
        await client.aclose()
        server.stop()
