"""Three models, one score: the mean of the members' margins, calibrated for the tier that answers."""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from assay.models.forest import Forest, explain_margins, walk
from assay.models.manifest import Calibration
from assay.schemas.decision import Tier
from assay.tables.features import PROFILE_FEATURES

# Of (rows (n, F), how many members) the margins (n, members).
Margins = Callable[[npt.NDArray[np.float32], int], npt.NDArray[np.float32]]
SCORE_DECIMALS = 6  # as published; thresholds are compared with what is published


class Ensemble:
    """The members and what their margins mean. Pure, and row by row the same bits whatever the batch.

    `calibrations`: one for each tier that has a score. `margins`: how they are computed, where not by the compiled walk
    (`models.forms`).
    """

    def __init__(self, forest: Forest, calibrations: Mapping[Tier, Calibration], margins: Margins | None = None) -> None:
        self.forest = forest
        self._margins: Margins = margins or (lambda features, asked: walk(forest, features, asked))
        self.calibrations = dict(calibrations)

    def score(self, features: npt.NDArray[np.float32], tier: Tier) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(probability of fraud (n,), each member's own (n, 3)), 6 decimals. `features`: float32 (n, F).

        Trees look at the first columns alone, those that models see. In the tier lead_model only the lead is asked; the others'
        scores are NaN. Raises KeyError for a tier without a score.
        """
        calibration, asked = self.calibrations[tier], self._asked(tier)
        margins = self._margins(np.ascontiguousarray(features, np.float32), asked)
        members = np.full((len(features), self.forest.members), np.nan)
        members[:, :asked] = margins
        return _probability(_mean(margins), calibration), _probability(members, calibration)

    def contributions(self, features: npt.NDArray[np.float32], tier: Tier) -> npt.NDArray[np.float32]:
        """How far each feature that models see moved the log-odds of the score, float32 (n, MODEL_FEATURES).

        It costs as much as some sixty scores.
        """
        asked = self._asked(tier)
        moved = explain_margins(self.forest, np.ascontiguousarray(features, np.float32), asked)
        return moved * np.float32(self.calibrations[tier].slope / asked)

    def margin(self, features: npt.NDArray[np.float32], tier: Tier) -> npt.NDArray[np.float64]:
        """The mean margin (n,) of the members that the tier asks, before calibration."""
        return _mean(self._margins(np.ascontiguousarray(features, np.float32), self._asked(tier)))

    def _asked(self, tier: Tier) -> int:
        return 1 if tier is Tier.LEAD_MODEL else self.forest.members


def seen_in(features: npt.NDArray[np.float32], tier: Tier) -> npt.NDArray[np.float32]:
    """What models see of (n, F) in a tier: without entities, all that comes from Redis is unavailable."""
    if tier is Tier.NO_ENTITIES:
        features = features.copy()
        features[:, PROFILE_FEATURES:] = np.nan
    return features


def _mean(margins: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    total: npt.NDArray[np.float64] = margins[:, 0].astype(np.float64)
    for member in range(1, margins.shape[1]):  # one after the other: a sum over an axis may regroup
        total += margins[:, member]
    total /= margins.shape[1]
    return total


def _probability(margins: npt.NDArray[np.float64], calibration: Calibration) -> npt.NDArray[np.float64]:
    log_odds = np.clip(calibration.slope * margins + calibration.intercept, -700.0, 700.0)
    probability: npt.NDArray[np.float64] = np.round(1.0 / (1.0 + np.exp(-log_odds)), SCORE_DECIMALS)
    return probability
