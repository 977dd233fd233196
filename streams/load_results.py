"""What an open-loop load run has seen: each transaction's fate, and the latencies of all of them. No I/O, no clock."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

DEADLINE_S = 0.2  # of the caller: what `within_deadline` counts
LATEST_DECLINES = 16

_DECLINED = b'"action":"decline"'
_REVIEWED = b'"action":"review"'
_MISSED = b'"deadline_missed":true'
_REFUSED = b'"tier":"refused"'


@dataclass(frozen=True)
class Snapshot:
    """The run so far. Latencies in milliseconds, from the intended time of sending to the reply's arrival."""

    elapsed_s: float
    sent: int
    answered: int
    rate: float  # answers a second since the last snapshot
    p50_ms: float | None  # of those answers
    p99_ms: float | None
    approve: int
    review: int
    decline: int
    refused: int
    duplicate: int
    contradictory: int
    declines: list[dict[str, Any]]  # the latest, as decoded decisions


class Results:
    """Fates by number of the transaction (0 .. count-1).

    Args:
        count: of transactions in the run.
        keep_replies: remember the bytes of every first reply, for what is done with them afterwards.
    """

    def __init__(self, count: int, *, keep_replies: bool = False) -> None:
        self.latency_s: npt.NDArray[np.float64] = np.full(count, np.nan)
        self.replies: list[bytes | None] | None = [None] * count if keep_replies else None
        self.sent = self.answered = self.duplicate = self.foreign = 0
        self.review = self.decline = self.refused = self.deadline_missed = 0
        self.undecided = count  # transactions without a record on the decisions topic, where that is watched
        self.decided_again = 0  # records there beyond the first of their transaction
        self._said: list[int | None] = [None] * count  # what was heard first, from wherever
        self._replied, self._decided = bytearray(count), bytearray(count)
        self._contradicted: set[int] = set()
        self._since: list[float] = []  # latencies since the last snapshot
        self._snapshot_at, self._answered_then = 0.0, 0
        self._declines: deque[bytes] = deque(maxlen=LATEST_DECLINES)

    @property
    def contradictory(self) -> int:
        return len(self._contradicted)

    def reply(self, number: int, value: bytes) -> bool:
        """One reply to this transaction has come; True for the first one."""
        self._compare(number, value)
        if self._replied[number]:
            self.duplicate += 1
            return False
        self._replied[number] = 1
        self.answered += 1
        if _DECLINED in value:
            self.decline += 1
            self._declines.append(value)
        elif _REVIEWED in value:
            if _REFUSED in value:
                self.refused += 1
            else:
                self.review += 1
        if _MISSED in value:
            self.deadline_missed += 1
        if self.replies is not None:
            self.replies[number] = value
        return True

    def decision(self, number: int, value: bytes) -> None:
        """One record of the decisions topic: it has to say what its reply says, and what earlier ones for this id said."""
        self._compare(number, value)
        if self._decided[number]:
            self.decided_again += 1
        else:
            self._decided[number] = 1
            self.undecided -= 1

    def _compare(self, number: int, value: bytes) -> None:
        fingerprint, said = hash(value), self._said[number]
        if said is None:
            self._said[number] = fingerprint
        elif said != fingerprint:
            self._contradicted.add(number)

    def arrived(self, numbers: Sequence[int], latencies: npt.NDArray[np.float64]) -> None:
        """Latencies (seconds) of first replies."""
        self.latency_s[numbers] = latencies
        self._since.extend(latencies.tolist())

    def snapshot(self, elapsed_s: float) -> Snapshot:
        """The run so far; begins a new interval."""
        p50, p99 = _percentiles_ms(np.array(self._since), (50, 99))
        rate = (self.answered - self._answered_then) / max(1e-9, elapsed_s - self._snapshot_at)
        self._since, self._snapshot_at, self._answered_then = [], elapsed_s, self.answered
        return Snapshot(
            elapsed_s=round(elapsed_s, 3),
            sent=self.sent,
            answered=self.answered,
            rate=round(rate, 1),
            p50_ms=p50,
            p99_ms=p99,
            approve=self.answered - self.decline - self.review - self.refused,
            review=self.review,
            decline=self.decline,
            refused=self.refused,
            duplicate=self.duplicate,
            contradictory=self.contradictory,
            declines=[orjson.loads(value) for value in self._declines],
        )

    def summary(self, *, measured_from: int = 0) -> dict[str, Any]:
        """The whole run; percentiles leave out the transactions before number `measured_from`, which warmed up."""
        latencies = self.latency_s[measured_from : self.sent]
        there = latencies[~np.isnan(latencies)]
        p50, p99, p999 = _percentiles_ms(there, (50, 99, 99.9))
        return {
            "transactions": self.sent,
            "decisions": self.answered - self.refused,
            "lost": self.sent - self.answered,
            "duplicate": self.duplicate,
            "contradictory": self.contradictory,
            "refused": self.refused,
            "foreign": self.foreign,
            "approve": self.answered - self.decline - self.review - self.refused,
            "review": self.review,
            "decline": self.decline,
            "deadline_missed": self.deadline_missed,
            "p50_ms": p50,
            "p99_ms": p99,
            "p999_ms": p999,
            "max_ms": round(float(there.max()) * 1000, 3) if len(there) else None,
            "within_deadline": round(float((there <= DEADLINE_S).sum() / len(latencies)), 6) if len(latencies) else None,
        }


def _percentiles_ms(seconds: npt.NDArray[np.float64], percents: Sequence[float]) -> list[float | None]:
    """None where there is nothing; "higher" of the two neighbours, so that a percentile is a latency that did occur."""
    if not len(seconds):
        return [None] * len(percents)
    return [round(float(value) * 1000, 3) for value in np.percentile(seconds, percents, method="higher")]
