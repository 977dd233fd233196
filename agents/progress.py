"""Health by progress: a worker is alive while each of its partitions moves, or has nothing to do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

STALLED_AFTER_S = 30.0
SILENT_AFTER_S = 5.0
NO_ASSIGNMENT_S = 180.0  # a group may rebalance for a minute, and then again


@dataclass(slots=True)
class _Seen:
    next_offset: int
    since: float


class Progress:
    """Judges by the next offset of each assigned partition. The process being up says nothing: consumers stop silently.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[int, _Seen] = {}
        self._recovery = _Seen(-1, clock())
        self._unknown_since: float | None = None  # Kafka has not answered since
        self.scoring = False  # taken over, and not given up
        self.why = "starting"

    def taken_over(self, starts: Mapping[int, int]) -> None:
        """Recovery is done: these partitions go on at these source offsets."""
        now = self._clock()
        self._seen = {partition: _Seen(offset, now) for partition, offset in starts.items()}
        self.scoring, self.why = True, ""

    def given_up(self, why: str) -> None:
        self.scoring, self.why = False, why
        self._recovery = _Seen(-1, self._clock())

    def advanced(self, partition: int, next_offset: int) -> None:
        if (seen := self._seen.get(partition)) is not None and next_offset > seen.next_offset:
            seen.next_offset, seen.since = next_offset, self._clock()

    def next_offset(self, partition: int) -> int:
        """Everything before it has its verdict; 0 where the partition is not known."""
        seen = self._seen.get(partition)
        return seen.next_offset if seen is not None else 0

    def idle(self, partition: int) -> None:
        """Everything that was appended has its verdict."""
        if (seen := self._seen.get(partition)) is not None:
            seen.since = self._clock()

    def recovering(self, remaining: int) -> None:
        """Changelog records still to be read; fewer than before is progress."""
        if remaining != self._recovery.next_offset:
            self._recovery = _Seen(remaining, self._clock())

    def unknown(self) -> bool:
        """Kafka did not say how far its log is. Returns whether that is new."""
        new = self._unknown_since is None
        if new:
            self._unknown_since = self._clock()
        return new

    def known(self) -> float | None:
        """It did; after how many seconds in which it did not, if there were any. Those are held against no partition."""
        if self._unknown_since is None:
            return None
        now = self._clock()
        silent_s, self._unknown_since = now - self._unknown_since, None
        for seen in (*self._seen.values(), self._recovery):
            seen.since = now
        return silent_s

    def ready(self) -> str:
        """Why it does not score; empty if it does."""
        if self._unknown_since is not None and (silent := self._clock() - self._unknown_since) > SILENT_AFTER_S:
            return f"not scoring: Kafka has not answered for {silent:.0f} s"
        return "" if self.scoring else f"not scoring: {self.why}"

    def live(self) -> str:
        """What has stalled; empty if nothing has."""
        now = self._clock()
        if self._unknown_since is not None:
            return ""  # it is Kafka that does not answer: another worker in our place could do no more
        if not self.scoring:
            stuck = now - self._recovery.since
            # Without records to recover it waits for the group, which takes as long as its slowest member.
            limit = STALLED_AFTER_S if self._recovery.next_offset > 0 else NO_ASSIGNMENT_S
            return f"{self.why}, without progress for {stuck:.0f} s" if stuck > limit else ""
        stalled = [
            f"partition {partition} waits at offset {seen.next_offset} for {now - seen.since:.0f} s"
            for partition, seen in self._seen.items()
            if now - seen.since > STALLED_AFTER_S
        ]
        return "; ".join(stalled)
