"""One micro-batch as calls of the Redis function, one per shard, and what it answered. Pure: no I/O.

The commands are written in the Redis protocol straight from arrays: a client library spends a microsecond on each key.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.tables import entity_layout as layout
from assay.tables.entity_columns import nothing_seen
from assay.tables.entity_state import State
from assay.tables.events import Events
from assay.tables.features import DAY, ENTITIES
from assay.tables.keyspace import Keyspace, Part
from assay.tables.redis_library import Library
from assay.tables.redis_link import Command

EMPTY_ROW = bytes(8)
_COMPARED = 24  # bytes at either end of a row that tell it from those before and after it
EXPIRE_S = layout.KEPT_S + DAY  # a row is of no use after that; the day is for event time behind the wall clock
NEW_ROW = [bytes(8), [None], 0]  # what a call is answered with that is about one row, which is not there


@cache
def library() -> Library:
    """What is called."""
    return Library.of("entity_windows", "observe", "compact")


@dataclass(slots=True)
class ShardCall:
    """The call for one shard: its command in pieces, and what it is about.

    rows (m,): which of the micro-batch's transactions. kinds and digests (entities,): of the distinct ones. index uint16
    (m, 5): which of those the transactions have, from 1 on, 0 for none. offsets and partition (m,): of the source; the latter
    by their place in `partitions`, the distinct ones.
    """

    tag: bytes  # of its keys
    head: bytes
    payload: bytearray
    rows: npt.NDArray[np.int64]
    index: npt.NDArray[np.uint16]
    kinds: npt.NDArray[np.uint8]
    digests: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.int64]
    partition: npt.NDArray[np.int64]
    partitions: npt.NDArray[np.int64]
    before: npt.NDArray[np.float64] | None = None  # by partition of the payload: the last offset that Redis had applied
    compaction: Command | None = None  # of rows that it was answered with
    full: int = 0  # observations that were not kept, since their row is as long as it may be, or is none
    unreadable: int = 0  # rows that are none

    def command(self) -> tuple[bytes, bytearray, bytes]:
        return self.head, self.payload, b"\r\n"

    def read(self, reply: object, seen: layout.Observations, values: Any, sequences: Any) -> bool:
        """Fold the observations onto the rows of the reply, which are those from before; False if it can't be read."""
        rows = self._rows(reply)
        if rows is None or self.before is None:
            return False
        state = self._state(rows, np.arange(len(rows)))
        fresh = self.offsets > self.before[self.partition]
        state.fold(self.index.astype(np.int64) - 1, fresh, seen.of(self.rows), self.rows, values, sequences)
        return True

    def tidy(self, reply: object) -> None:
        """Of an answer that nobody waits for: it has the longest rows, which are to be compacted."""
        if (rows := self._rows(reply)) is not None:
            long = np.array([number for number, row in enumerate(rows) if row], np.int64)
            self._state([rows[number] for number in long.tolist()], long)

    def applied(self) -> dict[int, float]:
        """The last offset of each partition that Redis has applied now."""
        last = {
            number: -1.0 if self.before is None else float(self.before[i]) for i, number in enumerate(self.partitions.tolist())
        }
        for place, offset in zip(self.partition.tolist(), self.offsets.tolist(), strict=True):
            number = int(self.partitions[place])
            last[number] = max(last[number], offset)
        return last

    def _rows(self, reply: object) -> list[bytes] | None:
        """The rows, once offsets and counts are noted; None if it is no answer of ours."""
        if not (isinstance(reply, list) and list(map(type, reply)) == [bytes, list, int]):
            return None
        before, rows, self.full = reply
        if len(before) != 8 * len(self.partitions) or len(rows) != len(self.kinds):
            return None
        self.before = np.frombuffer(before, "<f8")
        return list(rows)

    def _state(self, rows: Sequence[bytes], which: npt.NDArray[np.int64]) -> State:
        """What the rows of these entities of the call hold. One that can't be read is as if it were not there, and emptied."""
        kinds = self.kinds[which]
        state, broken = State.of_rows(rows, kinds), np.zeros(0, np.int64)
        if state is None:
            whole = [State.of_rows([row], kinds[i : i + 1]) is not None for i, row in enumerate(rows)]
            broken = np.flatnonzero(np.logical_not(whole))
            state = State.of_rows([row if fine else None for row, fine in zip(rows, whole, strict=True)], kinds)
            assert state is not None
            self.unreadable = len(broken)
        long = np.flatnonzero(state.tails >= layout.COMPACTED_FROM)
        if long.size or broken.size:
            news = [*state.rows(long), *[EMPTY_ROW] * len(broken)]
            changed = np.concatenate([long, broken])
            self._compact([rows[i] for i in changed.tolist()], news, which[changed])
        return state

    def _compact(self, rows: Sequence[bytes], news: Sequence[bytes], which: npt.NDArray[np.int64]) -> None:
        """These rows are to become what was just made of them, before the micro-batch's own observations."""
        parts = [struct.pack("<II", EXPIRE_S, 0)]
        for row, new in zip(rows, news, strict=True):
            parts += (struct.pack("<II", len(row), len(new)), row[:_COMPARED], row[-_COMPARED:], new)
        payload = b"".join(parts)
        head = _head(self.tag, library().function("compact"), [], self.kinds[which], self.digests[which], [], len(payload))
        self.compaction = Command(self.tag, (head, payload, b"\r\n"))


