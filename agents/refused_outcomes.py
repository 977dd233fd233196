"""Outcomes that are refused are kept: among the dead letters, acknowledged before their offset is done with.

They may lie twice there, after a crash between the two: partitions of outcomes have no claim, so nothing is read back.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from assay.schemas.errors import PublishError, TooLarge
from assay.schemas.limits import (
    DEAD_LETTER_REST_S,
    DEAD_LETTER_WAIT_S,
    MAX_PUBLISHED_BATCH_BYTES,
    MIN_DEAD_LETTER_BYTES,
)
from assay.schemas.refusal import Refusal, dead_letter
from assay.schemas.source import OutRecord
from assay.streams.metrics import Metrics
from assay.streams.outbox import LossyPublisher
from assay.streams.publisher import Publisher

LOG_AGAIN_S = 60.0

log = logging.getLogger("assay.learn")


class SeldomLog:
    """A warning that would come with each of very many records comes once in a while, and says how many there were."""

    def __init__(self, message: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._message, self._monotonic = message, monotonic
        self._count, self._said_at = 0, -LOG_AGAIN_S

    def add(self, count: int, last: dict[str, str]) -> None:
        """So many more; `last` describes one of them. With none, what was held back is said if it is time."""
        self._count += count
        if self._count and self._monotonic() - self._said_at >= LOG_AGAIN_S:
            log.warning(self._message, self._count, extra=last)
            self._count, self._said_at = 0, self._monotonic()


class RefusedOutcomes:
    """Writes dead letters of outcomes, through publishers of its own, which own no partition.

    There is one for each partition of dead letters that is written to, and nobody waits long for one: a partition without a
    leader holds up no other.

    Args:
        publisher: makes one, not yet started.
        topic, partitions, max_bytes: of the dead letters.
        hash_key: of the digest that stands for what is withheld.
        monotonic: seconds that never go back.
    """

    def __init__(
        self,
        publisher: Callable[[], Publisher],
        topic: str,
        partitions: int,
        max_bytes: int,
        hash_key: bytes,
        metrics: Metrics,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topic, self._partitions, self._hash_key, self._metrics = topic, partitions, hash_key, metrics
        self._max_bytes, self._monotonic = min(max_bytes, MAX_PUBLISHED_BATCH_BYTES), monotonic
        # By partition of the dead letters: its publisher, what is on its way, and when it is tried again after a failure.
        self._make, self._publishers = publisher, dict[int, LossyPublisher]()
        self._publishing: dict[int, asyncio.Task[None]] = {}
        self._again: dict[int, float] = {}
        self._kept: dict[int, int] = {}  # by partition of outcomes: the last offset whose dead letter is acknowledged
        self._refused = SeldomLog("%d outcomes were refused, and lie among the dead letters", monotonic)
        self._failed = SeldomLog("%d times dead letters of outcomes were not taken: the outcomes behind them wait", monotonic)

    async def keep(self, refusals: Sequence[Refusal]) -> set[int]:
        """Wait a moment for dead letters to be acknowledged. Returns the partitions of outcomes with some that are not yet."""
        left: dict[int, list[Refusal]] = {}
        for refusal in refusals:
            if not self._is_kept(refusal):
                left.setdefault(refusal.source.partition % self._partitions, []).append(refusal)
        started = [task for place, some in left.items() if (task := self._begin(place, some)) is not None]
        if started:
            done, _ = await asyncio.wait(started, timeout=DEAD_LETTER_WAIT_S)
            for task in done:
                task.result()
        return {each.source.partition for some in left.values() for each in some if not self._is_kept(each)}

    def _is_kept(self, refusal: Refusal) -> bool:
        return refusal.source.offset <= self._kept.get(refusal.source.partition, -1)

    def _begin(self, place: int, refusals: Sequence[Refusal]) -> "asyncio.Task[None] | None":
        """Publish them, unless others are on their way there, or it rests after a failure."""
        before = self._publishing.get(place)
        if (before is not None and not before.done()) or self._monotonic() < self._again.get(place, 0.0):
            return None
        task = self._publishing[place] = asyncio.ensure_future(self._publish(place, refusals, self._kept))
        return task

    async def _publish(self, place: int, refusals: Sequence[Refusal], kept: dict[int, int]) -> None:
        try:
            try:
                await self._send(place, [dead_letter(each, self._max_bytes, self._hash_key) for each in refusals])
                self._note(refusals, kept)
            except TooLarge:  # the topic takes less than it did
                for refusal in refusals:
                    await self._send_cut(place, refusal)
                    self._note([refusal], kept)
        except PublishError as error:
            self._again[place] = self._monotonic() + DEAD_LETTER_REST_S
            self._failed.add(1, {"source": refusals[-1].source.header().decode(), "error": str(error)})

    async def _send_cut(self, place: int, refusal: Refusal) -> None:
        """One alone, with more and more of it cut off. Raises PublishError."""
        most = self._max_bytes
        while True:
            try:
                return await self._send(place, [dead_letter(refusal, most, self._hash_key)])
            except TooLarge:
                if most == MIN_DEAD_LETTER_BYTES:
                    raise
                most = max(MIN_DEAD_LETTER_BYTES, most // 2)

    async def _send(self, place: int, letters: list[OutRecord]) -> None:
        publisher = self._publishers.setdefault(place, LossyPublisher(self._make, lambda count: None))
        await publisher.publish({(self._topic, place): letters})

    def _note(self, refusals: Sequence[Refusal], kept: dict[int, int]) -> None:
        for refusal in refusals:
            kept[refusal.source.partition] = refusal.source.offset
            self._metrics.dead_letters.labels(refusal.code).inc()
        last = refusals[-1]
        why = {"code": str(last.code), "field": last.field, "source": last.source.header().decode()}
        self._refused.add(len(refusals), why)

    def forget(self) -> None:
        """Partitions are given up: who has them next may find other records at their offsets."""
        self._kept = {}

    async def close(self) -> None:
        for task in self._publishing.values():
            task.cancel()
        await asyncio.gather(*self._publishing.values(), return_exceptions=True)
        await asyncio.gather(*(publisher.close() for publisher in self._publishers.values()))
