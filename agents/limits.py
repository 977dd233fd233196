"""Rate limits: who sends more than is allowed gets a cheap answer for the rest, so that a flood does not starve the others.

Token buckets in the time of intake: the append times of a partition's records, in their order. A transaction over a limit is
folded and observed like any other, so what is remembered does not depend on limits, nor does a replay of it. What is saved is
the judging: models, rules, reasons and evidence. The decision says what it is, and stands in the log like every other.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from assay.agents.profiles import Recalled
from assay.models.judge import Verdicts
from assay.models.reasons import Reason
from assay.schemas import limits
from assay.schemas.decision import Action, Tier
from assay.schemas.signature import SIGNATURE_HEADER, claimed_kid, token_of
from assay.schemas.source import SourceRecord
from assay.streams.metrics import Metrics
from assay.streams.settings import Settings

USER, PRODUCER = "user", "producer"
SET_BACK_MS = 60_000  # so much back in time, and the clock of a partition was set back
# A rule of a rules file can't have such an id: what is over a limit is told by `rules` of its decision.
RULES = {USER: ("limit:user",), PRODUCER: ("limit:producer",)}
REASONS = {
    USER: Reason("RATE_LIMIT_USER", "More transactions of this user than the limit allows: not judged", 0.0),
    PRODUCER: Reason("RATE_LIMIT_PRODUCER", "More transactions of this producer than the limit allows: not judged", 0.0),
}


class Buckets:
    """Token buckets by key, each full at first and where nothing is known of it.

    Args:
        rate: tokens a second.
        burst: tokens of a full bucket.

    >>> buckets = Buckets(rate=2.0, burst=2)
    >>> [buckets.take(b"u", at_ms) for at_ms in (0, 1, 2, 500, 501)]
    [True, True, False, True, False]
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._interval_us = round(1_000_000 / rate)
        self._most_us = self._interval_us * (burst - 1)
        self._full_at_us: dict[bytes, int] = {}

    def has(self, key: bytes, at_ms: int) -> bool:
        """Whether there is a token for this key at this time."""
        return self._short_us(key, at_ms * 1_000) <= self._most_us

    def take(self, key: bytes, at_ms: int) -> bool:
        """Take one, if there is one."""
        now_us = at_ms * 1_000
        short_us = self._short_us(key, now_us)
        if short_us > self._most_us:
            return False
        self._full_at_us.pop(key, None)  # the first are those that were not used for longest
        self._full_at_us[key] = now_us + short_us + self._interval_us
        if len(self._full_at_us) > limits.MAX_BUCKETS:
            self._forget(now_us)
        return True

    def _short_us(self, key: bytes, now_us: int) -> int:
        """How long until its bucket is full: never longer than an empty one takes, also when the clock was set back."""
        short_us = max(0, self._full_at_us.get(key, 0) - now_us)
        if short_us > self._most_us + self._interval_us:
            short_us = self._most_us + self._interval_us
            self._full_at_us[key] = now_us + short_us
        return short_us

    def _forget(self, now_us: int) -> None:
        """Those that are full again, without loss; where too few are, also those that were not used for longest."""
        left = {key: at_us for key, at_us in self._full_at_us.items() if at_us > now_us}
        if len(left) > limits.MAX_BUCKETS // 2:
            left = dict(list(left.items())[-(limits.MAX_BUCKETS // 2) :])
        self._full_at_us = left


class Limited(NamedTuple):
    """Those requests of a micro-batch that are over a limit: where they stand, and their verdicts."""

    positions: list[int]
    verdicts: Verdicts


class Limits:
    """The limits of one worker: for each of its partitions apart, since only the order within one is the same in a replay."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self._action = Action(settings.limited_action)
        self._users: dict[int, Buckets] = {}
        self._producers: dict[int, Buckets] = {}
        self._latest_ms: dict[int, int] = {}  # by partition

    def begin(self) -> None:
        """Partitions were taken over: their buckets begin full."""
        self._users.clear()
        self._producers.clear()
        self._latest_ms.clear()

    def mark(self, recalled: Recalled, records: Sequence[SourceRecord]) -> None:
        """Take those that are over a limit out of what is to be judged. `records` are those that the requests came from."""
        producers = _named(records, self._settings.producer_header) if self._settings.producer_rate else {}
        positions, kinds = [], []
        for position in np.flatnonzero(recalled.fresh).tolist():
            request = recalled.requests[position]
            source, at_ms = request.source, self._now(request.source.partition, request.appended_ms)
            kind = self._over(source.partition, request.user, producers.get(source[1:], b""), at_ms)
            if kind is not None and recalled.judged[position]:  # else a former owner has said something else, which stands
                positions.append(position)
                kinds.append(kind)
        if positions:
            recalled.limited = Limited(positions, self._verdicts(kinds))
            recalled.judged = recalled.judged.copy()
            recalled.judged[positions] = False
            recalled.judged_requests = [recalled.requests[i] for i in np.flatnonzero(recalled.judged).tolist()]

    def _now(self, partition: int, at_ms: int) -> int:
        """The partition's time: it stands still while times go back a little, as leaders' clocks and re-keyed copies do, else
        each step back would cost whoever comes next a wait; and goes back with a clock that was set back."""
        latest_ms = self._latest_ms.get(partition, 0)
        if not latest_ms - SET_BACK_MS < at_ms < latest_ms:
            self._latest_ms[partition] = latest_ms = at_ms
        return latest_ms

    def _over(self, partition: int, user: bytes, producer: bytes, at_ms: int) -> str | None:
        """Which limit a transaction is over; a token of each is taken only where it is over none."""
        settings = self._settings
        users = producers = None
        if settings.user_rate:
            if (users := self._users.get(partition)) is None:
                users = self._users[partition] = Buckets(settings.user_rate, settings.user_burst)
            if not users.has(user, at_ms):
                return USER
        if settings.producer_rate:
            if (producers := self._producers.get(partition)) is None:
                producers = self._producers[partition] = Buckets(settings.producer_rate, settings.producer_burst)
            if not producers.take(producer, at_ms):
                return PRODUCER
        if users is not None:
            users.take(user, at_ms)
        return None

    def _verdicts(self, kinds: Sequence[str]) -> Verdicts:
        count = len(kinds)
        for kind in kinds:
            self._metrics.limited.labels(kind).inc()
        return Verdicts(
            Tier.DEFAULT, np.full(count, np.nan), np.empty((count, 0)), [self._action] * count,
            [[REASONS[kind]] for kind in kinds], [RULES[kind] for kind in kinds],
        )  # fmt: skip


def limits_of(settings: Settings, metrics: Metrics) -> Limits | None:
    """None where nothing is limited, which costs nothing."""
    return Limits(settings, metrics) if settings.user_rate or settings.producer_rate else None


def _named(records: Sequence[SourceRecord], header: str) -> dict[tuple[int, int], bytes]:
    """{(partition, offset): what the last header of that name says; of a signature, whose key}; those without are left out."""
    if header == SIGNATURE_HEADER:
        tokens = ((record, token_of(record.headers)) for record in records)
        return {(record.partition, record.offset): claimed_kid(token) for record, token in tokens if token is not None}
    return {
        (record.partition, record.offset): value
        for record in records
        for name, value in record.headers
        if name == header and value
    }
