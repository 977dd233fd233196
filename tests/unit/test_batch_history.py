"""Training reads batch features as serving did: of each, what had been loaded by then."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from assay.tables.batch_history import BatchHistory, BatchValues, states
from assay.tables.batch_rows import BATCH_LIST, COLUMNS, BatchRows, pack_row
from assay.tables.events import EVENT, Events
from assay.tables.features import FEATURE_COUNT, PROFILE_FEATURES

HOUR_MS = 3_600_000
START_MS = 1_760_000_000_000
MERCHANT = [column for column, feature in enumerate(BATCH_LIST) if feature.entity == "merchant"][:2]


def given_values(*lines: tuple[int, int, float, int]) -> BatchValues:
    """Of (which feature, digest, value, hours after the start)."""
    columns = list(zip(*lines, strict=True)) if lines else [(), (), (), ()]
    return BatchValues(
        np.array([MERCHANT[which] for which in columns[0]], np.int64),
        np.array(columns[1], np.uint64),
        np.array(columns[2], np.float32),
        START_MS + np.array(columns[3], np.int64) * HOUR_MS,
    )


def payments(*lines: tuple[int, int]) -> Events:
    """Of (merchant, hours after the start)."""
    events = np.zeros(len(lines), EVENT)
    events["merchant"] = [merchant for merchant, _ in lines]
    events["time_ms"] = [START_MS + hours * HOUR_MS for _, hours in lines]
    return events


def filled(history: BatchHistory, events: Events) -> np.ndarray:
    """Batch columns, (n, BATCH_FEATURES)."""
    block = np.full((len(events), FEATURE_COUNT - PROFILE_FEATURES), np.inf, np.float32)
    history.fill(events, block)
    outside = np.delete(block, COLUMNS, axis=1)
    assert np.isinf(outside).all()
    return block[:, COLUMNS]


def first(history: BatchHistory, *lines: tuple[int, int]) -> list[float]:
    return filled(history, payments(*lines))[:, MERCHANT[0]].tolist()


def test_each_transaction_sees_the_newest_value_that_is_not_after_it() -> None:
    history = BatchHistory(given_values((0, 5, 0.25, 0), (0, 5, 0.5, 24)))
    assert first(history, (5, 0), (5, 23), (5, 24), (5, 30)) == [0.25, 0.25, 0.5, 0.5]


def test_before_the_first_value_nothing_was_loaded() -> None:
    never = BATCH_LIST[MERCHANT[0]].never
    assert first(BatchHistory(given_values((0, 5, 0.25, 10))), (5, 9), (6, 20)) == [never, never]


def test_without_a_file_nothing_was_ever_loaded() -> None:
    assert first(BatchHistory(), (5, 9)) == [BATCH_LIST[MERCHANT[0]].never]


def test_a_feature_loaded_later_does_not_hide_another_loaded_before() -> None:
    history = BatchHistory(given_values((0, 5, 0.25, 0), (1, 5, 7.0, 1)))
    assert filled(history, payments((5, 2)))[0, MERCHANT].tolist() == [0.25, 7.0]


def test_of_one_time_the_last_in_the_file_counts() -> None:
    assert first(BatchHistory(given_values((0, 5, 0.25, 0), (0, 5, 0.5, 0))), (5, 1)) == [0.5]


def test_a_value_is_not_seen_before_it_could_be_known() -> None:
    history = BatchHistory(given_values((0, 5, 0.25, 0), (0, 5, 0.5, 24)), known_after_ms=6 * HOUR_MS)
    assert first(history, (5, 24), (5, 29), (5, 30)) == [0.25, 0.25, 0.5]


def test_a_value_grows_too_old() -> None:
    history = BatchHistory(given_values((0, 5, 0.25, 0)))
    assert np.isnan(first(history, (5, 24 * 3))).all()


lines = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 4), st.integers(0, 99).map(float), st.integers(0, 200)), max_size=30
)


@given(lines, st.lists(st.tuples(st.integers(1, 5), st.integers(0, 300)), min_size=1, max_size=30))
def test_offline_is_what_a_row_holds_that_was_loaded_in_the_order_of_time(loaded, asked) -> None:
    """The reference: load value after value into one row for each merchant, and read it at each payment."""
    values, family, events = given_values(*loaded), BatchRows(), payments(*asked)
    expected = np.full((len(events), len(BATCH_LIST)), np.nan, np.float32)
    for i, (merchant, hours) in enumerate(asked):
        held: dict[int, tuple[float, int]] = {}
        for which, digest, value, at in sorted(loaded, key=lambda line: line[3]):
            if digest == merchant and at <= hours:
                held[which] = value, at
        packed = [given_values((which, merchant, value, at)) for which, (value, at) in held.items()]
        entries = [entry for one in packed for state in states(one) for entry in state.values.values()]
        rows = [pack_row(entries) if entries else None]
        index = np.array([[0 if kind == "merchant" else -1 for kind in family.kinds]], np.int32)
        family.read(rows, index, events[i : i + 1], np.zeros((1, 0), np.float32), expected[i : i + 1])
    assert filled(BatchHistory(values), events).tobytes() == expected.tobytes()
