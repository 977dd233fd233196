"""The simulator: the same seed makes the same payments, and they are neither invalid nor too easy."""

from collections import Counter
from decimal import Decimal
from pathlib import Path

import numpy as np
import orjson
import polars as pl
import pytest
from sklearn.metrics import average_precision_score

from assay.schemas.card_number import may_hold_card_number
from assay.schemas.errors import SettingError
from assay.schemas.outcome import read_outcome
from assay.schemas.transaction import Transaction
from assay.streams.fraud_patterns import ALL_PATTERNS
from assay.streams.simulated_world import CURRENCIES
from assay.streams.simulation_files import COLUMNS, noting_outcomes, to_frame, to_lines, write, write_outcomes
from assay.streams.simulator import Simulated, simulate

START_MS = 1_767_225_600_000  # 2026-01-01
COUNT = 20_000


def some(seed: int = 7, transactions: int = COUNT, **more: object) -> list[Simulated]:
    return list(simulate(seed=seed, transactions=transactions, start_ms=START_MS, **more))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def payments() -> list[Simulated]:
    return some()


def test_the_same_seed_makes_the_same_bytes(payments: list[Simulated]) -> None:
    again = some()
    assert [*to_lines(again)] == [*to_lines(payments)]
    assert [payment.outcomes for payment in again] == [payment.outcomes for payment in payments]


def test_another_seed_makes_other_people(payments: list[Simulated]) -> None:
    others = some(seed=8, transactions=2_000)
    for name in ("user_id", "transaction_id"):
        assert not {p.transaction[name] for p in payments} & {p.transaction[name] for p in others}
    assert not {p.transaction["merchant"]["id"] for p in payments} & {p.transaction["merchant"]["id"] for p in others}


def test_payments_come_in_order_of_time_with_ids_of_their_own(payments: list[Simulated]) -> None:
    times = [payment.time_ms for payment in payments]
    assert times == sorted(times)
    assert times[0] >= START_MS
    assert len({payment.transaction["transaction_id"] for payment in payments}) == COUNT


def test_every_payment_is_a_valid_transaction(payments: list[Simulated]) -> None:
    for payment in payments:
        read = Transaction.model_validate_json(orjson.dumps(payment.transaction))
        assert read.timestamp.ms == payment.time_ms


def test_no_payment_looks_as_if_it_held_a_card_number(payments: list[Simulated]) -> None:
    for payment in payments:
        assert not may_hold_card_number(orjson.dumps(payment.transaction))


def test_every_outcome_is_valid_and_known_after_its_transaction(payments: list[Simulated]) -> None:
    for payment in payments:
        for delay_ms, outcome in payment.outcomes:
            read = read_outcome(orjson.dumps(outcome))
            assert read.known_at.ms == payment.time_ms + delay_ms
            assert read.transaction_id == payment.transaction["transaction_id"]


def test_amounts_have_the_digits_of_their_currency(payments: list[Simulated]) -> None:
    for payment in payments:
        amount, currency = payment.transaction["amount"], payment.transaction["currency"]
        assert Decimal(amount) > 0 or payment.transaction["kind"] == "verification"
        assert -Decimal(amount).as_tuple().exponent in (0, CURRENCIES[currency][1])
    assert Counter(p.transaction["currency"] for p in payments).most_common(1)[0][0] == "EUR"


def test_all_patterns_occur_in_about_the_wanted_share(payments: list[Simulated]) -> None:
    by_pattern = Counter(payment.pattern for payment in payments if payment.fraud)
    assert set(by_pattern) == set(ALL_PATTERNS)
    assert 0.006 < sum(by_pattern.values()) / COUNT < 0.014


def test_a_live_burst_of_seconds_holds_all_patterns_too() -> None:
    assert {p.pattern for p in some(rate=500.0) if p.fraud} == set(ALL_PATTERNS)


def test_a_pattern_left_out_does_not_occur() -> None:
    rest = tuple(name for name in ALL_PATTERNS if name != "account_takeover")
    assert {payment.pattern for payment in some(patterns=rest)} == {None, *rest}


def test_without_fraud_nothing_is_fraud() -> None:
    assert not any(payment.fraud for payment in some(transactions=2_000, fraud_share=0.0))


def test_the_amount_alone_says_something_but_not_much() -> None:
    payments = some(transactions=60_000)
    amounts = [float(p.transaction["amount"]) / CURRENCIES[p.transaction["currency"]][0] for p in payments]
    truth = np.array([p.fraud for p in payments])
    precision = average_precision_score(truth, amounts)
    assert 2 * truth.mean() < precision < 0.3


def test_honest_people_do_odd_things_too(payments: list[Simulated]) -> None:
    honest = [payment.transaction for payment in payments if not payment.fraud]
    assert {"purchase", "recurring", "refund", "verification", "preauth", "reversal"} == {p["kind"] for p in honest}
    abroad = [p for p in honest if p["location"]["country"] != p["instrument"]["issuer_country"]]
    assert len(abroad) > 0.005 * COUNT
    assert any(Decimal(p["amount"]) > 1_000 for p in honest if p["currency"] == "EUR")


def test_the_issuer_answers_first_and_fraud_is_mostly_heard_of_later(payments: list[Simulated]) -> None:
    assert all(p.outcomes[0][1]["status"] in ("authorised", "issuer_declined") for p in payments)
    authorised_frauds = [p for p in payments if p.fraud and p.outcomes[0][1]["status"] == "authorised"]
    heard = [p for p in authorised_frauds if any(outcome["status"] == "fraud" for _, outcome in p.outcomes)]
    assert 0.85 < len(heard) / len(authorised_frauds) < 1.0
    for payment in payments:
        delays = [delay for delay, _ in payment.outcomes]
        assert delays == sorted(delays)
        assert delays[0] > 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"days": 1.0, "rate": 5.0},
        {"rate": 0.0},
        {"days": -1.0},
        {"users": 0},
        {"fraud_share": 1.0},
        {"patterns": ("sorcery",)},
    ],
)
def test_wrong_arguments_are_refused_at_once(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingError):
        simulate(seed=1, transactions=10, start_ms=START_MS, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_a_file_holds_fields_and_truth(tmp_path, payments: list[Simulated], ending: str) -> None:
    path = tmp_path / "deep" / f"payments.{ending}"
    assert write(iter(payments[:500]), path) == 500
    if ending == "jsonl":
        lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
        assert lines[3] == payments[3].transaction | {"fraud": payments[3].fraud, "pattern": payments[3].pattern}
        return
    frame = pl.read_parquet(path) if ending == "parquet" else pl.read_csv(path, schema=COLUMNS)
    assert frame.equals(to_frame(payments[:500]))
    assert frame["merchant.id"][0] == payments[0].transaction["merchant"]["id"]


def test_a_file_of_unknown_format_is_refused(tmp_path) -> None:
    with pytest.raises(SettingError, match="parquet"):
        write(iter(()), tmp_path / "payments.xlsx")


def test_outcomes_are_written_as_they_go_onto_the_wire_in_the_order_in_which_they_become_known(tmp_path: Path) -> None:
    payments, noted, path = some(transactions=500), list[tuple[int, bytes]](), tmp_path / "outcomes.jsonl"
    assert list(noting_outcomes(payments, noted)) == payments
    count = write_outcomes(noted, path)
    read = [read_outcome(line) for line in path.read_bytes().splitlines()]
    assert count == len(read) == sum(len(payment.outcomes) for payment in payments)
    assert [each.known_at for each in read] == sorted(each.known_at for each in read)
    assert {each.transaction_id for each in read} <= {payment.transaction["transaction_id"] for payment in payments}
