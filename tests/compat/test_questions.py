"""The check of answers finds what is wrong."""

from typing import Any

import pytest

from .questions import HUGE, check, questions

ASKED = questions("shop", 4)
DECISIONS = {
    one["transaction_id"]: {
        "transaction_id": one["transaction_id"],
        "action": "decline" if one["amount"] == HUGE else "approve",
    }
    for one in ASKED[:3]
}
RIGHT: list[dict[str, Any]] = [
    *({"asked": name, "answer": decision} for name, decision in DECISIONS.items()),
    {"asked": "shop-3", "error": {"code": "invalid", "field": "currency"}},
]


def test_the_own_decision_of_each_and_a_refusal_are_right() -> None:
    checked = check(ASKED, RIGHT, DECISIONS)
    assert (checked.right, checked.wrong, checked.kinds) == (4, [], {"approve": 2, "decline": 1, "refused": 1})


@pytest.mark.parametrize(
    "line",
    [
        {"asked": "shop-0", "answer": DECISIONS["shop-2"]},
        {"asked": "shop-0", "answer": {"action": "review"}},
        {"asked": "shop-0", "answer": {}},
        {"asked": "shop-0", "failed": "timeout"},
        {"asked": "shop-3", "answer": {"action": "review"}},
        {"asked": "shop-3", "error": {"code": "malformed", "field": "value"}},
    ],
)
def test_anothers_decision_no_decision_and_an_accepted_refusal_are_wrong(line: dict[str, Any]) -> None:
    lines = [line if line["asked"] == right["asked"] else right for right in RIGHT]
    assert check(ASKED, lines, DECISIONS).right == 3


def test_an_answer_that_is_missing_or_comes_twice_is_wrong() -> None:
    assert check(ASKED, RIGHT[1:], DECISIONS).right == check(ASKED, [*RIGHT, RIGHT[0]], DECISIONS).right == 3


def test_an_answer_to_what_nobody_asked_is_wrong() -> None:
    assert check(ASKED[1:], RIGHT, DECISIONS).wrong == ["shop-0: nobody asked"]
