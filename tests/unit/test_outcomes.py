"""What outcomes amount to (`tables.outcomes`): a function of their set, whatever came first, again or late."""

from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.schemas.limits import MAX_OUTCOMES_PER_TRANSACTION
from assay.schemas.outcome import Outcome, Status
from assay.tables.digests import OFFLINE
from assay.tables.outcomes import (
    KNOWN_BYTES,
    NOTHING,
    Effect,
    Heard,
    Known,
    Paid,
    decode_known,
    effect,
    encode_known,
    label,
    thousandths,
    with_heard,
)

PAID = Paid(whole=100_000, base=80_000)  # 100.00 in a currency that is worth .80 of the base


def outcome(number: int, status: str, *, at: int = 0, amount: str | None = None, supersedes: int | None = None) -> Heard:
    """The outcome `o-NUMBER`, known at `at`."""
    return Heard.of(
        Outcome.model_validate(
            {
                "outcome_id": f"o-{number}",
                "user_id": "u-1",
                "transaction_id": "t-1",
                "status": status,
                "known_at": 1_000_000 + at,
                "amount": amount,
                "supersedes": None if supersedes is None else f"o-{supersedes}",
            }
        ),
        OFFLINE,
    )


def known(*heard: Heard) -> Known:
    so_far: Known = ()
    for each in heard:
        so_far = with_heard(so_far, each)
    return so_far


outcomes = st.builds(
    outcome,
    st.integers(0, 5),
    st.sampled_from([status.value for status in Status]),
    at=st.integers(0, 4),
    amount=st.sampled_from([None, "0", "0.5", "40", "70.25", "100", "250"]),
    supersedes=st.none() | st.integers(0, 5),
)
courses = st.lists(outcomes, max_size=MAX_OUTCOMES_PER_TRANSACTION + 4)


@given(courses, st.data())
def test_outcomes_in_any_order_and_repeated_end_in_the_same_effect(course: list[Heard], data: st.DataObject) -> None:
    repeated = course + data.draw(st.lists(st.sampled_from(course), max_size=6) if course else st.just([]))
    other = known(*data.draw(st.permutations(repeated)))
    assert other == known(*course)
    assert effect(other, PAID) == effect(known(*course), PAID)


@given(courses)
def test_the_sum_of_the_changes_is_the_effect(course: list[Heard]) -> None:
    states = [known(*course[:count]) for count in range(len(course) + 1)]
    changes = [effect(after, PAID) - effect(before, PAID) for before, after in pairwise(states)]
    total = [sum(getattr(change, name) for change in changes) for name in Effect.__slots__]
    assert Effect(*total) == effect(states[-1], PAID)


@given(courses)
def test_an_effect_is_within_its_bounds(course: list[Heard]) -> None:
    found = effect(known(*course), PAID)
    assert {found.issuer_declined, found.disputed, found.fraud} <= {0, 1}
    assert 0 <= found.thousandths <= PAID.base * found.fraud


@given(courses)
def test_what_is_known_comes_back_from_its_bytes(course: list[Heard]) -> None:
    value = encode_known(known(*course))
    assert decode_known(value) == known(*course)
    assert len(value) <= KNOWN_BYTES


@pytest.mark.parametrize("value", [b"", b"\x01", b"\x02\x00", b"\x01\x01", encode_known((outcome(1, "fraud"),)) + b"x"])
def test_bytes_that_are_no_outcomes_are_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="not outcomes of version 1"):
        decode_known(value)


# -- each rule by itself


def test_nothing_heard_is_nothing() -> None:
    assert effect((), PAID) == NOTHING
    assert label(()) == ""


def test_a_declined_one_counts_until_a_later_word_says_authorised() -> None:
    declined = outcome(1, "issuer_declined", at=1)
    assert effect(known(declined), PAID) == Effect(issuer_declined=1)
    assert effect(known(declined, outcome(2, "authorised", at=2)), PAID) == NOTHING
    assert effect(known(declined, outcome(2, "authorised", at=0)), PAID) == Effect(issuer_declined=1)


def test_a_superseding_one_takes_the_place_of_what_it_names() -> None:
    fraud, corrected = outcome(1, "fraud", amount="100"), outcome(2, "fraud", amount="40", supersedes=1)
    assert effect(known(fraud), PAID) == Effect(fraud=1, thousandths=80_000)
    assert effect(known(fraud, corrected), PAID) == Effect(fraud=1, thousandths=32_000)
    assert effect(known(fraud, outcome(2, "authorised", supersedes=1)), PAID) == NOTHING


