"""Entity windows on a Redis Cluster whose slots move and whose nodes stall and die: right again afterwards, or why not."""

import asyncio
import signal
from pathlib import Path

import numpy as np
import pytest

from assay.deploy.redis_cluster import LocalCluster, local_cluster
from assay.tables.entities import Entities

from .entity_cluster import ENTITY_OF_WINDOW, PREFIX, SHARDS, Move, of, on_lost_node, slot_of
from .entity_payments import UNHURRIED_S, assert_same, expected, fresh, observe, payments
from .test_entity_outages import assert_unavailable, until_caught_up

pytestmark = pytest.mark.services


async def test_a_slot_that_was_moved_between_two_micro_batches_costs_no_answer(own_cluster: LocalCluster) -> None:
    events, partitions = payments(600, few=100)
    entities = fresh(own_cluster.url, prefix=PREFIX, shards=SHARDS)
    await entities.start()
    first = await observe(entities, events[:300], partitions[:300], 50)
    await asyncio.to_thread(Move(own_cluster, slot_of(2)).all_at_once)
    second = await observe(entities, events[300:], partitions[300:], 50)
    await entities.close()
    want = expected(events)
    assert_same(first, of(want, slice(300)))
    assert_same(second, of(want, slice(300, 600)))


async def test_while_a_slot_moves_key_by_key_the_tier_falls_and_then_nothing_is_missing(
    own_cluster: LocalCluster,
) -> None:
    events, partitions = payments(300, few=100)
    entities = fresh(own_cluster.url, prefix=PREFIX, shards=SHARDS, rest=0.0)
    await entities.start()
    first = await observe(entities, events[:100], partitions[:100])
    move = Move(own_cluster, slot_of(2))
    await asyncio.to_thread(move.begin)
    await asyncio.to_thread(move.keys, 20)
    meanwhile = await entities.observe(events[100:200], partitions[100:200])  # of keys on both nodes: neither can serve them
    await asyncio.to_thread(move.keys, 10_000)
    await asyncio.to_thread(move.end)
    await until_caught_up(entities)
    last = await observe(entities, events[200:], partitions[200:])
    await entities.close()
    want = expected(events)
    assert_same(first, of(want, slice(100)))
    assert_unavailable(meanwhile, "refused")
    assert_same(last, of(want, slice(200, 300)))
    assert entities.dropped == 0


async def test_keys_that_went_ahead_of_their_slot_are_asked_for_where_they_are(own_cluster: LocalCluster) -> None:
    events, partitions = payments(400, few=12)
    entities = fresh(own_cluster.url, prefix=PREFIX, shards=SHARDS)
    await entities.start()
    first = await observe(entities, events[:300], partitions[:300])  # by now all entities are known
    move = Move(own_cluster, slot_of(2))
    await asyncio.to_thread(move.begin)
    await asyncio.to_thread(move.keys, 10_000)
    before_the_end = await observe(entities, events[300:], partitions[300:], 20)
    await entities.close()
    want = expected(events)
    assert_same(first, of(want, slice(300)))
    assert_same(before_the_end, of(want, slice(300, 400)))


async def test_a_node_that_was_killed_loses_its_windows_and_no_other(own_cluster: LocalCluster) -> None:
    events, partitions = payments(400, few=100)
    entities = fresh(own_cluster.url, prefix=PREFIX, shards=SHARDS, deadline=2.0, rest=0.0)
    await entities.start()
    await observe(entities, events[:200], partitions[:200])
    await asyncio.to_thread(own_cluster.kill, 1)
    outage = [await entities.observe(events[i : i + 25], partitions[i : i + 25]) for i in range(200, 300, 25)]
    await asyncio.to_thread(own_cluster.start, 1)  # empty: it kept nothing on disk
    await asyncio.to_thread(own_cluster.wait_until_well, range(3))
    await until_caught_up(entities)
    entities._deadline = UNHURRIED_S
    after = await observe(entities, events[300:], partitions[300:])
    await entities.close()
    for answer in outage:
        assert_unavailable(answer, "unreachable", "refused", "resting", "deadline")
    whole, since = of(expected(events), slice(300, 400)), of(expected(events[200:]), slice(100, 200))
    lost = on_lost_node(events[300:], 1)
    assert np.array_equal(after.sequences, np.where(lost, since.sequences, whole.sequences))
    windows = slice(0, len(ENTITY_OF_WINDOW))
    whole_windows, since_windows = whole.values[:, windows], since.values[:, windows]
    assert np.array_equal(after.values[:, windows], np.where(lost[:, ENTITY_OF_WINDOW], since_windows, whole_windows))
    assert entities.dropped == 0


async def test_a_stalled_node_costs_the_deadline_and_no_shard_sees_anything_twice(own_cluster: LocalCluster) -> None:
    events, partitions = payments(300, few=100)
    entities = fresh(own_cluster.url, prefix=PREFIX, shards=SHARDS, deadline=0.3, rest=0.0)
    await entities.start()
    first = await observe(entities, events[:100], partitions[:100])
    own_cluster.signal(1, signal.SIGSTOP)
    stalled = await entities.observe(events[100:200], partitions[100:200])  # the others take their shards
    own_cluster.signal(1, signal.SIGCONT)
    await until_caught_up(entities)
    entities._deadline = UNHURRIED_S
    last = await observe(entities, events[200:], partitions[200:])
    await entities.close()
    want = expected(events)
    assert_same(first, of(want, slice(100)))
    assert_unavailable(stalled, "deadline")
    assert_same(last, of(want, slice(200, 300)))
    assert entities.dropped == 0


async def test_slots_that_move_under_overlapping_micro_batches_leave_every_window_right(own_cluster: LocalCluster) -> None:
    events, partitions = payments(2_000, few=300)
    entities = fresh(own_cluster.url, prefix=PREFIX, shards=SHARDS, rest=0.0)
    await entities.start()
    moves = asyncio.gather(*(asyncio.to_thread(Move(own_cluster, slot_of(shard)).all_at_once) for shard in (2, 4)))
    answers = []
    for start in range(0, 1_900, 100):
        some = [slice(i, i + 25) for i in range(start, start + 100, 25)]
        answers += await asyncio.gather(*(entities.observe(events[rows], partitions[rows]) for rows in some))
    await moves
    await until_caught_up(entities)
    last = await observe(entities, events[1_900:], partitions[1_900:])
    await entities.close()
    assert_same(last, of(expected(events), slice(1_900, 2_000)))
    assert entities.dropped == 0
    assert any(answer.available for answer in answers)


async def test_a_replica_that_took_over_is_found(tmp_path: Path) -> None:
    events, partitions = payments(300, few=50)
    with local_cluster(tmp_path, replicas=1) as cluster:
        entities: Entities = fresh(f"redis://127.0.0.1:{cluster.ports[0]}", prefix=PREFIX, shards=SHARDS, rest=0.0)
        await entities.start()
        first = await observe(entities, events[:100], partitions[:100])
        await asyncio.to_thread(cluster.wait_until_copied, 0, 3)
        await asyncio.to_thread(cluster.kill, 0)  # the one that the URL names
        await entities.observe(events[100:200], partitions[100:200])
        await until_caught_up(entities)
        last = await observe(entities, events[200:], partitions[200:])
        await entities.close()
    want = expected(events)
    assert_same(first, of(want, slice(100)))
    assert_same(last, of(want, slice(200, 300)))
