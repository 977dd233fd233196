"""Outcomes that are refused are kept: among the dead letters, acknowledged before their offset is done with.

They may lie twice there, after a crash between the two: partitions of outcomes have no claim, so nothing is read back.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from assay.schemas.errors import PublishError, TooLarge
from assay.schemas.limits import MAX_PUBLISHED_BATCH_BYTES
from assay.schemas.refusal import Refusal, dead_letter
from assay.schemas.source import OutRecord
from assay.streams.metrics import Metrics
from assay.streams.outbox import LossyPublisher
from assay.streams.publisher import Publisher

LOG_AGAIN_S = 60.0
REST_S = 1.0  # until dead letters that were not taken are tried again
MIN_DEAD_LETTER_BYTES = 2_048  # what says why takes less

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

    There is one for each partition of dead letters that is written to, so that one without a leader holds up no other.

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
        self._monotonic, self._again = monotonic, dict[int, float]()  # when a partition that failed is tried again
        self._make, self._publishers = publisher, dict[int, LossyPublisher]()
        self._topic, self._partitions, self._hash_key, self._metrics = topic, partitions, hash_key, metrics
        self._max_bytes = min(max_bytes, MAX_PUBLISHED_BATCH_BYTES)
        self._kept: dict[int, int] = {}  # by partition of outcomes: the last offset whose dead letter is acknowledged
        self._refused = SeldomLog("%d outcomes were refused, and lie among the dead letters")
        self._failed = SeldomLog("%d times the dead letters of a partition of outcomes were not taken: its outcomes wait")

    async def keep(self, refusals: Sequence[Refusal]) -> set[int]:
        """Return once each is acknowledged or has failed: the partitions of outcomes with some that are to be tried again."""
        of_partition: dict[int, list[Refusal]] = {}
        for refusal in refusals:
            if refusal.source.offset > self._kept.get(refusal.source.partition, -1):
                of_partition.setdefault(refusal.source.partition, []).append(refusal)
        kept = await asyncio.gather(*(self._keep(partition, some) for partition, some in of_partition.items()))
        return {partition for partition, done in zip(of_partition, kept, strict=True) if not done}

    async def _keep(self, partition: int, refusals: Sequence[Refusal]) -> bool:
        letters: list[OutRecord] = [dead_letter(refusal, self._max_bytes, self._hash_key) for refusal in refusals]
        if self._monotonic() < self._again.get(partition, 0.0):
            return False
        place, source = partition % self._partitions, {"source": refusals[-1].source.header().decode()}
        publisher = self._publishers.setdefault(place, LossyPublisher(self._make, lambda count: None))
        try:
            await publisher.publish({(self._topic, place): letters})
        except PublishError as error:
            if isinstance(error, TooLarge):  # the topic takes less than it did: more is cut off the next time
                self._max_bytes = max(MIN_DEAD_LETTER_BYTES, self._max_bytes // 2)
            self._again[partition] = self._monotonic() + REST_S
            self._failed.add(1, source | {"error": str(error)})
            return False
        self._kept[partition] = refusals[-1].source.offset
        for refusal in refusals:
            self._metrics.dead_letters.labels(refusal.code).inc()
        self._refused.add(len(refusals), source | {"code": str(refusals[-1].code), "field": refusals[-1].field})
        return True

    def forget(self) -> None:
        """Partitions are given up: who has them next may find other records at their offsets."""
        self._kept.clear()

    async def close(self) -> None:
        await asyncio.gather(*(publisher.close() for publisher in self._publishers.values()))
