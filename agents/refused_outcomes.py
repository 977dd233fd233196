"""Outcomes that are refused are kept: among the dead letters, acknowledged before their offset is done with.

They may lie twice there, after a crash between the two: partitions of outcomes have no claim, so nothing is read back.
"""

import logging
import time
from collections.abc import Callable, Sequence

from assay.schemas.limits import MAX_PUBLISHED_BATCH_BYTES
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
    """Writes dead letters of outcomes, through a publisher of its own, which owns no partition.

    Args:
        publisher: makes one, not yet started.
        topic, partitions, max_bytes: of the dead letters.
        hash_key: of the digest that stands for what is withheld.
    """

    def __init__(
        self,
        publisher: Callable[[], Publisher],
        topic: str,
        partitions: int,
        max_bytes: int,
        hash_key: bytes,
        metrics: Metrics,
    ) -> None:
        self._publisher = LossyPublisher(publisher, lambda count: None)
        self._topic, self._partitions, self._hash_key, self._metrics = topic, partitions, hash_key, metrics
        self._max_bytes = min(max_bytes, MAX_PUBLISHED_BATCH_BYTES)
        self._log = SeldomLog("%d outcomes were refused, and lie among the dead letters")

    async def keep(self, refusals: Sequence[Refusal]) -> None:
        """Return once all are acknowledged. Raises PublishError: nothing is done with, the caller tries again."""
        batches: dict[tuple[str, int], list[OutRecord]] = {}
        for refusal in refusals:
            letter = dead_letter(refusal, self._max_bytes, self._hash_key)
            batches.setdefault((self._topic, refusal.source.partition % self._partitions), []).append(letter)
        await self._publisher.publish(batches)
        for refusal in refusals:
            self._metrics.dead_letters.labels(refusal.code).inc()
        last = refusals[-1]
        why = {"code": str(last.code), "field": last.field, "source": last.source.header().decode()}
        self._log.add(len(refusals), why)

    async def close(self) -> None:
        await self._publisher.close()
