"""Repeats whose decision is no longer in memory: found in the decisions topic, without holding up the micro-batches.

The source of such a repeat stays open, so that nothing after it is committed before it has its verdict. What is still being
looked for when partitions are given up is left: it is not committed, so the next owner reads it again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

import orjson
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from assay.agents.answers import Again, Answers, Prepared, Repeat
from assay.agents.flow import Acknowledgements
from assay.agents.ports import FindsDecisions
from assay.schemas import limits
from assay.schemas.decode import Request
from assay.schemas.errors import ServiceError
from assay.streams.ending import end_process

RETRY_PAUSE_S = 1.0
MAX_SPAN_MS = 60_000  # of the append times that one look-up reads over; where it takes too long, half of that, and so on

log = logging.getLogger("assay.score")


class Repeats:
    """Looks decisions up and gives them again: one task for each partition, which takes all that waits.

    Args:
        commit: called with (partition, next offset) when a source that was open has its verdict.
        judge_anew: judges a transaction whose decision is beyond the horizon, without folding it again; returns the decision.
    """

    def __init__(
        self,
        reader: FindsDecisions,
        answers: Answers,
        acknowledgements: Acknowledgements,
        commit: Callable[[int, int], None],
        judge_anew: Callable[[Request], bytes],
    ) -> None:
        self._reader, self._answers, self._judge_anew = reader, answers, judge_anew
        self._acknowledgements, self._commit = acknowledgements, commit
        self._waiting: dict[int, list[Repeat]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._reading: set[asyncio.Task[dict[int, ConsumerRecord]]] = set()
        self._count = 0
        self._stopped = False
        self._room = asyncio.Event()
        self._room.set()

    def begin(self) -> None:
        """Partitions were taken over."""
        self._stopped = False

    async def look_up(self, repeats: Sequence[Repeat]) -> None:
        """Take over the answers of these, and open their sources. Waits only while very many wait."""
        for repeat in repeats:
            source = repeat.request.source
            self._acknowledgements.open(source.partition, source.offset, repeat.earlier)
        if not self._stopped:
            await self._room.wait()
        if self._stopped:  # they stay open, and are read again by the next owner
            return
        for repeat in repeats:
            self._waiting.setdefault(repeat.request.source.partition, []).append(repeat)
        self._change(len(repeats))
        for partition in {repeat.request.source.partition for repeat in repeats} - self._tasks.keys():
            self._tasks[partition] = asyncio.ensure_future(self._run(partition))

    async def abandon(self) -> None:
        """Stop looking, since partitions are given up; answers that are being published still end."""
        self._stopped = True
        self._waiting.clear()
        self._room.set()
        for reading in self._reading:
            reading.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())
        self._count = 0
        self._room.set()

    async def _run(self, partition: int) -> None:
        try:
            span_ms = MAX_SPAN_MS
            while repeats := self._waiting.pop(partition, []):
                waiting = sorted(repeats, key=lambda repeat: repeat.earlier.appended_ms)
                while waiting and not self._stopped:
                    until_ms = waiting[0].earlier.appended_ms + span_ms
                    near = [repeat for repeat in waiting if repeat.earlier.appended_ms <= until_ms]
                    try:
                        found = await self._read(partition, near)
                    except TimeoutError:
                        span_ms //= 2
                        continue
                    if found is not None:
                        await self._give_again(partition, near, found)
                        self._change(-len(near))
                    waiting = waiting[len(near) :]
        except Exception as error:
            end_process("repeated decisions could not be published", error)
        finally:
            del self._tasks[partition]

    async def _read(self, partition: int, repeats: Sequence[Repeat]) -> dict[int, ConsumerRecord] | None:
        """What was decided, by source offset; None if it was abandoned. Tries again for as long as Kafka does not answer.

        Raises TimeoutError where several may be too many at once.
        """
        wanted = {repeat.earlier.offset for repeat in repeats}
        since_ms = min(repeat.earlier.appended_ms for repeat in repeats)
        while not self._stopped:
            reading = asyncio.ensure_future(self._reader.read(partition, wanted, since_ms))
            self._reading.add(reading)
            await asyncio.wait([reading])
            self._reading.discard(reading)
            if reading.cancelled():
                return None
            error = reading.exception()
            if error is None:
                return reading.result()
            if not isinstance(error, ServiceError | KafkaError | TimeoutError | OSError):
                raise error
            log.warning("decisions of partition %d could not be looked up, trying again: %r", partition, error)
            await asyncio.sleep(RETRY_PAUSE_S)
            if isinstance(error, TimeoutError) and len(repeats) > 1:
                raise error
        return None

    async def _give_again(self, partition: int, repeats: Sequence[Repeat], found: dict[int, ConsumerRecord]) -> None:
        prepared = Prepared()
        for request, earlier in repeats:
            record = found.get(earlier.offset)
            if record is not None and record.value is not None and _is_of(request, record.value):
                first = request.source._replace(offset=earlier.offset)
                self._answers.answer(prepared, request, record.value, Again(first, published=first == request.source))
            elif (known := self._answers.known(request)) is not None:  # judged anew a moment ago
                self._answers.answer(prepared, request, known.value, Again(known.source))
            else:
                value = self._judge_anew(request)
                self._answers.remember(request, value)
                self._answers.answer(prepared, request, value, Again(beyond_horizon=True))
        await self._answers.publish(prepared)
        for repeat in repeats:
            offset = repeat.request.source.offset
            self._commit(partition, self._acknowledgements.close(partition, offset))

    def _change(self, by: int) -> None:
        self._count = max(0, self._count + by)
        if self._count < limits.MAX_WAITING_REPEATS:
            self._room.set()
        else:
            self._room.clear()


def _is_of(request: Request, decision: bytes) -> bool:
    """Whether a decision is of this transaction: identity is compared in full, never by digest."""
    found, asked = orjson.loads(decision), request.transaction
    return bool(found["transaction_id"] == asked.transaction_id and found["user_id"] == asked.user_id)
