"""Platt scaling: from margins to probabilities that mean what they say."""

import numpy as np
import numpy.typing as npt

from assay.models.manifest import Calibration

_STEPS = 100
_LEAST_SLOPE = 1e-3


def fit_calibration(
    margins: npt.NDArray[np.float64], fraud: npt.NDArray[np.bool_], weights: npt.NDArray[np.float64] | None = None
) -> Calibration:
    """Logistic regression of fraud on the margin, by Newton's method with halved steps.

    Platt, "Probabilistic outputs for support vector machines" (1999), with its targets (count + 1) / (count + 2) instead of
    1 and 0, which keep the slope finite where the classes part cleanly; the safeguards are those of Lin, Lin and Weng (2007).
    Order is kept: a slope that would not be positive is held at a small one. `weights` (n,): how often each row counts; None:
    once.
    """
    weights = np.ones(len(margins)) if weights is None else weights
    positives = float(weights[fraud].sum())
    negatives = float(weights.sum()) - positives
    target = np.where(fraud, (positives + 1.0) / (positives + 2.0), 1.0 / (negatives + 2.0))
    slope, intercept = 0.0, float(np.log((positives + 1.0) / (negatives + 1.0)))
    loss = _loss(slope * margins + intercept, target, weights)
    for _ in range(_STEPS):
        probability = 1.0 / (1.0 + np.exp(-np.clip(slope * margins + intercept, -700, 700)))
        weight, off = weights * probability * (1.0 - probability), weights * (probability - target)
        gradient = np.array([off @ margins, off.sum()])
        hessian = np.array([[weight @ margins**2, weight @ margins], [weight @ margins, weight.sum()]]) + 1e-9 * np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        size = 1.0
        while (
            new := _loss((slope - size * step[0]) * margins + intercept - size * step[1], target, weights)
        ) > loss and size > 1e-10:
            size /= 2
        slope, intercept = slope - size * float(step[0]), intercept - size * float(step[1])
        if loss - new < 1e-10 * len(fraud):
            break
        loss = new
    return Calibration(slope=max(slope, _LEAST_SLOPE), intercept=intercept)


def _loss(log_odds: npt.NDArray[np.float64], target: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> float:
    return float((weights * (np.logaddexp(0.0, log_odds) - target * log_odds)).sum())
