"""Two ways to judge one history, side by side, in money: what is deployed, and a change of its models or rules.

Money is in the base currency, major units. Of a transaction without a label nobody knows what a change would have brought: such
as one that was declined, of which nothing more is ever heard. It is counted apart, between two bounds: if all of those that the
change treats otherwise were genuine or fraud, whichever is worse, and whichever is better.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.models.backtest import Judged
from assay.models.costs import Costs
from assay.models.evaluate import outcome
from assay.models.judge import Verdicts
from assay.models.policy import BY_SEVERITY, SEVERITY
from assay.schemas.decision import Action
from assay.tables.features import NAMES

_AMOUNT = NAMES.index("amount")
_DECLINE, _REVIEW = SEVERITY[Action.DECLINE], SEVERITY[Action.REVIEW]

Flags = npt.NDArray[np.bool_]
Severities = npt.NDArray[np.int8]


@dataclass(slots=True)
class Comparison:
    """Adds up micro-batches that were judged twice; of a transaction that comes again its first time.

    Attributes:
        most_examples: of changed transactions, how many are kept: those of the largest amounts.
    """

    most_examples: int = 20
    failures: dict[str, str] = field(default_factory=dict)  # of rules, by id: those count as not fired
    _before: list[Severities] = field(default_factory=list)
    _after: list[Severities] = field(default_factory=list)
    _amounts: list[npt.NDArray[np.float64]] = field(default_factory=list)
    _firsts: list[Flags] = field(default_factory=list)
    _examples: list[tuple[float, int, dict[str, Any]]] = field(default_factory=list)

    def add(self, judged: Judged, after: Verdicts) -> None:
        """A micro-batch as it is judged now, and its verdicts with the change."""
        before = judged.verdicts
        was, is_now = _severities(before), _severities(after)
        amounts = np.nan_to_num(judged.features[:, _AMOUNT].astype(np.float64))
        for row in np.flatnonzero(judged.firsts & (was != is_now)).tolist():
            self._examples.append((-float(amounts[row]), judged.start + row, _example(judged, after, row)))
        self._examples = sorted(self._examples, key=lambda one: one[:2])[: self.most_examples]
        self._before.append(was)
        self._after.append(is_now)
        self._amounts.append(amounts)
        self._firsts.append(judged.firsts)
        self.failures.update(dict(before.failures) | dict(after.failures))

    def summary(self, fraud: Flags, labelled: Flags, days: float, costs: Costs, first: int = 0) -> dict[str, Any]:
        """All of it, of n transactions with what they were, bool (n,), and whether that is known.

        first: the row of the history that the first of them is.
        """
        examples = [
            example | {"label": _label(fraud[row - first], labelled[row - first])} for _, row, example in self._examples
        ]
        firsts = np.concatenate(self._firsts)
        before, after = np.concatenate(self._before)[firsts], np.concatenate(self._after)[firsts]
        amounts, fraud, labelled = np.concatenate(self._amounts)[firsts], fraud[firsts], labelled[firsts]
        sides = {
            name: _side(severity, amounts, fraud, labelled, days, costs)
            for name, severity in (("before", before), ("after", after))
        }
        difference = {
            name: round(sides["after"][name] - sides["before"][name], 2)
            for name in (
                "money_saved",
                "fraud_amount_stopped",
                "fraud_caught",
                "genuine_declined",
                "genuine_reviewed",
                "reviews_a_day",
            )
        }
        least, most = _bounds(before, after, amounts, ~labelled & (before != after), costs)
        return {
            "transactions": len(before),
            "repeated": int((~firsts).sum()),
            "days": round(days, 2),
            "unlabelled": int((~labelled).sum()),
            **sides,
            "difference": difference | {"money_saved_least": round(difference["money_saved"] + least, 2)}
            | {"money_saved_most": round(difference["money_saved"] + most, 2)},
            "changed": _changed(before, after, amounts, fraud, labelled),
            "examples": examples,
            "failed_rules": self.failures,
        }  # fmt: skip


def _severities(verdicts: Verdicts) -> Severities:
    return np.array([SEVERITY[action] for action in verdicts.action], np.int8)


def _side(
    severity: Severities, amounts: npt.NDArray[np.float64], fraud: Flags, labelled: Flags, days: float, costs: Costs
) -> dict[str, Any]:
    """What one way does: to those that are labelled in money, and how much work it makes of all."""
    declined, reviewed = severity == _DECLINE, severity == _REVIEW
    known = outcome(declined[labelled], reviewed[labelled], amounts[labelled], fraud[labelled], costs)
    work = {"declined": int(declined.sum()), "reviewed": int(reviewed.sum())}
    return known | work | {"reviews_a_day": round(float(reviewed.sum()) / days, 2)}


def _bounds(
    before: Severities, after: Severities, amounts: npt.NDArray[np.float64], unknown: Flags, costs: Costs
) -> tuple[float, float]:
    """The least and the most money that the change saves on transactions of which nothing is known."""
    gains = []
    for fraud in (False, True):
        as_if = np.full(int(unknown.sum()), fraud)
        gains.append(
            _saved(after[unknown], amounts[unknown], as_if, costs) - _saved(before[unknown], amounts[unknown], as_if, costs)
        )
    return float(np.minimum(*gains).sum()), float(np.maximum(*gains).sum())


def _saved(severity: Severities, amounts: npt.NDArray[np.float64], fraud: Flags, costs: Costs) -> npt.NDArray[np.float64]:
    """Money that each transaction's action saves."""
    declining, reviewing = costs.of_declining(amounts, fraud), costs.of_reviewing(amounts, fraud)
    return np.where(severity == _DECLINE, declining, np.where(severity == _REVIEW, reviewing, 0.0))


