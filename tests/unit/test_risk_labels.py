"""What a history's labels teach the features of risk: only what would have been known by then."""

import numpy as np
import pytest

from assay.tables.changes import changes_of_labels
from assay.tables.events import EVENT, Events
from assay.tables.features import DAY, NAMES
from assay.tables.replay import replay_events

START_MS = 1_760_000_000_000
DAY_MS = 1000 * DAY
FRAUDS = NAMES.index("user_frauds_30d")


def payments(*days: float) -> Events:
    """Payments of one user and merchant, so many days after the start."""
    events = np.zeros(len(days), EVENT)
    events["time_ms"] = START_MS + np.array(days) * DAY_MS
    events["user"], events["merchant"], events["amount"] = 1, 2, 12.5
    events["id"][:, 0] = np.arange(len(days))
    return events


def frauds_seen(events: Events, fraud: list[bool], delay_days: float) -> list[float]:
    changes, known_before = changes_of_labels(events, np.array(fraud), round(delay_days * DAY_MS))
    return replay_events(events, changes=changes, known_before=known_before)[:, FRAUDS].tolist()


def test_a_label_is_known_once_its_delay_is_over() -> None:
    events = payments(0, 9, 11, 12)
    assert frauds_seen(events, [True, False, False, False], 7) == [0, 1, 1, 1]
    assert frauds_seen(events, [True, False, False, False], 11) == [0, 0, 1, 1]


@pytest.mark.parametrize("delay_days", [0.0, 7.0, 40.0])
def test_a_label_teaches_nothing_about_its_own_payment_nor_about_those_before(delay_days: float) -> None:
    events = payments(*np.arange(0, 60, 1.5))
    plain = replay_events(events)
    for at in (0, 17, len(events) - 1):
        fraud = np.zeros(len(events), np.bool_)
        fraud[at] = True
        changes, known_before = changes_of_labels(events, fraud, round(delay_days * DAY_MS))
        learnt = replay_events(events, changes=changes, known_before=known_before)
        assert learnt[: at + 1].tobytes() == plain[: at + 1].tobytes()


def test_the_amount_of_fraud_is_that_of_the_payment() -> None:
    changes, _ = changes_of_labels(payments(0, 1), np.array([False, True]), DAY_MS)
    assert changes["thousandths"].tolist() == [12_500]
    assert changes["frauds"].tolist() == [1]


def test_a_payment_that_comes_again_is_no_second_fraud() -> None:
    events = payments(0, 0, 20)
    events["id"] = 5
    changes, _ = changes_of_labels(events[:2], np.ones(2, np.bool_), DAY_MS)
    assert len(changes) == 1


def test_without_labels_nothing_is_known() -> None:
    changes, known_before = changes_of_labels(payments(0, 20), np.zeros(2, np.bool_), DAY_MS)
    assert (len(changes), len(known_before)) == (0, 0)


def test_changes_come_in_the_order_in_which_they_became_known() -> None:
    late_first = payments(5, 1, 30)
    _, known_before = changes_of_labels(late_first, np.array([True, True, False]), DAY_MS)
    assert known_before.tolist() == sorted(known_before)
