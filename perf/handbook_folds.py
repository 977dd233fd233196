"""The protocol of the Fraud Detection Handbook (Le Borgne et al., chapters 3 and 5): folds, card precision, its 15 features.

Seven days to learn from, seven until labels are known, seven to test on. Who is known to be defrauded leaves the test.
"""

from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import numpy.typing as npt
from handbook_data import DAY_S, Payments

FIRST_DAY = date(2018, 4, 1)
LEARNT_DAYS = DELAY_DAYS = TESTED_DAYS = 7
REPORTED = tuple(date(2018, 7, 25) + timedelta(days=7 * fold) for fold in range(4))
LATER = tuple(date(2018, 8, 22) + timedelta(days=7 * fold) for fold in range(3))
# What was chosen was chosen on these: their last test day is the one before the first that is reported.
CHOSEN_ON = tuple(date(2018, 5, 16) + timedelta(days=7 * fold) for fold in range(10))
CARDS = 100  # that can be looked at in a day

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fold:
    """Row numbers to learn from and to test on."""

    starts: date
    learn: Numbers
    test: Numbers


def fold(payments: Payments, starts: date) -> Fold:
    """The fold whose training begins on that day."""
    first = (starts - FIRST_DAY).days
    day, customer, fraud = payments.day, payments.customer, payments.fraud
    learn = np.flatnonzero((day >= first) & (day < first + LEARNT_DAYS))
    known = np.unique(customer[learn][fraud[learn]])
    tested = []
    for today in range(first + LEARNT_DAYS + DELAY_DAYS, first + LEARNT_DAYS + DELAY_DAYS + TESTED_DAYS):
        known = np.union1d(known, customer[(day == today - DELAY_DAYS - 1) & fraud])
        tested.append(np.flatnonzero((day == today) & ~np.isin(customer, known)))
    return Fold(starts, learn, np.concatenate(tested))


def card_precision(scores: Floats, day: Numbers, customer: Numbers, fraud: npt.NDArray[np.bool_], cards: int = CARDS) -> float:
    """Mean over days of the share of fraud among the cards with the highest scores; who was caught leaves later days."""
    caught, shares = np.zeros(0, np.int64), []
    for today in np.unique(day):
        rows = np.flatnonzero((day == today) & ~np.isin(customer, caught))
        ranked = rows[np.argsort(-scores[rows], kind="stable")]
        _, firsts = np.unique(customer[ranked], return_index=True)
        top = customer[ranked][np.sort(firsts)[:cards]]
        found = np.intersect1d(top, customer[rows][fraud[rows]])
        caught = np.union1d(caught, found)
        shares.append(len(found) / cards)
    return float(np.mean(shares))


def published(payments: Payments) -> npt.NDArray[np.float32]:
    """The Handbook's 15 features of all payments, float32 (n, 15): chapter 3, "Baseline feature transformation"."""
    days = payments.day
    columns = [payments.amount, (days + FIRST_DAY.weekday()) % 7 >= 5, payments.time_s % DAY_S // 3600 <= 6]
    for window in (1, 7, 30):
        count, amount = _sums(payments.customer, payments.time_s, payments.amount, window, 0)
        columns += [count, amount / count]
    for window in (1, 7, 30):
        count, frauds = _sums(payments.terminal, payments.time_s, payments.fraud, window, DELAY_DAYS)
        columns += [count, np.where(count > 0, frauds / np.maximum(count, 1), 0.0)]
    return np.stack(columns, axis=1).astype(np.float32)


def _sums(entity: Numbers, time_s: Numbers, values: npt.NDArray[np.generic], days: int, delay: int) -> tuple[Floats, Floats]:
    """Count, and sum of the values, of each row's entity in (t - delay - days, t - delay]; ties: the file's order."""
    order = np.argsort(entity, kind="stable")  # the file is in the order of time
    span = 1 << 40
    keys = entity[order] * span + time_s[order]
    totals = np.concatenate([[0.0], np.cumsum(values[order].astype(np.float64))])
    begins = np.searchsorted(keys, keys - (delay + days) * DAY_S, side="right")
    ends = np.searchsorted(keys, keys - delay * DAY_S, side="right") if delay else np.arange(1, len(keys) + 1)
    count, total = np.empty(len(keys)), np.empty(len(keys))
    count[order], total[order] = ends - begins, totals[ends] - totals[begins]
    return count, total
