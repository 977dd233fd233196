"""`take`: Faust's word for "so many, or as many as came within", for record batches.

Counted in transactions, merged across the partitions of one worker, bounded in bytes. A micro-batch is released by size, by
bytes, by the age of its oldest record, or because the worker is idle. Merging is what makes it fast: when every micro-batch
holds one record, 240 transactions a second are the ceiling, since each pays for its own acknowledged sends.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from assay.schemas import limits
from assay.schemas.source import SourceRecord


class Release(StrEnum):
    """Why a micro-batch was released."""

    SIZE = "size"
    BYTES = "bytes"
    AGE = "age"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Records to be scored together: per partition in order, partitions one after another."""

    number: int
    parts: dict[int, list[SourceRecord]]
    release: Release

    @property
    def records(self) -> list[SourceRecord]:
        return [record for part in self.parts.values() for record in part]


@dataclass(slots=True)
class _Waiting:
    records: deque[SourceRecord]
    since: deque[tuple[int, float]]  # (offset of the last record of a fetch, when it came)


class WaitingRecords:
    """What was fetched and not yet taken, per partition. The fetcher waits while it is `full`.

    Args:
        clock: monotonic seconds.
        max_records, max_bytes: where back-pressure begins; one fetch may go past them.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        max_records: int = limits.MAX_WAITING_RECORDS,
        max_bytes: int = limits.MAX_WAITING_BYTES,
    ) -> None:
        self.clock, self._max_records, self._max_bytes = clock, max_records, max_bytes
        self._waiting: dict[int, _Waiting] = {}
        self._coming: dict[int, deque[tuple[int, int]]] = {}  # by partition: (records, bytes) of fetches handed over
        self.is_open = False
        self.count = self.bytes = 0
        self.changed = asyncio.Event()  # something came, or the flow can take more

    @property
    def full(self) -> bool:
        coming = [size for sizes in self._coming.values() for size in sizes]
        count, size = (sum(each) for each in zip(*coming, strict=True)) if coming else (0, 0)
        return self.count + count >= self._max_records or self.bytes + size >= self._max_bytes

    def expect(self, partition: int, records: Sequence[SourceRecord]) -> None:
        """A fetch that will be added: it counts from now on, however long it is on its way."""
        if self.is_open:
            self._coming.setdefault(partition, deque()).append((len(records), sum(map(size_of, records))))

    def add(self, partition: int, records: Sequence[SourceRecord]) -> None:
        """A fetch, in the order in which those of its partition were expected."""
        if not records or not self.is_open:
            return
        coming = self._coming.get(partition)
        count, size = coming.popleft() if coming else (len(records), sum(map(size_of, records)))
        waiting = self._waiting.setdefault(partition, _Waiting(deque(), deque()))
        waiting.records.extend(records)
        waiting.since.append((records[-1].offset, self.clock()))
        self.count += count
        self.bytes += size
        self.changed.set()

    def open(self) -> None:
        """Partitions were taken over: records may come."""
        self.is_open = True

    def close(self) -> None:
        """Forget all of it and take nothing more: the partitions are given up, and whoever gets them reads it again."""
        self.is_open = False
        self._waiting.clear()
        self._coming.clear()
        self.count = self.bytes = 0

    @property
    def oldest(self) -> float | None:
        """When the record that has waited longest came; None where nothing waits."""
        return min((waiting.since[0][1] for waiting in self._waiting.values() if waiting.since), default=None)

    def take(self, max_records: int, max_bytes: int) -> tuple[dict[int, list[SourceRecord]], bool]:
        """Up to so many records, the longest waiting partition first; and whether the bytes were what bounded it.

        A record larger than `max_bytes` is taken alone: nothing is ever stuck.
        """
        parts: dict[int, list[SourceRecord]] = {}
        room, space, bounded = max_records, max_bytes, False
        for partition, waiting in sorted(self._waiting.items(), key=lambda item: item[1].since[0][1] if item[1].since else 0):
            part: list[SourceRecord] = []
            while waiting.records and room and not bounded:
                size = size_of(waiting.records[0])
                if size > space and (part or parts):
                    bounded = True
                    break
                part.append(waiting.records.popleft())
                room, space = room - 1, space - size
            if part:
                parts[partition] = part
                self.count -= len(part)
                while waiting.since and waiting.since[0][0] <= part[-1].offset:
                    waiting.since.popleft()
        self.bytes -= max_bytes - space
        return parts, bounded


def size_of(record: SourceRecord) -> int:
    """Bytes of key, value and headers."""
    size = len(record.value or b"") + len(record.key or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size


async def take(
    waiting: WaitingRecords,
    *,
    max_records: int,
    max_bytes: int,
    within: float,
    gather: float = 0.0,
    idle: Callable[[], bool],
    ready: Callable[[], bool] = lambda: True,
    numbers: Iterator[int],
) -> AsyncIterator[MicroBatch]:
    """Micro-batches of what waits, for ever.

    Args:
        within: seconds that the oldest record waits at most.
        gather: seconds that it waits even where the worker is idle, so that fetches of several partitions come together.
        idle: whether the worker has nothing in flight, so that waiting would win nothing.
        ready: whether another micro-batch may begin. Set `waiting.changed` when either may have changed.
        numbers: what micro-batches are numbered with, in the order in which they are released.
    """
    while True:
        oldest = waiting.oldest
        if oldest is None or not ready():
            await _change(waiting.changed, timeout=None)
            continue
        remaining = oldest + within - waiting.clock()
        if waiting.count >= max_records:
            release = Release.SIZE
        elif waiting.bytes >= max_bytes:
            release = Release.BYTES
        elif remaining <= 0:
            release = Release.AGE
        elif idle() and remaining <= within - gather:
            release = Release.IDLE
        else:
            await _change(waiting.changed, timeout=remaining - (within - gather) if idle() else remaining)
            continue
        parts, bounded = waiting.take(max_records, max_bytes)
        yield MicroBatch(next(numbers), parts, Release.BYTES if bounded else release)


async def _change(changed: asyncio.Event, timeout: float | None) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(changed.wait(), timeout)
    changed.clear()