@dataclass(slots=True, eq=False)
class Observed:
    """One micro-batch of n transactions on its way to Redis: at most one call per shard."""

    transactions: int
    seen: layout.Observations
    calls: list[ShardCall]
    given_up: bool = False  # whoever waited for the answer has gone on without
    done: bool = False  # taken by Redis, or dropped
    refusals: int = 0  # how many times Redis answered with an error
    replies: Sequence[object] = ()  # once it is done: whoever has the connection sends the first of the queue, whosever it is

    def give_up(self) -> None:
        """Nobody waits for the answer any more: ask for little of it."""
        self.given_up = True
        for call in self.calls:
            call.payload[layout.QUIET] = 1

    def read(self, replies: Sequence[object]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]] | None:
        """Windows float32 (n, ENTITY_FEATURES) and sequences int64 (n, 5), from a reply to each call; None if it is none."""
        values = nothing_seen(self.transactions)
        sequences = np.zeros((self.transactions, len(ENTITIES)), np.int64)
        for call, reply in zip(self.calls, replies, strict=True):
            if not call.read(reply, self.seen, values, sequences):
                return None
        return values, sequences


def observed(events: Events, partitions: npt.NDArray[np.int64], keyspace: Keyspace) -> Observed:
    """Pack events (n,) of source partitions (n,). Raises ValueError beyond `MAX_RECORDS`."""
    if len(events) > layout.MAX_RECORDS:
        raise ValueError(f"a micro-batch of {len(events)} transactions, and a call takes {layout.MAX_RECORDS}")
    seen = layout.observations(events)
    calls = []
    for shard in _shards_of(seen.digests, keyspace.shards):
        here = np.where(seen.digests % np.uint64(keyspace.shards) == shard, seen.digests, np.uint64(0))
        kinds, digests, index = layout.number_entities(here)
        rows = np.flatnonzero(here.any(axis=1))
        numbers, partition = np.unique(partitions[rows], return_inverse=True)
        call = ShardCall(
            keyspace.tag(shard),
            b"",
            bytearray(),
            rows,
            (index[rows] + 1).astype(np.uint16),
            kinds,
            digests,
            events["offset"][rows],
            partition,
            numbers,
        )
        call.payload = _payload(call, seen, numbers)
        first = keyspace.applied(shard), keyspace.mark(shard, Part.WINDOWS)
        ours = keyspace.fingerprint.encode()
        call.head = _head(call.tag, library().function("observe"), first, kinds, digests, [ours], len(call.payload))
        calls.append(call)
    return Observed(len(events), seen, calls)


def _shards_of(digests: npt.NDArray[np.uint64], shards: int) -> list[int]:
    present = digests[digests != 0]
    if shards == 1:
        return [0] if present.size else []
    return [int(shard) for shard in np.unique(present % np.uint64(shards))]


def _payload(call: ShardCall, seen: layout.Observations, partitions: npt.NDArray[np.int64]) -> bytearray:
    """What the function is told: records, then how many observed each entity, and which."""
    rows = call.rows
    records = np.zeros(len(rows), layout.RECORD)
    tails = records["tail"]
    tails["time_ms"] = seen.time_ms[rows]
    tails["thousandths"] = seen.thousandths[rows]
    tails["small"] = seen.small[rows]
    tails["people"] = seen.people[rows]
    tails["met"] = seen.met[rows]
    records["offset"] = call.offsets
    records["partition"] = call.partition + 1
    header = np.array([(len(rows), len(partitions), EXPIRE_S, 0)], layout.PAYLOAD_HEADER)
    counts = np.bincount(call.index.ravel(), minlength=len(call.kinds) + 1)[1:]
    observed_by = layout.by_entity(call.index, counts).astype("<u2")
    return bytearray(
        b"".join(part.tobytes() for part in (header, partitions.astype("<u4"), records, counts.astype("<u2"), observed_by))
    )


def _head(
    tag: bytes,
    function: bytes,
    first: Sequence[bytes],
    kinds: npt.NDArray[np.uint8],
    digests: npt.NDArray[np.uint64],
    arguments: Sequence[bytes],
    payload_bytes: int,
) -> bytes:
    """The command up to its payload. Keys of rows all have one length, so they are written as one array."""
    key = np.frombuffer(b"$%d\r\n%s?........\r\n" % (len(tag) + 9, tag), np.uint8)
    keys = np.tile(key, (len(digests), 1))
    keys[:, -11] = np.frombuffer(layout.KEY_LETTERS, np.uint8)[kinds]
    keys[:, -10:-2] = digests.astype("<u8").view(np.uint8).reshape(-1, 8)
    named = len(first) + len(digests)
    start = [b"FCALL", function, b"%d" % named, *first]
    before, after = (b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words) for words in (start, arguments))
    return b"*%d\r\n%s%s%s$%d\r\n" % (named + len(arguments) + 4, before, keys.tobytes(), after, payload_bytes)
