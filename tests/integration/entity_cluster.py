"""The shards of tests on a Redis Cluster of three nodes, where they lie, and one on its way to another node."""

import numpy as np
from redis.crc import key_slot

from assay.deploy.redis_cluster import LocalCluster
from assay.tables.entity_answer import EntityAnswer
from assay.tables.entity_layout import ENTITIES
from assay.tables.events import Events
from assay.tables.features import FEATURES, Origin
from assay.tables.keyspace import Keyspace

ENTITY_OF_WINDOW = [ENTITIES.index(feature.entity) for feature in FEATURES if feature.source == Origin.ENTITY]
SHARDS = 6
PREFIX = "prefix"  # whose six tags lie on all three nodes


def slot_of(shard: int, prefix: str = PREFIX) -> int:
    return int(key_slot(Keyspace(prefix, "", SHARDS).tag(shard)))


def node_of(slot: int) -> int:
    """As `LocalCluster` deals the slots out."""
    return min(2, slot // (16384 // 3))


def of(answer: EntityAnswer, rows: slice) -> EntityAnswer:
    return EntityAnswer(answer.values[rows], answer.sequences[rows], available=True)


def on_lost_node(events: Events, lost: int) -> np.ndarray:
    """bool (n, kinds): which entities lie on that node."""
    digests = np.stack([events[name] for name in ENTITIES], axis=1)
    nodes = np.array([node_of(slot_of(shard)) for shard in range(SHARDS)])
    return nodes[(digests % np.uint64(SHARDS)).astype(int)] == lost


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
