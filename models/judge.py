"""From a feature matrix to verdicts: score, rules, policy, reasons. Pure: no I/O, no clock, no randomness."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from assay.models.bundle import Bundle
from assay.models.control_group import ControlGroup
from assay.models.ensemble import seen_in
from assay.models.policy import BY_SEVERITY, SEVERITY, WITHOUT_SCORE, by_score, decide
from assay.models.reasons import Reason
from assay.models.rules import Failure, Rules
from assay.schemas.decision import Action, Tier
from assay.schemas.limits import MAX_REASONS
from assay.schemas.transaction import Transaction
from assay.tables.features import NAMES

_AMOUNT = NAMES.index("amount")
_DECLINE, _APPROVE = SEVERITY[Action.DECLINE], SEVERITY[Action.APPROVE]
_ACTIONS = np.array(BY_SEVERITY, object)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What was concluded for n transactions of one micro-batch, in their order."""

    tier: Tier
    score: npt.NDArray[np.float64]  # (n,) probability of fraud, 6 decimals; NaN without a model
    members: npt.NDArray[np.float64]  # (n, 3) the same of each member alone; NaN for those not asked
    action: list[Action]
    reasons: list[list[Reason]]  # up to 4 each, heaviest first; rules that decided stand before features; see `Judge.judge`
    rules: list[tuple[str, ...]]  # ids of the rules that fired and decided
    failures: tuple[Failure, ...] = field(default=())  # rules that failed, and so did not count
    # Would-be declines that the control group lets through, by row, with its share; reasons and rules are of the decline.
    control: Mapping[int, float] = field(default_factory=dict)


class Judge:
    """A bundle and the rules beside it; and the control group, where there is one."""

    def __init__(self, bundle: Bundle, rules: Rules, control: ControlGroup | None = None) -> None:
        self.bundle = bundle
        self.rules = rules
        self._control = control
        self._rule_reasons = [Reason(rule.code, rule.reason, 0.0) for rule in rules.rules]

    def judge(
        self,
        transactions: Sequence[Transaction],
        features: npt.NDArray[np.float32],
        tier: Tier,
        asked: npt.NDArray[np.bool_] | None = None,
    ) -> Verdicts:
        """Verdicts of n transactions with their features, float32 (n, F), in the tier that could be reached.

        What weighed on the score is said of reviews and declines, and of approvals where it was `asked` for, bool (n,). A
        transaction's verdict does not depend on the others.
        """
        features = seen_in(features, tier)
        count = len(transactions)
        if tier in WITHOUT_SCORE:
            score, members = np.full(count, np.nan), np.full((count, self.bundle.ensemble.forest.members), np.nan)
            severity = np.full(count, SEVERITY[WITHOUT_SCORE[tier]], np.int8)
        else:
            score, members = self.bundle.ensemble.score(features, tier)
            severity = by_score(score, *self.bundle.thresholds[tier])
        reasons: list[list[Reason]] = [[] for _ in range(count)]
        if tier is Tier.DEFAULT:
            return Verdicts(tier, score, members, _ACTIONS[severity].tolist(), reasons, [()] * count)
        fired, failures = self.rules.evaluate(transactions, features, score)
        severity, decided = decide(severity, fired, self.rules.severities, self.rules.allows, self.rules.blocks)
        if tier not in WITHOUT_SCORE:
            wanted = severity > SEVERITY[Action.APPROVE]
            if asked is not None:
                wanted |= asked
            self._explain(features, tier, np.flatnonzero(wanted), reasons)
        names = self._name(decided, reasons)
        control: dict[int, float] = {}
        if self._control is not None and tier is Tier.FULL:
            blocked = np.any(fired & self.rules.blocks, axis=1)
            control = _let_through(self._control, transactions, features, (severity == _DECLINE) & ~blocked)
            severity[list(control)] = _APPROVE
        return Verdicts(tier, score, members, _ACTIONS[severity].tolist(), reasons, names, failures, control)

    def _explain(
        self, features: npt.NDArray[np.float32], tier: Tier, rows: npt.NDArray[np.intp], reasons: list[list[Reason]]
    ) -> None:
        """Fill in the reasons of these rows."""
        if len(rows):
            of_rows = features[rows]
            found = self.bundle.catalogue.reasons(self.bundle.ensemble.contributions(of_rows, tier), of_rows)
            for row, said in zip(rows.tolist(), found, strict=True):
                reasons[row] = said

    def _name(self, decided: npt.NDArray[np.bool_], reasons: list[list[Reason]]) -> list[tuple[str, ...]]:
        """The ids of the rules that decided each transaction; their reasons go before the features'."""
        names: list[tuple[str, ...]] = [()] * len(decided)
        for row in np.flatnonzero(decided.any(axis=1)).tolist():
            which = np.flatnonzero(decided[row]).tolist()
            names[row] = tuple(self.rules.rules[index].id for index in which)
            reasons[row] = ([self._rule_reasons[index] for index in which] + reasons[row])[:MAX_REASONS]
        return names


def _let_through(
    control: ControlGroup,
    transactions: Sequence[Transaction],
    features: npt.NDArray[np.float32],
    declined: npt.NDArray[np.bool_],
) -> dict[int, float]:
    """Rows among the `declined`, bool (n,), that are in the control group, with its share."""
    return {
        row: control.share
        for row in np.flatnonzero(declined).tolist()
        if control.lets_through(transactions[row].user_id, transactions[row].transaction_id, float(features[row, _AMOUNT]))
    }
