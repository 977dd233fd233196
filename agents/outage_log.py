"""Tells whoever reads the log when decisions begin to be made without the entities, and when that has ended."""

import logging
from collections.abc import Callable

log = logging.getLogger("assay.worker")


class OutageLog:
    """Call `note` for each micro-batch.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: float | None = None
        self._decisions = 0

    def note(self, decisions: int, reason: str) -> None:
        """So many were decided without the entities, for this reason; with them where the reason is empty."""
        if reason:
            if self._since is None:
                self._since, self._decisions = self._clock(), 0
                log.warning("Redis does not answer in time (%s): deciding without the entities", reason)
            self._decisions += decisions
        elif self._since is not None:
            outage_s, self._since = self._clock() - self._since, None
            log.info("deciding with the entities again, after %.1f s and %d decisions without", outage_s, self._decisions)