def _changed(
    before: Severities, after: Severities, amounts: npt.NDArray[np.float64], fraud: Flags, labelled: Flags
) -> list[dict[str, Any]]:
    """By pair of actions, those that were most first."""
    found = []
    for was, old in enumerate(BY_SEVERITY):
        for is_now, new in enumerate(BY_SEVERITY):
            which = (before == was) & (after == is_now)
            if was != is_now and which.any():
                known, guilty = which & labelled, which & labelled & fraud
                found.append(
                    {
                        "before": old.value, "after": new.value, "transactions": int(which.sum()), "fraud": int(guilty.sum()),
                        "genuine": int((known & ~fraud).sum()), "unknown": int((which & ~labelled).sum()),
                        "amount": round(float(amounts[which].sum()), 2),
                    }
                )  # fmt: skip
    return sorted(found, key=lambda one: -one["transactions"])


def _example(judged: Judged, after: Verdicts, row: int) -> dict[str, Any]:
    transaction, before = judged.transactions[row], judged.verdicts
    return {
        "transaction_id": transaction.transaction_id, "user_id": transaction.user_id, "timestamp": str(transaction.timestamp),
        "amount": format(transaction.amount, "f"), "currency": transaction.currency,
        "before": before.action[row].value, "after": after.action[row].value,
        "score_before": _score(before.score, row), "score_after": _score(after.score, row),
        "rules_before": list(before.rules[row]), "rules_after": list(after.rules[row]),
    }  # fmt: skip


def _score(scores: npt.NDArray[np.float64], row: int) -> float | None:
    return None if np.isnan(scores[row]) else float(scores[row])


def _label(fraud: Any, labelled: Any) -> str:
    return "unknown" if not labelled else "fraud" if fraud else "genuine"


def shares(summary: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """Before and after as rows of a table, for people."""
    shown = {
        "fraud_amount_stopped": "fraud stopped", "fraud_caught": "frauds caught", "genuine_declined": "good customers declined",
        "genuine_reviewed": "good customers reviewed", "reviews_a_day": "reviews a day", "money_saved": "money saved",
    }  # fmt: skip
    return [
        {
            "": title,
            "before": summary["before"][name],
            "after": summary["after"][name],
            "difference": summary["difference"][name],
        }
        for name, title in shown.items()
    ]
