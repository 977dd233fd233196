"""Outcomes that were read and are not yet applied, by partition and in order, and which of them are to be waited for."""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import islice

from faust.types import TP

from assay.schemas.limits import MAX_WAITING_OUTCOMES
from assay.schemas.outcome import Outcome, outcome_of
from assay.schemas.refusal import Refusal
from assay.schemas.source import SourceRecord

Said = Outcome | Refusal | None
"""What a record says, or why it is refused; None for a tombstone."""


class Waiting:
    """One record: where it lies, when it was appended (epoch, seconds), and what it says, read when it is asked for."""

    __slots__ = ("_record", "_said", "appended_s", "offset", "tp")

    def __init__(self, tp: TP, record: SourceRecord) -> None:
        self.tp, self.offset, self.appended_s = tp, record.offset, record.timestamp / 1000
        self._record: SourceRecord | None = record
        self._said: Said = None

    @property
    def said(self) -> Said:
        if self._record is not None:
            self._said, self._record = outcome_of(self._record), None
        return self._said

    @property
    def status(self) -> str:
        """What it is counted as; "" for a tombstone."""
        said = self.said
        return "" if said is None else "invalid" if isinstance(said, Refusal) else said.status.value


class WaitingOutcomes:
    """Those of all partitions. No more are fetched while it is `full`; a fetch may go past that. Clocks as in `Learner`.

    patience: seconds from an outcome's append in which its transaction may still be kept.
    """

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float], patience: float) -> None:
        self._clock, self._monotonic, self._patience_s = clock, monotonic, patience
        self._partitions: dict[TP, deque[Waiting]] = {}
        self._patience: dict[TP, tuple[int, float]] = {}  # (offset, until): the first that is waited for
        self._renewed_at = monotonic()
        self._count = 0

    @property
    def full(self) -> bool:
        return self._count >= MAX_WAITING_OUTCOMES

    def renewed(self) -> None:
        """Redis has just come back, or partitions have changed hands: transactions of meanwhile are on their way to it."""
        self._renewed_at = self._monotonic()

    def add(self, tp: TP, records: Sequence[SourceRecord]) -> None:
        """A fetch of a partition, behind what is there."""
        self._partitions.setdefault(tp, deque()).extend(Waiting(tp, record) for record in records)
        self._count += len(records)

    def next(self, most: int, held: Collection[TP]) -> list[Waiting]:
        """At most so many, those of a partition in their order; none of the partitions that are held.

        The partition that something was finished of longest ago comes first.
        """
        taken: list[Waiting] = []
        for tp, queue in self._partitions.items():
            if tp not in held:
                taken += islice(queue, most - len(taken))
        return taken

    def ready(self, batch: Sequence[Waiting], missing: Collection[Waiting]) -> tuple[list[Waiting], set[TP]]:
        """What may be finished of a batch: in each partition, what is before the first missing one that may still be found.

        Returns it, and the partitions in which something is left.
        """
        ready, held = [], set[TP]()
        for each in batch:
            if each.tp not in held and each in missing and self._may_be_found(each):
                held.add(each.tp)
            if each.tp not in held:
                ready.append(each)
        return ready, held

    def done(self, ready: Sequence[Waiting]) -> dict[TP, int]:
        """They are finished. Returns the next offset of each partition, but of those given up meanwhile."""
        reached: dict[TP, int] = {}
        for waiting in ready:
            queue = self._partitions.get(waiting.tp)
            if queue and queue[0] is waiting:
                queue.popleft()
                self._count -= 1
                reached[waiting.tp] = waiting.offset + 1
        for tp in reached:  # not already when they are taken: one that can't be applied stays first until it is left out
            self._partitions[tp] = self._partitions.pop(tp)
        return reached

    def clear(self) -> None:
        """Partitions are given up: what waits is read again by its next owner."""
        self._partitions.clear()
        self._patience.clear()
        self._count = 0

    def age_s(self) -> float:
        """Of the oldest one: seconds since it was appended; 0 where none waits."""
        oldest = min((queue[0].appended_s for queue in self._partitions.values() if queue), default=None)
        return 0.0 if oldest is None else max(0.0, self._clock() - oldest)

    def _may_be_found(self, waiting: Waiting) -> bool:
        """Whether its transaction may be about to be kept: it is young, or transactions had to wait until a moment ago."""
        now = self._monotonic()
        offset, until = self._patience.get(waiting.tp, (-1, 0.0))
        if offset != waiting.offset:
            age_s = max(0.0, self._clock() - waiting.appended_s)  # never more patience for one from the future
            until = now + self._patience_s - age_s
            self._patience[waiting.tp] = waiting.offset, until
        return now < max(until, self._renewed_at + self._patience_s)
