"""What Redis is known to have applied: one that has less later has lost it (emptied, an old snapshot, a failover)."""

import time
from collections.abc import Callable, Collection

from assay.tables.entity_call import EXPIRE_S, ShardCall
from assay.tables.keyspace import LOST
from assay.tables.redis_link import Command, packed


class Applied:
    """The last offset of each shard and source partition that Redis has told us of.

    lost: how many times it turned out to have less than that. words: of the shards where it did, for `assay doctor`; they are
    sent until they are `told`. clock: epoch, seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.lost, self._clock = 0, clock
        self._last: dict[tuple[bytes, int], float] = {}
        self._words: dict[bytes, Command] = {}  # by the tag of the shard

    @property
    def words(self) -> Collection[Command]:
        return self._words.values()

    def note(self, call: ShardCall) -> bool:
        """What an answered call tells. Whether something was lost."""
        if call.before is None:
            return False
        before = zip(call.partitions.tolist(), call.before.tolist(), strict=True)
        gone = any(offset < self._last.get((call.tag, partition), -1.0) for partition, offset in before)
        self._last |= {(call.tag, partition): offset for partition, offset in call.applied().items()}
        if gone:
            self.lost += 1
            when = b"%d" % round(self._clock() * 1000)
            self._words[call.tag] = Command(call.tag, packed(b"SET", call.tag + LOST, when, b"EX", b"%d" % EXPIRE_S))
        return gone

    def told(self, words: Collection[Command]) -> None:
        """Redis has taken these."""
        self._words = {tag: word for tag, word in self._words.items() if word not in words}
