"""Where the keys of Redis lie, and under which key of digests what they hold is. Pure: no I/O."""

from dataclasses import dataclass
from enum import StrEnum

from assay.tables import entity_layout as layout

LOST = b"lost"  # ends the key that says when windows of a shard were lost: epoch, ms


class Part(StrEnum):
    """What has a mark of its own (`key_marks`), since it is made anew on its own."""

    WINDOWS = "windows"
    OUTCOMES = "outcomes"
    BATCH = "batch features"


@dataclass(frozen=True, slots=True)
class Keyspace:
    """Where the rows lie: `{prefix:shard}` is the hash tag, so one shard is one slot of a Redis Cluster.

    Offsets are compared within one source, which tells a topic from another of the same name (its Kafka topic id).
    fingerprint: of the key that our digests are under (`digests`); empty: whatever is there is taken for ours.
    """

    prefix: str
    source: str
    shards: int
    fingerprint: str = ""

    def tag(self, shard: int) -> bytes:
        return f"{{{self.prefix}:{shard}}}:{layout.LAYOUT_VERSION}:".encode()

    def applied(self, shard: int) -> bytes:
        """The key of the hash that has the last offset applied of each partition."""
        return self.tag(shard) + b"applied:" + self.source.encode()

    def mark(self, shard: int, part: Part) -> bytes:
        """The key of the mark that says whose digests a part of this shard has."""
        return f"{{{self.prefix}:{shard}}}:key:{part.name.lower()}".encode()
