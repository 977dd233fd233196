"""What Redis is known to have applied: one that has less later has lost it (emptied, an old snapshot, a failover)."""

import time

from assay.tables.entity_call import EXPIRE_S, ShardCall
from assay.tables.keyspace import LOST
from assay.tables.redis_link import Command, packed


class Applied:
    """The last offset of each shard and source partition that Redis has told us of.

    lost: how many times it turned out to have less than that.
    """

    def __init__(self) -> None:
        self.lost = 0
        self._last: dict[tuple[bytes, int], float] = {}

    def note(self, call: ShardCall) -> Command | None:
        """What an answered call tells. Where something was lost: a command that leaves word of it for `assay doctor`."""
        if call.before is None:
            return None
        before = zip(call.partitions.tolist(), call.before.tolist(), strict=True)
        gone = any(offset < self._last.get((call.tag, partition), -1.0) for partition, offset in before)
        self._last |= {(call.tag, partition): offset for partition, offset in call.applied().items()}
        if not gone:
            return None
        self.lost += 1
        now_ms, expires_s = time.time_ns() // 1_000_000, EXPIRE_S
        return Command(call.tag, packed(b"SET", call.tag + LOST, b"%d" % now_ms, b"EX", b"%d" % expires_s))
