"""What learns in the Handbook's protocol: three members as in a bundle, with what was chosen on earlier weeks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost
from handbook_data import Payments
from handbook_folds import Fold, Numbers, card_precision

from assay.models.evaluate import ranking
from assay.tables.features import FEATURES

SEED = 7
DROPPED = ("kind", "user_frauds_30d")  # who is known to be defrauded is in no test; 42 amounts of 0 are no kind of payment

Floats = npt.NDArray[np.float64]
Features = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One member."""

    trees: int
    parameters: dict[str, Any]


# Fraud of the first scenario is what lies above 220: in 128 bins, a quantile each, no threshold lies near it.
_COMMON = {
    "objective": "binary:logistic", "tree_method": "hist", "max_bin": 2_048, "base_score": 0.5, "subsample": 0.8,
    "reg_lambda": 2.0,
}  # fmt: skip
RECIPES = (
    Recipe(80, {"max_depth": 4, "eta": 0.1, "colsample_bytree": 0.8, "min_child_weight": 2}),
    Recipe(120, {"max_depth": 4, "eta": 0.1, "colsample_bytree": 0.5, "min_child_weight": 2}),
    Recipe(80, {"max_depth": 5, "eta": 0.1, "colsample_bytree": 0.8, "min_child_weight": 2}),
)


def columns(payments: Payments) -> tuple[Features, str]:
    """The features that learn in this protocol, and their signs as XGBoost takes them."""
    kept = [column for column, name in enumerate(payments.names) if name not in DROPPED]
    signs = {feature.name: feature.sign for feature in FEATURES}
    chosen = ",".join(str(signs[payments.names[column]]) for column in kept)
    return np.ascontiguousarray(payments.features[:, kept]), f"({chosen})"


def scores(features: Features, signs: str | None, fraud: npt.NDArray[np.bool_], fold: Fold, threads: int) -> Floats:
    """The mean margin of the members on the fold's test, float64 (t,)."""
    total, labels = np.zeros(len(fold.test)), fraud[fold.learn]
    learnt = xgboost.QuantileDMatrix(features[fold.learn], labels, max_bin=_COMMON["max_bin"], nthread=threads)
    for recipe in RECIPES:
        parameters = _COMMON | recipe.parameters | {"seed": SEED, "nthread": threads}
        if signs is not None:
            parameters["monotone_constraints"] = signs
        model = xgboost.train(parameters, learnt, recipe.trees)
        total += model.inplace_predict(features[fold.test], predict_type="margin").astype(np.float64)
    return total / len(RECIPES)


def judged(payments: Payments, fold: Fold, margins: Floats) -> dict[str, float]:
    """Average precision, area under the ROC curve and card precision of a fold."""
    rows: Numbers = fold.test
    found = ranking(margins, payments.fraud[rows])
    cards = card_precision(margins, payments.day[rows], payments.customer[rows], payments.fraud[rows])
    return {name: float(value or 0.0) for name, value in found.items()} | {"card_precision_100": cards}


def surer(
    payments: Payments,
    folds: Sequence[Fold],
    ours: Sequence[Floats],
    others: Sequence[Floats],
    draws: int,
    step: Callable[[], None],
) -> tuple[float, float, float]:
    """By how much our mean average precision is above the others': the difference, and 95% of a paired bootstrap.

    Customers are drawn anew with all their payments, for both sides at once: a card's payments are no independent ones.
    """
    random, differences = np.random.default_rng(SEED), []
    for draw in range(draws + 1):
        parts = []
        for one, mine, other in zip(folds, ours, others, strict=True):
            customers, whose = np.unique(payments.customer[one.test], return_inverse=True)
            n = len(customers)
            times = (random.multinomial(n, np.full(n, 1 / n)) if draw else np.ones(n))[whose].astype(np.float64)
            parts.append(_precision(mine, payments.fraud[one.test], times) - _precision(other, payments.fraud[one.test], times))
        differences.append(float(np.mean(parts)))
        step()
    low, high = np.quantile(differences[1:], [0.025, 0.975])
    return differences[0], float(low), float(high)


def _precision(margins: Floats, fraud: npt.NDArray[np.bool_], times: Floats) -> float:
    """Average precision with each payment so many times; equal margins don't occur often enough to matter."""
    order = np.argsort(-margins, kind="stable")
    hits, all_ = np.cumsum((fraud * times)[order]), np.cumsum(times[order])
    precise = np.divide(hits, all_, out=np.zeros_like(hits), where=all_ > 0)
    return float((precise * (fraud * times)[order]).sum() / hits[-1])