def test_one_that_supersedes_itself_or_in_a_ring_ends() -> None:
    assert effect(known(outcome(1, "fraud", supersedes=1)), PAID).fraud == 1
    assert effect(known(outcome(1, "fraud", supersedes=2), outcome(2, "fraud", supersedes=1)), PAID) == NOTHING


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("names", [1, None])
def test_a_reversal_takes_back_the_dispute_even_where_it_comes_first(order: tuple[int, int], names: int | None) -> None:
    both = outcome(1, "disputed", at=1), outcome(2, "dispute_reversed", at=2, supersedes=names)
    assert effect(known(both[0]), PAID) == Effect(disputed=1)
    assert effect(known(*(both[i] for i in order)), PAID) == NOTHING


def test_a_reversal_takes_back_no_other_dispute_than_it_names() -> None:
    disputes = outcome(1, "disputed"), outcome(2, "disputed")
    assert effect(known(*disputes, outcome(3, "dispute_reversed", supersedes=1)), PAID) == Effect(disputed=1)
    assert effect(known(*disputes, outcome(3, "dispute_reversed", supersedes=9)), PAID) == Effect(disputed=1)


def test_a_reversal_reaches_what_has_taken_the_place_of_the_dispute_that_it_names() -> None:
    corrected = outcome(1, "disputed"), outcome(2, "disputed", supersedes=1)
    assert effect(known(*corrected, outcome(3, "dispute_reversed", supersedes=1)), PAID) == NOTHING


def test_a_reversal_that_is_superseded_takes_nothing_back() -> None:
    disputed, reversed_ = outcome(1, "disputed"), outcome(2, "dispute_reversed", supersedes=1)
    assert effect(known(disputed, reversed_, outcome(3, "disputed", supersedes=2)), PAID) == Effect(disputed=1)


def test_a_dispute_is_not_fraud() -> None:
    assert effect(known(outcome(1, "disputed")), PAID).fraud == 0


def test_parts_of_a_fraud_add_up_to_the_whole_at_most() -> None:
    parts = [outcome(1, "fraud", amount="30"), outcome(2, "fraud", amount="50"), outcome(3, "fraud", amount="50")]
    found = [effect(known(*parts[:count]), PAID).thousandths for count in range(4)]
    assert found == [0, 24_000, 64_000, 80_000]


def test_fraud_without_an_amount_is_the_whole() -> None:
    assert effect(known(outcome(1, "fraud")), PAID) == Effect(fraud=1, thousandths=PAID.base)


def test_of_fraud_and_genuine_the_later_word_wins() -> None:
    fraud = outcome(1, "fraud", at=5, amount="30")
    assert effect(known(fraud, outcome(2, "genuine", at=6)), PAID) == NOTHING
    assert effect(known(fraud, outcome(2, "genuine", at=4)), PAID) == Effect(fraud=1, thousandths=24_000)
    earlier = outcome(3, "fraud", at=3, amount="30")
    assert effect(known(earlier, outcome(2, "genuine", at=4), fraud), PAID).thousandths == 24_000


def test_of_fraud_and_genuine_at_one_moment_the_same_wins_whichever_came_first() -> None:
    fraud, genuine = outcome(1, "fraud"), outcome(2, "genuine")
    expected = int(fraud.outcome > genuine.outcome)
    assert effect(known(fraud, genuine), PAID).fraud == effect(known(genuine, fraud), PAID).fraud == expected


def test_an_outcome_that_comes_again_counts_once() -> None:
    part = outcome(1, "fraud", amount="30")
    assert effect(known(part, part), PAID).thousandths == 24_000
    assert effect(known(part, outcome(1, "fraud", at=1, amount="40")), PAID).thousandths == 32_000


def test_fraud_of_a_transaction_without_an_amount_counts_and_has_none() -> None:
    assert effect(known(outcome(1, "fraud")), Paid(0, 0)) == Effect(fraud=1)


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["authorised"], ""),
        (["genuine"], "genuine"),
        (["disputed"], "disputed"),
        (["genuine", "disputed"], "disputed"),
        (["disputed", "genuine"], "genuine"),
        (["disputed", "fraud"], "fraud"),
        (["disputed", "dispute_reversed"], ""),
    ],
)
def test_a_transaction_is_labelled_by_what_somebody_said_of_it_alone(statuses: list[str], expected: str) -> None:
    assert label(known(*(outcome(i, status, at=i) for i, status in enumerate(statuses)))) == expected


@settings(max_examples=50)
@given(st.decimals(min_value=0, max_value=10**12, allow_nan=False, allow_infinity=False, places=4))
def test_an_amount_is_rounded_to_the_nearest_thousandth(amount: Decimal) -> None:
    assert abs(Decimal(thousandths(amount)) / 1000 - amount) <= Decimal("0.0005")
