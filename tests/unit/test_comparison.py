"""A backtest in money: hand-made cases with the right values."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from assay.models.comparison import Comparison, shares
from assay.models.comparison_page import bounds, page
from assay.models.costs import Costs
from assay.schemas.decision import Action
from assay.tables.features import FEATURE_COUNT, NAMES

COSTS = Costs(declined_genuine=5, declined_genuine_share=0.1, reviewed=2, reviewed_genuine_share=0.01, review_catches=0.8)
A, R, D = Action.APPROVE, Action.REVIEW, Action.DECLINE


def verdicts(actions: list[Action]) -> Any:
    n = len(actions)
    return SimpleNamespace(action=actions, score=np.full(n, 0.5), rules=[()] * n, failures=())


def compared(rows: list[Any], most_examples: int = 20, repeats: tuple[int, ...] = ()) -> dict[str, Any]:
    """Of (before, after, amount, label), in micro-batches of two, over two days; `repeats`: rows that came before."""
    found = Comparison(most_examples)
    for start in range(0, len(rows), 2):
        part = rows[start : start + 2]
        features = np.full((len(part), FEATURE_COUNT), np.nan, np.float32)
        features[:, NAMES.index("amount")] = [amount for _, _, amount, _ in part]
        transactions = [
            SimpleNamespace(transaction_id=f"t-{start + i}", user_id="u", timestamp="then", amount=amount, currency="EUR")
            for i, (_, _, amount, _) in enumerate(part)
        ]
        judged: Any = SimpleNamespace(
            start=start, transactions=transactions, features=features, verdicts=verdicts([before for before, *_ in part]),
            firsts=np.array([start + i not in repeats for i in range(len(part))]),
        )  # fmt: skip
        found.add(judged, verdicts([after for _, after, *_ in part]))
    labels = [label for *_, label in rows]
    fraud, labelled = np.array([x == "fraud" for x in labels]), np.array([x != "" for x in labels])
    return found.summary(fraud, labelled, 2.0, COSTS)


def test_fraud_that_is_declined_instead_of_approved_is_saved_in_full() -> None:
    found = compared([(A, D, 100.0, "fraud"), (A, A, 50.0, "genuine")])
    assert (found["before"]["money_saved"], found["after"]["money_saved"]) == (0.0, 100.0)
    assert found["difference"]["fraud_amount_stopped"] == 100.0
    assert found["difference"]["money_saved_least"] == found["difference"]["money_saved_most"] == 100.0


def test_fraud_that_is_reviewed_is_stopped_in_part_and_costs_the_work() -> None:
    found = compared([(A, R, 100.0, "fraud")])
    assert found["after"]["fraud_amount_stopped"] == 80.0
    assert found["difference"]["money_saved"] == 78.0
    assert (found["before"]["reviews_a_day"], found["after"]["reviews_a_day"]) == (0.0, 0.5)


def test_a_good_customer_who_is_no_longer_declined_is_money_saved() -> None:
    found = compared([(D, A, 100.0, "genuine")])
    assert found["difference"] == {
        "money_saved": 15.0, "fraud_amount_stopped": 0.0, "fraud_caught": 0, "genuine_declined": -1, "genuine_reviewed": 0,
        "reviews_a_day": 0.0, "money_saved_least": 15.0, "money_saved_most": 15.0,
    }  # fmt: skip


def test_a_past_decline_that_would_pass_now_is_unknown_between_two_bounds() -> None:
    found = compared([(D, A, 100.0, "")])
    assert found["difference"]["money_saved"] == 0.0  # nothing is known
    assert found["difference"]["money_saved_least"] == -100.0  # it was fraud, and would no longer be stopped
    assert found["difference"]["money_saved_most"] == 15.0  # it was genuine, and is no longer troubled
    assert found["changed"] == [
        {"before": "decline", "after": "approve", "transactions": 1, "fraud": 0, "genuine": 0, "unknown": 1, "amount": 100.0}
    ]
    assert "-100 at least and 15 at most" in bounds(found)


def test_what_is_unknown_and_does_not_change_moves_no_bound() -> None:
    found = compared([(D, D, 100.0, ""), (A, A, 100.0, "")])
    assert found["unlabelled"] == 2
    assert found["difference"]["money_saved_least"] == found["difference"]["money_saved_most"] == 0.0
    assert found["changed"] == []


def test_a_transaction_that_comes_again_counts_once() -> None:
    row = (A, D, 100.0, "fraud")
    once, twice = compared([row, (A, A, 1.0, "genuine")]), compared([row, (A, A, 1.0, "genuine"), row], repeats=(2,))
    assert (once["repeated"], twice["repeated"]) == (0, 1)
    assert twice | {"repeated": 0} == once


def test_amounts_of_examples_are_written_out() -> None:
    assert compared([(A, R, Decimal("1.14E+3"), "")])["examples"][0]["amount"] == "1140"


def test_work_counts_what_is_unknown_too() -> None:
    found = compared([(R, A, 10.0, ""), (R, A, 10.0, "genuine")])
    assert (found["before"]["reviewed"], found["before"]["reviews_a_day"]) == (2, 1.0)
    assert found["before"]["genuine_reviewed"] == 1


def test_pairs_of_actions_are_counted_the_most_frequent_first() -> None:
    found = compared([(A, R, 1.0, "genuine"), (R, D, 2.0, "fraud"), (A, R, 3.0, "fraud")])
    assert [(one["before"], one["after"], one["transactions"], one["fraud"]) for one in found["changed"]] == [
        ("approve", "review", 2, 1), ("review", "decline", 1, 1),
    ]  # fmt: skip


def test_examples_are_the_changed_ones_of_most_money_with_their_label() -> None:
    found = compared([(A, R, 5.0, "fraud"), (A, A, 99.0, "genuine"), (A, R, 7.0, ""), (A, R, 6.0, "genuine")], most_examples=2)
    assert [(one["transaction_id"], one["label"]) for one in found["examples"]] == [("t-2", "unknown"), ("t-3", "genuine")]


@pytest.mark.parametrize("rows", [[(A, R, 5.0, "fraud")], [(A, A, 5.0, "fraud")], [(D, A, 5.0, "")]])
def test_the_page_shows_money_pairs_and_examples_and_needs_nothing_else(rows: list[Any]) -> None:
    found = compared(rows) | {"what": {name: {"bundle": "b" * 64, "rules": "r" * 64} for name in ("before", "after")}}
    shown = page(found)
    assert shown.startswith("<!DOCTYPE html>")
    assert shown.rstrip().endswith("</html>")
    assert "http" not in shown
    for row in shares(found):
        assert f"<td>{row['']}</td>" in shown
    assert ("t-0" in shown) == bool(found["changed"])
