"""Tells whoever reads the log how far the profiles have been read back, every few seconds and at the end."""

import logging
from collections.abc import Callable

EVERY_S = 3.0

log = logging.getLogger("assay.worker")


class RecoveryLog:
    """Call `remaining` about every second.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._first, self._began, self._latest, self._said = 0, 0.0, 0, 0.0

    def remaining(self, records: int) -> None:
        """So many records of the changelog are still to be read; none: there is nothing to recover, or no longer."""
        now = self._clock()
        if records <= 0:
            if self._latest > 0:
                log.info("profiles are read back: %s records in about %.0f s", f"{self._first:,}", now - self._began)
        elif records > self._latest:  # it has just begun, or partitions have moved
            self._first, self._began, self._said = records, now, now
            log.info("reading profiles back: %s records of the changelog", f"{records:,}")
        elif now - self._said >= EVERY_S:
            self._said = now
            per_s = (self._first - records) / (now - self._began)
            left = f"about {records / per_s:.0f} s" if per_s else "and nothing comes"
            log.info("reading profiles back: %s records remain, %s a second, %s", f"{records:,}", f"{per_s:,.0f}", left)
        self._latest = max(records, 0)
