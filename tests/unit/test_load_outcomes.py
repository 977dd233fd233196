"""Outcomes beside a load: each after its payment, in order, no sooner than an issuer answers."""

import orjson
import pytest

from assay.streams.load_outcomes import LEAST_DELAY_S, due_outcomes
from assay.streams.simulator import simulate

PAYMENTS = list(simulate(seed=3, transactions=400, start_ms=1_767_225_600_000, users=20, days=10))
RATE = 100.0


@pytest.mark.parametrize("hurry", [1.0, 100_000.0])
def test_each_outcome_is_due_as_long_after_its_payment_as_in_life_by_the_hurry_and_never_before_an_issuer_answers(
    hurry: float,
) -> None:
    expected = sorted(
        (number / RATE + max(LEAST_DELAY_S, delay_ms / 1000 / hurry), outcome["outcome_id"])
        for number, payment in enumerate(PAYMENTS)
        for delay_ms, outcome in payment.outcomes
    )
    due = due_outcomes(PAYMENTS, RATE, hurry)
    assert sorted((at, orjson.loads(value)["outcome_id"]) for at, _, value in due) == expected
    assert [at for at, _, _ in due] == sorted(at for at, _, _ in due)


def test_outcomes_have_the_key_of_their_user() -> None:
    assert all(orjson.loads(value)["user_id"].encode() == key for _, key, value in due_outcomes(PAYMENTS, RATE, 1.0))
