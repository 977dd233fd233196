"""Values that were computed elsewhere: what a transaction sees of a row, by the age that its feature allows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.schemas.limits import MAX_BATCH_VALUE_AGE_S
from assay.tables.batch_rows import BATCH_LIST, BatchRows

from .batch_features import DAY_MS, NEVER, NOW_MS, RATE, feature, read, row

FORGET_MS = int(MAX_BATCH_VALUE_AGE_S * 1000)


@pytest.mark.parametrize(
    ("age_ms", "value"),
    [
        (0, 0.25),
        (2 * DAY_MS, 0.25),
        (2 * DAY_MS + 1, np.nan),
        (-1, np.nan),
        (FORGET_MS, np.nan),
        (FORGET_MS + 1, NEVER),
    ],
    ids=["new", "at the allowed age", "too old", "not known then", "nearly forgotten", "forgotten"],
)
def test_a_value_counts_by_its_age_at_the_time_of_the_transaction(age_ms: int, value: float) -> None:
    values, ages_ms, _ = read([row(rate=(0.25, NOW_MS - age_ms))], [[0, -1]])
    np.testing.assert_equal(values[0, 0], np.float32(value))
    assert ages_ms[0, 0] == age_ms


def test_each_feature_has_its_own_allowed_age() -> None:
    values, _, _ = read([row(rate=(0.5, NOW_MS - 2 * DAY_MS), days=(9.0, NOW_MS - 2 * DAY_MS))], [[0, -1]])
    np.testing.assert_equal(values[0, :2], np.float32([0.5, np.nan]))


def test_what_was_never_loaded_is_what_the_list_declares() -> None:
    values, ages_ms, _ = read([None, row(days=(3.0, NOW_MS))], [[0, -1], [1, -1]])
    assert values[:, 0].tolist() == [NEVER, NEVER]
    assert values[1, 1] == 3.0
    assert np.isnan(ages_ms[:, 0]).all()


def test_an_entity_that_the_transaction_does_not_have_is_absent() -> None:
    values, _, _ = read([row(rate=(0.5, NOW_MS))], [[0, -1]])
    assert values[0, 2] == -1.0


def test_rows_of_different_entities_do_not_mix() -> None:
    rows = [row(rate=(0.1, NOW_MS)), None, row(shared=(4.0, NOW_MS), rate=(9.0, NOW_MS)), row(rate=(0.3, NOW_MS))]
    values, _, _ = read(rows, [[0, 2], [3, 2], [1, -1]])
    np.testing.assert_array_equal(values[:, [0, 2]], np.float32([[0.1, 4.0], [0.3, 4.0], [NEVER, -1.0]]))


def test_values_of_features_that_this_list_does_not_have_are_passed_over() -> None:
    values, _, _ = read([row(gone=(1.0, NOW_MS), rate=(0.5, NOW_MS), newer=(2.0, NOW_MS))], [[0, -1]])
    assert values[0, 0] == 0.5


GOOD = row(rate=(0.5, NOW_MS))


@pytest.mark.parametrize(
    "broken",
    [b"", b"x", GOOD[:-1], GOOD[:-16], GOOD + b"12345678", GOOD + GOOD[8:], b"\2" + GOOD[1:], b"\xff" * 8],
    ids=["empty", "tiny", "cut", "one short", "longer", "one more", "of another version", "no header"],
)
def test_a_row_that_cannot_be_read_is_unavailable_and_counted_and_costs_no_other(broken: bytes) -> None:
    values, _, unreadable = read([GOOD, broken, GOOD], [[0, -1], [1, -1], [2, -1]])
    np.testing.assert_array_equal(values[:, 0], np.float32([0.5, np.nan, 0.5]))
    assert unreadable == 1


@given(st.lists(st.one_of(st.none(), st.binary(max_size=80), st.just(GOOD)), max_size=12))
def test_nothing_that_is_in_a_row_raises(rows: list[bytes | None]) -> None:
    values, _, _ = read(rows, [[place, -1] for place in range(len(rows))])
    for found, stored in zip(values[:, 0], rows, strict=True):
        if stored == GOOD:
            assert found == 0.5


def test_no_transactions_read_nothing() -> None:
    values, ages_ms, unreadable = read([], [])
    assert values.shape == ages_ms.shape == (0, 3)
    assert unreadable == 0


def test_two_features_whose_names_have_one_digest_are_refused() -> None:
    with pytest.raises(ValueError, match="same digest"):
        BatchRows((RATE, feature("rate", "device")), slice(0, 2))


def test_no_feature_of_the_list_allows_an_age_at_which_its_values_are_forgotten() -> None:
    assert all(0 < feature.allowed_age_s < MAX_BATCH_VALUE_AGE_S for feature in BATCH_LIST)
