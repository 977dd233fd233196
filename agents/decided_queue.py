"""Decided transactions on their way to the index: in the order of their decisions, bounded, off the answer path."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from assay.agents.decided import DecidedBatch
from assay.schemas.limits import MAX_REFUSALS, MAX_UNINDEXED_DECISIONS
from assay.tables.learned_rows import LearnedRows, Sequences
from assay.tables.learning import own_verdicts
from assay.tables.redis_link import OUTAGES

log = logging.getLogger("assay.learn")


class DecidedQueue:
    """Those not kept yet; of very many the oldest are dropped.

    Args:
        kept: called with a batch that was kept, and the sequence numbers of the risk rows after our own declines in it.
        dropped: called with a number of transactions that their outcomes will not find.
    """

    def __init__(
        self, rows: LearnedRows, kept: Callable[[DecidedBatch, Sequences], None], dropped: Callable[[int], None]
    ) -> None:
        self._rows, self._kept, self._dropped = rows, kept, dropped
        self._batches: deque[DecidedBatch] = deque()
        self._count = 0  # transactions in there
        self.empty = asyncio.Event()
        self.empty.set()

    def add(self, batches: Sequence[DecidedBatch]) -> None:
        """Some more."""
        self._batches += batches
        self._count += sum(map(len, batches))
        while self._count > MAX_UNINDEXED_DECISIONS:
            self._drop()
        if self._batches:
            self.empty.clear()

    async def keep(self) -> None:
        """Keep all of them, one batch after another. Raises whatever stops that, and then the rest is still there."""
        while self._batches:
            batch = self._batches[0]
            try:
                sequences = await self._rows.keep(batch.rows, own_verdicts(batch.rows))
            except Exception as error:
                # From within a function, or a mistake of ours: again each time; other outages pass.
                batch.refusals += not isinstance(error, OUTAGES) or "script:" in str(error)
                if batch.refusals < MAX_REFUSALS:
                    raise
                log.error("transactions can't be kept: %r", error)
                self._leave(batch)
                self._dropped(len(batch))
            else:
                self._leave(batch)  # first: they are kept, whatever becomes of the evidence
                self._kept(batch, sequences)

    def drop(self) -> None:
        """Nothing can be kept any more."""
        while self._batches:
            self._drop()

    def _leave(self, batch: DecidedBatch) -> None:
        if self._batches and self._batches[0] is batch:  # else it was dropped while it was on its way
            self._batches.popleft()
            self._count -= len(batch)
        if not self._batches:
            self.empty.set()

    def _drop(self) -> None:
        batch = self._batches[0]
        self._leave(batch)
        self._dropped(len(batch))
