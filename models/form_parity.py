"""The gate that a form of the ensemble has to pass: it may be faster, and nothing else."""

from enum import StrEnum

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from assay.models.evaluate import ranking

MOST_DIFFERENCE = 1e-5  # of a score; its last digit is 1e-6

Scores = npt.NDArray[np.float64]


class Form(StrEnum):
    """How margins are computed: see `models.forms`."""

    COMPILED = "compiled"
    XGBOOST = "xgboost"
    CUDA = "cuda"


class Parity(BaseModel):
    """How the scores of a form compare with those of XGBoost on the CPU, over so many rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: int = Field(ge=0)
    score_difference: float = Field(ge=0)  # the largest
    average_precision_difference: float | None  # None without labels of both classes
    actions_changed: int = Field(ge=0)

    @property
    def holds(self) -> bool:
        """No action changed, and no score by more than its last digits."""
        return self.actions_changed == 0 and self.score_difference <= MOST_DIFFERENCE


def compare(
    scores: Scores, reference: Scores, thresholds: tuple[float, float], fraud: npt.NDArray[np.bool_] | None = None
) -> Parity:
    """Scores (n,) of a form beside those of the reference. `thresholds`: (review, decline); `fraud`: bool (n,), where known.

    >>> compare(np.array([0.1, 0.6]), np.array([0.1, 0.4]), (0.5, 0.9)).actions_changed
    1
    """
    changed = np.zeros(len(scores), np.bool_)
    for threshold in thresholds:
        changed |= (scores >= threshold) != (reference >= threshold)
    precisions = [ranking(of, fraud)["average_precision"] for of in (scores, reference)] if fraud is not None else [None]
    known = [precision for precision in precisions if precision is not None]
    return Parity(
        rows=len(scores),
        score_difference=float(np.abs(scores - reference).max(initial=0.0)),
        average_precision_difference=max(known) - min(known) if known else None,
        actions_changed=int(changed.sum()),
    )
