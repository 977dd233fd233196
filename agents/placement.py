"""Sees transactions that lie on another partition than their user's, counts them, and says so now and then.

A user's profile is kept for each partition apart, so what lies elsewhere is judged without most of what is known of its user.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from assay.schemas.decode import Request
from assay.streams.metrics import Metrics
from assay.streams.partitioning import kind_of, partitions_of_keys

EVERY_S = 60.0

log = logging.getLogger("assay.score")


class Placement:
    """Call `note` for each micro-batch.

    Args:
        partitions: of the transactions topic.
        clock: monotonic seconds.
    """

    def __init__(self, partitions: int, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._partitions, self._metrics, self._clock = partitions, metrics, clock
        self._untold: Counter[str] = Counter()
        self._seen, self._told_at = 0, -EVERY_S

    def note(self, requests: Sequence[Request]) -> None:
        """These were read: which of them lie elsewhere?"""
        self._seen += len(requests)
        users = [request.user for request in requests]
        own = [request.source.partition for request in requests]
        for at in np.flatnonzero(partitions_of_keys(users, self._partitions) != own).tolist():
            self._count(requests[at].key, users[at])
        now = self._clock()
        if self._untold and now - self._told_at >= EVERY_S:
            log.warning(
                "%d of %d transactions lie on another partition than their user's (%s): profiles are split. Producers: key = "
                "user_id, partitioner murmur2; or set ASSAY_REKEY",
                self._untold.total(), self._seen, ", ".join(f"{kind} {n}" for kind, n in sorted(self._untold.items())),
            )  # fmt: skip
            self._untold.clear()
            self._seen, self._told_at = 0, now

    def _count(self, key: bytes, user: bytes) -> None:
        kind = kind_of(key, user)
        self._metrics.misplaced.labels(kind).inc()
        self._untold[kind] += 1
