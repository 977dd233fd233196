"""Repeats whose decision is no longer in memory: found in the decisions topic, without holding up the micro-batches.

The source of such a repeat stays open, so that nothing after it is committed before it has its verdict.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import orjson

from assay.agents.answers import Again, Answers, Prepared, Repeat
from assay.schemas import limits
from assay.schemas.decode import Request
from assay.schemas.errors import ServiceError
from assay.streams.decision_reader import DecisionReader

JudgeAnew = Callable[[Request], bytes]


class Repeats:
    """Looks decisions up and gives them again.

    Args:
        later: takes work that outlives its micro-batch.
        opened, answered: called with (partition, offset) of a source when its look-up begins and when it has its verdict.
        judge_anew: judges a transaction whose decision is beyond the horizon, without folding it again.
    """

    def __init__(
        self,
        reader: DecisionReader,
        later: Callable[[Coroutine[Any, Any, None]], None],
        opened: Callable[[int, int], None],
        answered: Callable[[int, int], None],
        judge_anew: JudgeAnew,
    ) -> None:
        self._reader, self._later, self._opened, self._answered = reader, later, opened, answered
        self._judge_anew = judge_anew
        self._room = asyncio.Semaphore(limits.MAX_LOOKUPS_IN_FLIGHT)
        self.answers: Answers

    async def look_up(self, repeats: Sequence[Repeat]) -> None:
        """Begin the look-ups of one micro-batch, one for each partition; waits while too many are under way."""
        parts: dict[int, list[Repeat]] = {}
        for repeat in repeats:
            source = repeat.request.source
            self._opened(source.partition, source.offset)
            parts.setdefault(source.partition, []).append(repeat)
        for partition, part in parts.items():
            await self._room.acquire()
            self._later(self._give_again(partition, part))

    async def _give_again(self, partition: int, repeats: Sequence[Repeat]) -> None:
        wanted = {repeat.earlier.offset for repeat in repeats}
        try:
            found = await self._reader.read(partition, wanted, min(repeat.earlier.appended_ms for repeat in repeats))
        except TimeoutError as error:
            raise ServiceError(
                f"partition {partition}: decisions of {len(wanted)} earlier transactions could not be looked up in time",
                mend="see that Kafka answers; the worker goes on at these transactions when it is restarted",
            ) from error
        finally:
            self._room.release()
        prepared = Prepared()
        for request, earlier in repeats:
            record = found.get(earlier.offset)
            if record is not None and record.value is not None and _is_of(request, record.value):
                first = request.source._replace(offset=earlier.offset)
                self.answers.answer(prepared, request, record.value, Again(first, published=first == request.source))
            else:
                self.answers.answer(prepared, request, self._judge_anew(request), Again(beyond_horizon=True))
        await self.answers.publish(prepared)
        for repeat in repeats:
            self._answered(partition, repeat.request.source.offset)


def _is_of(request: Request, decision: bytes) -> bool:
    """Whether a decision is of this transaction: identity is compared in full, never by digest."""
    found, asked = orjson.loads(decision), request.transaction
    return bool(found["transaction_id"] == asked.transaction_id and found["user_id"] == asked.user_id)
