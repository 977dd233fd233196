"""Features of risk, offline: against a plain reading of what they are."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.tables.changes import CHANGE, CHANGED_KINDS, COUNTED, Changes
from assay.tables.events import EVENT, Events
from assay.tables.features import DAY, FRAUD_PRIOR, FRAUD_PRIOR_WEIGHT, HOUR, MINUTE, WEEK
from assay.tables.risk_fold import RiskWindows
from assay.tables.risk_layout import ABSENT, columns_of

from .risk_history import (
    ASKED,
    BLOCK,
    COLUMNS,
    DAY_MS,
    HOUR_MS,
    LONG,
    MINUTE_MS,
    START_MS,
    History,
    change,
    events_at,
    feature,
    histories,
    replayed,
    windows_of,
)

RINGS = {MINUTE_MS: 60, HOUR_MS: 24, DAY_MS: 37}  # tiles that are kept behind the newest


def read_plainly(events: Events, changes: Changes, known_before: np.ndarray) -> np.ndarray:
    """The features, from their definition: each change that was known, by the part of its tile that the window has."""
    values = np.full((len(events), len(ASKED)), ABSENT)
    for (i, event), (c, (kind, measure, window_s)) in product(enumerate(events), enumerate(ASKED)):
        if event[kind] != 0:
            known = changes[: np.searchsorted(known_before, i, side="right")]
            known = known[known[kind] == event[kind]]
            matured = float(windows_of(len(events))[i, BLOCK.index(f"{kind}_matured_{window_s}")]) if window_s in LONG else 0.0
            values[i, c] = value_of(int(event["time_ms"]), known, measure, window_s, matured)
    return values


def value_of(time_ms: int, known: Changes, measure: str, window_s: int, matured: float) -> float:
    delayed = measure.startswith("fraud")
    size = MINUTE_MS if window_s <= HOUR else HOUR_MS if window_s <= DAY else DAY_MS
    ends = time_ms // size - (7 if delayed else 0)
    begins, into = ends - window_s * 1000 // size, time_ms % size / size
    column = {"fraud_sum": "thousandths", "fraud_share": "frauds", "declined": "verdicts"}.get(measure, measure)
    clock = max((int(one["time_ms"]) for one in known), default=0)
    total = 0.0
    for one in known:
        tile = int(one["time_ms"]) // size
        if tile >= clock // size - RINGS[size] and begins <= tile <= ends:
            part = 1 - into if tile == begins else into if tile == ends and delayed else 1.0
            total += part * float(one[column])
    total = max(total, 0.0)
    if measure == "fraud_sum":
        return total / 1000
    if measure == "fraud_share":
        return min((total + FRAUD_PRIOR_WEIGHT * FRAUD_PRIOR) / (matured + FRAUD_PRIOR_WEIGHT), 1.0)
    return total


@settings(max_examples=60, deadline=None)
@given(histories)
def test_features_of_risk_are_what_their_definition_says(drawn: History) -> None:
    np.testing.assert_allclose(replayed(*drawn), read_plainly(*drawn), rtol=1e-5, atol=1e-3)


@settings(max_examples=40, deadline=None)
@given(histories, st.integers(1, 5))
def test_how_events_are_batched_changes_no_bit(drawn: History, size: int) -> None:
    events, changes, known_before = drawn
    numbers, windows = np.arange(len(events)), windows_of(len(events))
    parts = RiskWindows(COLUMNS, changes, known_before)
    cuts = [slice(i, i + size) for i in range(0, len(events), size)]
    read = [parts.read(events[cut], numbers[cut], windows[cut]).tobytes() for cut in cuts]
    assert b"".join(read) == replayed(*drawn).tobytes()


@settings(max_examples=40, deadline=None)
@given(histories, histories)
def test_a_reversal_leaves_what_would_be_without_what_it_reverses(drawn: History, more: History) -> None:
    """Whatever comes between. A change moves the clock all the same, as one does of which nothing is taken back."""
    (events, changes, _), reversed_ones = drawn, more[1]
    reversals, empty = reversed_ones.copy(), reversed_ones.copy()
    for count in (*COUNTED, "thousandths"):
        reversals[count], empty[count] = -reversed_ones[count], 0
    orders = [np.concatenate(parts) for parts in ((reversed_ones, changes, reversals), (empty, changes, empty))]
    taken_back, without = (replayed(events, one, np.zeros(len(one), np.int64)) for one in orders)
    assert taken_back.tobytes() == without.tobytes()


def test_a_change_is_seen_by_the_event_that_it_is_known_before_and_by_none_before_that() -> None:
    got = replayed(events_at(0, 0, 0, 0), change(user=1, issuer_declines=1), np.array([2]))
    assert got[:, ASKED.index(("user", "issuer_declines", MINUTE))].tolist() == [0, 0, 1, 1]


def test_fraud_counts_once_the_label_delay_is_over() -> None:
    events = events_at(6 * DAY_MS, 8 * DAY_MS, 13 * DAY_MS, 15 * DAY_MS)
    got = replayed(events, change(user=1, frauds=1, thousandths=7000), np.zeros(1, np.int64))
    assert got[:, ASKED.index(("user", "frauds", WEEK))].tolist() == [0, 1, 1, 0]
    assert got[1, ASKED.index(("user", "fraud_sum", WEEK))] == 7


def test_without_changes_a_share_is_what_is_expected_of_one_without_history() -> None:
    got = replayed(events_at(0), np.zeros(0, CHANGE), np.zeros(0, np.int64))
    matured = windows_of(1)[0, BLOCK.index("user_matured_604800")]
    want = FRAUD_PRIOR * FRAUD_PRIOR_WEIGHT / (matured + FRAUD_PRIOR_WEIGHT)
    assert got[0, ASKED.index(("user", "fraud_share", WEEK))] == pytest.approx(want)
    assert got[0, ASKED.index(("user", "frauds", WEEK))] == 0


def test_changes_out_of_their_order_are_refused() -> None:
    changes = np.zeros(2, CHANGE)
    with pytest.raises(ValueError, match="order"):
        RiskWindows(COLUMNS, changes, np.array([1, 0]))


def test_many_changes_of_many_entities_are_kept_apart() -> None:
    changes = np.zeros(60_000, CHANGE)
    changes["merchant"], changes["time_ms"] = np.arange(60_000) % 20_000 + 1, START_MS
    changes["disputes"] = 1
    events = np.zeros(20_000, EVENT)
    events["merchant"], events["time_ms"] = np.arange(20_000) + 1, START_MS
    known = np.repeat([0, 10_000, 20_000], 20_000)
    windows = RiskWindows(COLUMNS, changes, known)
    got = windows.read(events, np.arange(20_000), np.zeros((20_000, len(BLOCK)), np.float32))
    at = ASKED.index(("merchant", "disputes", MINUTE))
    assert (got[:10_000, at] == 1).all()
    assert (got[10_000:, at] == 2).all()


@pytest.mark.parametrize("asked", [("user", "frauds", DAY + 1), ("user", "frauds", 31 * DAY), ("user", "disputes", 38 * DAY)])
def test_a_window_that_no_ring_holds_is_refused(asked: tuple[str, str, int]) -> None:
    with pytest.raises(ValueError, match="no ring"):
        columns_of([feature(*asked)], BLOCK)


def test_a_share_without_what_it_divides_by_is_refused() -> None:
    with pytest.raises(ValueError, match="user_matured_604800, which the list must have"):
        columns_of([feature("user", "fraud_share", WEEK)], ("merchant_matured_604800",))


def test_every_entity_learns() -> None:
    changes, events = np.zeros(1, CHANGE), np.zeros(1, EVENT)
    changes["time_ms"] = events["time_ms"] = START_MS
    changes["disputes"] = 1
    for kind in CHANGED_KINDS:
        changes[kind] = events[kind] = 5
    columns = columns_of([feature(kind, "disputes", MINUTE) for kind in CHANGED_KINDS], ())
    windows = RiskWindows(columns, changes, np.zeros(1, np.int64))
    assert windows.read(events, np.zeros(1, np.int64), np.zeros((1, 0), np.float32)).tolist() == [[1.0] * len(CHANGED_KINDS)]
