"""Simulated payments with known truth: people with habits, and several kinds of fraud among them. All follows from the seed.

    for payment in simulate(seed=7, transactions=100_000, start_ms=1_767_225_600_000, days=30):
        payment.transaction, payment.fraud, payment.pattern, payment.outcomes

There is no wall clock in here: when it begins is a parameter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np

from assay.schemas.errors import SettingError
from assay.streams.fraud_patterns import ALL_PATTERNS, fraudulent_payments
from assay.streams.simulated_habits import Rhythm, genuine_payments
from assay.streams.simulated_outcomes import Outcomes
from assay.streams.simulated_payment import to_wire
from assay.streams.simulated_world import DAY_MS, build_world

DEFAULT_USERS = 2_000
DEFAULT_FRAUD_SHARE = 0.01
_UNHURRIED_MS = 7 * DAY_MS  # in a shorter simulation fraudsters hurry, so that whole episodes fit into it


@dataclass(frozen=True, slots=True)
class Simulated:
    """One transaction in wire form, the truth about it, and what will be heard of it: (milliseconds later, outcome)."""

    transaction: dict[str, Any]
    time_ms: int
    fraud: bool
    pattern: str | None
    outcomes: list[tuple[int, dict[str, Any]]]


def simulate(
    *,
    seed: int,
    transactions: int,
    start_ms: int,
    users: int = DEFAULT_USERS,
    days: float | None = None,
    rate: float | None = None,
    fraud_share: float = DEFAULT_FRAUD_SHARE,
    patterns: Sequence[str] = ALL_PATTERNS,
) -> Iterator[Simulated]:
    """So many transactions, ordered by time, from `start_ms` (epoch milliseconds) on.

    Args:
        users: how many people there are. About 50 transactions each make a profile worth having.
        days: spread over about so many days, with the rhythm of day and night; 30 unless `rate` is given.
        rate: instead, so many transactions a second, evenly.
        fraud_share: of the transactions, about; 0 for none.
        patterns: names of `fraud_patterns.ALL_PATTERNS`; the ones left out do not occur.

    Raises:
        SettingError: an argument is out of its range.
    """
    _check(transactions, users, days, rate, fraud_share, patterns)
    return _stream(seed, transactions, start_ms, users, days, rate, fraud_share, tuple(patterns))


def _stream(
    seed: int,
    transactions: int,
    start_ms: int,
    users: int,
    days: float | None,
    rate: float | None,
    fraud_share: float,
    patterns: tuple[str, ...],
) -> Iterator[Simulated]:
    of_world, of_habits, of_fraud, of_outcomes = (
        np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(4)
    )
    span_ms = (30 if days is None else days) * DAY_MS if rate is None else transactions / rate * 1000
    gap_ms = span_ms / transactions
    world = build_world(of_world, users=users, start_ms=start_ms, span_ms=span_ms)
    by_hour = world.users.hourly[:, -1] if rate is None else np.ones(24)
    payments = genuine_payments(world, of_habits, Rhythm(start_ms, gap_ms / max(1e-9, 1 - fraud_share), by_hour))
    if fraud_share and patterns:
        pace = min(1.0, span_ms / _UNHURRIED_MS)
        frauds = fraudulent_payments(
            world, of_fraud, start_ms=start_ms, gap_ms=gap_ms / fraud_share, pace=pace, patterns=patterns
        )
        payments = merge(payments, frauds, key=attrgetter("time_ms"))
    outcomes = Outcomes(of_outcomes)
    for number, payment in enumerate(islice(payments, transactions)):
        wire = to_wire(world, payment, f"t-{world.tag}-{number:07d}")
        pattern = payment.pattern
        yield Simulated(wire, payment.time_ms, pattern is not None, pattern, outcomes.of(wire, payment.time_ms, pattern))


def _check(
    transactions: int, users: int, days: float | None, rate: float | None, fraud_share: float, patterns: Sequence[str]
) -> None:
    if transactions < 0 or users < 1:
        raise SettingError("nothing to simulate", expected="transactions >= 0, users >= 1", got=f"{transactions}, {users}")
    if days is not None and rate is not None:
        raise SettingError("days and rate are two ways to say the same", expected="one of them", mend="leave one out")
    if (days is not None and days <= 0) or (rate is not None and rate <= 0):
        raise SettingError("time does not stand still", expected="days or rate above 0", got=f"{days or rate}")
    if not 0 <= fraud_share < 1:
        raise SettingError("fraud_share is out of range", expected="0 <= share < 1", got=str(fraud_share))
    unknown = [name for name in patterns if name not in ALL_PATTERNS]
    if unknown:
        raise SettingError(
            "no such fraud pattern", expected=", ".join(ALL_PATTERNS), got=", ".join(unknown), mend="name known ones"
        )
