"""The Handbook's protocol as `make handbook` holds it: folds, who leaves them, card precision, its 15 features."""

import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "perf"))

from handbook_data import DAY_S, Payments
from handbook_folds import CHOSEN_ON, FIRST_DAY, LATER, REPORTED, card_precision, fold, published


def payments(days: list[float], customers: list[int], terminals: list[int], fraud: list[bool]) -> Payments:
    """One payment a row, of 10 each, so many days after the first of April."""
    time_s = (np.array(days) * DAY_S).astype(np.int64) + 1_522_540_800
    n = len(days)
    return Payments(
        day=np.array(days).astype(np.int64),
        time_s=time_s,
        customer=np.array(customers),
        terminal=np.array(terminals),
        amount=np.full(n, 10.0),
        fraud=np.array(fraud),
        features=np.zeros((n, 1), np.float32),
        names=("amount",),
        replay_per_s=1.0,
    )


def test_no_week_that_was_chosen_on_is_one_that_is_reported_on():
    last_chosen_on = max(CHOSEN_ON) + timedelta(days=20)
    first_tested = min(REPORTED) + timedelta(days=14)
    assert last_chosen_on < first_tested
    assert max(CHOSEN_ON) < min(REPORTED) < min(LATER)


def test_a_fold_learns_seven_days_leaves_seven_and_tests_seven():
    one = fold(payments([*range(30)], [*range(30)], [0] * 30, [False] * 30), FIRST_DAY)
    assert one.learn.tolist() == [*range(7)]
    assert one.test.tolist() == [*range(14, 21)]


def test_who_is_known_to_be_defrauded_leaves_the_test_and_only_then():
    history = payments(
        [1, 7, 8, 14, 14, 15, 15, 16],
        [1, 2, 3, 1, 2, 2, 3, 3],
        [0] * 8,
        [True, True, True, False, False, False, False, False],
    )
    # Customer 1 was defrauded in the training; 2 on day 7, which day 15 knows and day 14 does not; 3 on day 8: day 16.
    assert fold(history, FIRST_DAY).test.tolist() == [4, 6]


def test_a_card_counts_once_by_its_highest_score_and_leaves_when_caught():
    scores = np.array([0.9, 0.8, 0.7, 0.9, 0.5])
    day, customer = np.array([0, 0, 0, 1, 1]), np.array([1, 1, 2, 1, 3])
    fraud = np.array([True, False, False, True, True])
    # Day 0: cards 1 (fraud) and 2: half. Day 1: card 1 has left; card 3 of two places: half.
    assert card_precision(scores, day, customer, fraud, cards=2) == pytest.approx(0.5)


def test_windows_of_terminals_end_a_week_ago_and_begin_open():
    history = payments([0, 1, 8, 8, 9], [1] * 5, [5] * 5, [True, False, False, False, False])
    rows = published(history)
    # (t - 8, t - 7]: on day 8 the payment of day 1; its fraud share is 0. In 7 days both of the first.
    assert rows[2, 9:].tolist() == [1, 0, 2, 0.5, 2, 0.5]
    assert rows[0, 9:].tolist() == [0, 0, 0, 0, 0, 0]
    assert rows[3, 3] == 2  # of one second, those before it in the file count
    assert rows[2, 3] == 1


def test_the_first_of_april_was_a_sunday():
    rows = published(payments([0, 1, 6], [1] * 3, [5] * 3, [False] * 3))
    assert rows[:, 1].tolist() == [1, 0, 1]
    assert rows[:, 2].tolist() == [1, 1, 1]
