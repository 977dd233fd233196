"""Entity windows on a Redis Cluster of three nodes: the same bits, and right again after a slot moved or a node was lost."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pydantic import SecretStr
from redis.crc import key_slot

from assay.deploy.check import State
from assay.deploy.redis_cluster import LocalCluster, local_cluster
from assay.deploy.service_checks import redis_check
from assay.schemas.errors import ServiceError
from assay.streams.settings import Settings
from assay.tables.entities import Entities, EntityAnswer
from assay.tables.entity_call import Keyspace
from assay.tables.entity_layout import ENTITIES
from assay.tables.events import Events
from assay.tables.features import FEATURES, Origin
from assay.tables.redis_link import RedisLink
from assay.tables.redis_sweep import sweep

from .entity_payments import UNHURRIED_S, assert_same, expected, fresh, observe, payments
from .test_entity_outages import assert_unavailable, until_caught_up

pytestmark = pytest.mark.services

ENTITY_OF_WINDOW = [ENTITIES.index(feature.entity) for feature in FEATURES if feature.source == Origin.ENTITY]
SHARDS = 6
PREFIX = "prefix"  # whose six tags lie on all three nodes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes whose slots and processes one test may do with as it likes."""
    with local_cluster(tmp_path) as running:
        yield running


def slot_of(shard: int, prefix: str = PREFIX) -> int:
    return int(key_slot(Keyspace(prefix, "", SHARDS).tag(shard)))


def node_of(slot: int) -> int:
    """As `LocalCluster` deals the slots out."""
    return min(2, slot // (16384 // 3))


def of(answer: EntityAnswer, rows: slice) -> EntityAnswer:
    return EntityAnswer(answer.values[rows], answer.sequences[rows], available=True)


async def test_six_shards_on_three_nodes_give_the_bits_of_the_offline_fold(cluster: LocalCluster) -> None:
    events, partitions = payments(2_000, few=300)
    entities = fresh(cluster.url, prefix=PREFIX, shards=SHARDS)
    await entities.start()
    answer = await observe(entities, events, partitions, 64)
    await entities.close()
    assert {node_of(slot_of(shard)) for shard in range(SHARDS)} == {0, 1, 2}
    assert_same(answer, expected(events))


@pytest.mark.parametrize("node", [0, 1, 2])
async def test_any_node_will_do_for_a_start(cluster: LocalCluster, node: int) -> None:
    events, partitions = payments(100)
    entities = fresh(f"redis://127.0.0.1:{cluster.ports[node]}/0", shards=SHARDS)
    await entities.start()
    answer = await observe(entities, events, partitions)
    await entities.close()
    assert_same(answer, expected(events))


async def test_a_node_of_the_url_that_is_gone_hinders_no_start(cluster: LocalCluster) -> None:
    events, partitions = payments(100)
    entities = fresh(f"redis://127.0.0.1:1,127.0.0.1:{cluster.ports[1]}", shards=SHARDS)
    await entities.start()
    answer = await observe(entities, events, partitions)
    await entities.close()
    assert_same(answer, expected(events))


async def test_a_database_that_the_cluster_does_not_have_is_named(cluster: LocalCluster) -> None:
    entities = fresh(f"redis://127.0.0.1:{cluster.ports[0]}/5")
    with pytest.raises(ServiceError, match="no such database"):
        await entities.start()
    await entities.close()


def test_the_doctor_finds_the_cluster_well_whichever_node_it_asks(cluster: LocalCluster) -> None:
    for url in (cluster.url, f"redis://127.0.0.1:{cluster.ports[2]}"):
        check = redis_check(Settings.load(redis_url=SecretStr(url), redis_shards=16))
        assert (check.state, "3 masters" in check.found) == (State.OK, True), check


def test_the_doctor_tells_of_a_master_that_evicts(cluster: LocalCluster) -> None:
    cluster.ask(2, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    check = redis_check(Settings.load(redis_url=SecretStr(cluster.url)))
    cluster.ask(2, "CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert check.state is State.WARN
    assert "allkeys-lru" in check.found


async def test_a_sweep_finds_and_deletes_the_keys_of_every_node_and_no_others(own_cluster: LocalCluster) -> None:
    events, partitions = payments(500, few=100)
    ours, others = (fresh(own_cluster.url, prefix=prefix, shards=SHARDS) for prefix in (PREFIX, "other"))
    counts = []
    for entities in (others, ours):
        await observe(entities, events, partitions)
        await entities.close()
        counts.append(sum(own_cluster.ask(node, "DBSIZE") for node in range(3)))
    link = RedisLink(own_cluster.url)
    await link.connect()
    turns: list[int] = []
    found = [await sweep(link, f"{{{PREFIX}:*}}:*", delete=delete, found=turns.append) for delete in (False, True, False)]
    await link.disconnect()
    assert found == [counts[1] - counts[0], counts[1] - counts[0], 0]
    assert turns[-1] == 0
    assert sum(own_cluster.ask(node, "DBSIZE") for node in range(3)) == counts[0]


async def test_the_password_of_the_url_is_given_to_every_node(own_cluster: LocalCluster) -> None:
    for node in range(3):
        await asyncio.to_thread(own_cluster.ask, node, "CONFIG", "SET", "requirepass", "a-word")
    events, partitions = payments(100)
    entities = fresh(own_cluster.url.replace("//", "//:a-word@"), prefix=PREFIX, shards=SHARDS)
    await entities.start()
    answer = await observe(entities, events, partitions)
    await entities.close()
    assert_same(answer, expected(events))
    strangers = fresh(own_cluster.url, prefix=PREFIX, shards=SHARDS)
    with pytest.raises(ServiceError, match="credentials"):
        await strangers.start()
    await strangers.close()


class Move:
    """One slot on its way to the next node, step by step, as `redis-cli --cluster reshard` does it."""

    def __init__(self, cluster: LocalCluster, slot: int) -> None:
        self.cluster, self.slot, self.source = cluster, slot, node_of(slot)
        self.target = (self.source + 1) % 3

    def begin(self) -> None:
        self._set(self.target, "IMPORTING", self.source)
        self._set(self.source, "MIGRATING", self.target)

    def keys(self, count: int) -> int:
        """Moves so many keys. Returns how many there were."""
        keys = self.cluster.ask(self.source, "CLUSTER", "GETKEYSINSLOT", self.slot, count)
        to = ("127.0.0.1", self.cluster.ports[self.target], "", 0, 10_000)
        if keys:
            self.cluster.ask(self.source, "MIGRATE", *to, "KEYS", *keys)
        return len(keys)

    def end(self) -> None:
        for node in (self.target, self.source, *{0, 1, 2} - {self.target, self.source}):
            self._set(node, "NODE", self.target)

    def _set(self, node: int, what: str, other: int) -> None:
        self.cluster.ask(node, "CLUSTER", "SETSLOT", self.slot, what, self.cluster.id_of(other))

    def all_at_once(self) -> None:
        self.begin()
        while self.keys(100):
            pass
        self.end()


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


def on_lost_node(events: Events, lost: int) -> np.ndarray:
    """bool (n, kinds): which entities lie on that node."""
    digests = np.stack([events[name] for name in ENTITIES], axis=1)
    nodes = np.array([node_of(slot_of(shard)) for shard in range(SHARDS)])
    return nodes[(digests % np.uint64(SHARDS)).astype(int)] == lost


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
