"""From a score and the rules that fired to one action. Pure.

The most severe of the score's action and the rules' wins. Only an allow-list lowers, and a block-list stands above it.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from assay.schemas.decision import Action, Tier

SEVERITY: Mapping[Action, int] = {Action.APPROVE: 0, Action.REVIEW: 1, Action.DECLINE: 2}
BY_SEVERITY = (Action.APPROVE, Action.REVIEW, Action.DECLINE)

# Where there is no score: with rules alone what none of them names goes through; with nothing at all a human looks.
WITHOUT_SCORE: Mapping[Tier, Action] = {Tier.RULES_ONLY: Action.APPROVE, Tier.DEFAULT: Action.REVIEW}

Severities = npt.NDArray[np.int8]
Fired = npt.NDArray[np.bool_]


def by_score(scores: npt.NDArray[np.float64], review: float, decline: float) -> Severities:
    """Severity (n,) of calibrated scores (n,): from each threshold on, that action.

    >>> by_score(np.array([0.1, 0.5, 0.9]), 0.5, 0.8).tolist()
    [0, 1, 2]
    """
    return (scores >= review).astype(np.int8) + (scores >= decline)


def decide(
    by_score: Severities, fired: Fired, severities: Severities, allows: Fired, blocks: Fired
) -> tuple[Severities, Fired]:
    """(final severity (n,), which rules decided it (n, R)).

    `fired` (n, R); `severities` (R,) of what each rule asks for; `allows`, `blocks` (R,): rules that are lists. A rule
    decided when it fired and asks for what was concluded, and did not merely agree with the allow-list's approval.
    """
    none = np.int8(-1)
    asked: Severities = np.where(fired, severities, none)
    severity = np.maximum(by_score, asked[:, ~allows].max(axis=1, initial=none))
    blocked: Fired = np.any(fired & blocks, axis=1)
    allowed: Fired = np.any(fired & allows, axis=1) & ~blocked
    final = np.where(allowed, np.int8(SEVERITY[Action.APPROVE]), severity).astype(np.int8)
    return final, fired & (asked == final[:, None]) & (allows == allowed[:, None])
