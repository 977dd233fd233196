"""Micro-batches in flight: begun in order, bounded in number, acknowledged in order, drained before partitions are given up."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from assay.schemas.errors import ContinuityError
from assay.schemas.source import SourceRecord
from assay.streams.ending import end_process
from assay.streams.metrics import Metrics
from assay.streams.micro_batches import MicroBatch, WaitingRecords, take
from assay.streams.settings import Settings
from assay.tables.partition_state import Earlier


class Turns:
    """One at a time, in the order of their numbers: how micro-batches that overlap keep the order of their effects.

    Whoever fails in a turn has to end the process: later numbers wait for ever.
    """

    def __init__(self) -> None:
        self._next = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def turn(self, number: int) -> AsyncIterator[None]:
        """Wait for every lower number to have had its turn. A turn that fails is the last: nothing may follow it."""
        if number != self._next:
            called = self._waiting[number] = asyncio.get_running_loop().create_future()
            await called
            del self._waiting[number]
        yield
        self._next = number + 1
        if (following := self._waiting.get(self._next)) is not None:
            following.set_result(None)


class Acknowledgements:
    """Which source offsets may be committed: those before which everything has its verdict (invariants I1, I3).

    >>> acknowledgements = Acknowledgements()
    >>> acknowledgements.begin({0: 3})
    >>> acknowledgements.open(0, 7, Earlier(offset=4, appended_ms=0))  # answered later, from the decisions topic
    >>> acknowledgements.reached(0, 10), acknowledgements.close(0, 7)
    (7, 10)
    """

    def __init__(self) -> None:
        self._reached: dict[int, int] = {}
        self._open: dict[int, dict[int, Earlier]] = defaultdict(dict)

    def open(self, partition: int, offset: int, earlier: Earlier) -> None:
        """This record's verdict will take longer than its micro-batch: it repeats an earlier one."""
        self._open[partition][offset] = earlier

    def still_open(self, partition: int) -> Mapping[int, Earlier]:
        """Those of a partition, by source offset, with what they repeat."""
        return self._open[partition]

    def close(self, partition: int, offset: int) -> int:
        """It has its verdict now. Returns what may be committed."""
        self._open[partition].pop(offset, None)
        return self._committable(partition)

    def reached(self, partition: int, offset: int) -> int:
        """Everything before `offset` has its verdict, but what is open. Returns what may be committed."""
        self._reached[partition] = offset
        return self._committable(partition)

    def begin(self, starts: Mapping[int, int]) -> None:
        """Partitions were taken over; their next source offsets. Whatever was open is read again by its new owner."""
        self._reached = dict(starts)
        self._open.clear()

    def _committable(self, partition: int) -> int:
        return min([self._reached[partition], *self._open[partition]])


class Continuity:
    """A batch of a partition begins where the last one ended, or the process ends: fetches have been lost around rebalances.

    Offsets that hold no record are no loss: each transaction of an upstream producer leaves one for its end.

    Args:
        holds_records: whether the log has records of a partition at offsets in [first, end); asked only where some are skipped.
    """

    def __init__(self, holds_records: Callable[[int, int, int], Awaitable[bool]]) -> None:
        self._holds_records = holds_records
        self._next: dict[int, int] = {}

    def begin(self, starts: Mapping[int, int]) -> None:
        """Partitions were taken over; their next source offsets."""
        self._next = dict(starts)

    async def check(self, partition: int, records: Sequence[SourceRecord]) -> None:
        """One fetch, before it waits for a micro-batch. Raises ContinuityError: nothing else would show the loss."""
        expected, first = self._next.get(partition), records[0].offset
        missing = expected is not None and first > expected and await self._holds_records(partition, expected, first)
        if expected is None or first < expected or missing:
            raise ContinuityError(
                f"partition {partition}: source records are missing or were read twice",
                expected=f"offset {expected}" if expected is not None else "no records: the partition is not ours",
                got=f"offset {first}",
                mend="restart the worker: it goes on at the committed offset",
            )
        self._next[partition] = records[-1].offset + 1


class Flow:
    """Takes micro-batches from a stream of record batches and scores a bounded number of them at once."""

    def __init__(
        self,
        score: Callable[[MicroBatch], Awaitable[None]],
        waiting: WaitingRecords,
        continuity: Continuity,
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        self._score, self._waiting, self._settings, self._metrics = score, waiting, settings, metrics
        self._in_flight: set[asyncio.Task[None]] = set()
        self._continuity = continuity
        self._numbers = count()  # of micro-batches, whatever starts `run` again

    async def run(self, stream: Any, generation: Callable[[], int]) -> None:
        """Score what a Faust stream of record batches brings, for ever. Whatever goes wrong ends the process, uncommitted."""
        pump = asyncio.ensure_future(self._pump(stream, generation))
        try:
            async for batch in take(
                self._waiting,
                max_records=self._settings.batch_transactions,
                max_bytes=self._settings.batch_bytes,
                within=self._settings.batch_age_ms / 1000,
                gather=self._settings.batch_gather_ms / 1000,
                idle=lambda: not self._in_flight,
                ready=lambda: len(self._in_flight) < self._settings.batches_in_flight,
                numbers=self._numbers,
            ):
                self._begin(batch)
                await asyncio.sleep(0)  # the first steps of the task are synchronous: they fold in the order of batches
        except Exception as error:
            end_process("the flow stopped", error)
        finally:
            pump.cancel()

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not (self._in_flight or self._waiting.count)

    async def drain(self) -> None:
        """Return once nothing is in flight. New micro-batches don't begin meanwhile, since what waits has been closed."""
        while self._in_flight:
            await asyncio.wait(self._in_flight)

    async def _pump(self, stream: Any, generation: Callable[[], int]) -> None:
        try:
            async for event in stream.events():
                await self._take_in(event.message, generation)
        except Exception as error:
            end_process("the stream of transactions broke", error)

    async def _take_in(self, message: Any, generation: Callable[[], int]) -> None:
        """A fetch of this generation joins what waits. `waiting` is closed from a revocation to the next take-over."""
        if message.generation_id != generation() or not self._waiting.is_open:
            return
        await self._continuity.check(message.partition, message.value)
        if message.generation_id == generation():
            self._waiting.add(message.partition, message.value)

    def _begin(self, batch: MicroBatch) -> None:
        task = asyncio.ensure_future(self._score(batch))
        self._in_flight.add(task)
        task.add_done_callback(self._ended)
        self._metrics.batches.labels(batch.release).inc()
        self._metrics.in_flight.set(len(self._in_flight))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        self._metrics.in_flight.set(len(self._in_flight))
        self._waiting.changed.set()
        if task.cancelled():
            end_process("a micro-batch was cancelled")
        if (error := task.exception()) is not None:
            end_process("a micro-batch failed", error)
