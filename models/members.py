"""How the three members are grown: alike enough to be averaged, different enough to be worth it.

The lead sees everything. `money` weighs fraud by its amount and sees half of the features a tree; `balanced` is shallow and
grown on all fraud and a tenth part as much again of genuine payments per fraud (undersampling: what did best in the Fraud
Detection Handbook, chapter 6). All are monotone where the feature list says that more can only be more suspicious.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from assay.models.feature_rows import FeatureRows
from assay.models.manifest import MEMBERS
from assay.models.matrices import Again, Piece, binned
from assay.tables.features import BATCH_FEATURES, ENTITY_FEATURES, FEATURES, MODEL_FEATURES, PROFILE_FEATURES

MAX_TREES = 120
PATIENCE = 20  # trees without a better average precision on the later part
# Shares of the rows that lose columns, so that their absence is nothing new: all that comes from Redis; and each batch feature
# alone, since what loads one may stop without the others.
WITHOUT_ENTITIES, WITHOUT_BATCH = 0.2, 0.1
_BATCH = slice(PROFILE_FEATURES + ENTITY_FEATURES, PROFILE_FEATURES + ENTITY_FEATURES + BATCH_FEATURES)
_GENUINE_PER_FRAUD = 10
_FEWEST_GENUINE = 2_000

Flags = npt.NDArray[np.bool_]
Weights = npt.NDArray[np.float32]
Step = Callable[[str, int], None]  # (member, trees so far)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What sets one member apart. `weigh`: (amounts, fraud, random) -> weight of each row; 0 leaves it out."""

    name: str
    parameters: dict[str, Any]
    weigh: Callable[[Weights, Flags, np.random.Generator], Weights]


def _moderately(amounts: Weights, fraud: Flags, random: np.random.Generator) -> Weights:
    """Fraud counts more than its share, but not as much as all the rest: the square root of the imbalance."""
    imbalance = np.sqrt((~fraud).sum() / max(1, fraud.sum()))
    return np.where(fraud, np.float32(imbalance), np.float32(1))


def _by_amount(amounts: Weights, fraud: Flags, random: np.random.Generator) -> Weights:
    """Fraud by its amount, between a third and three times its mean."""
    known = np.nan_to_num(amounts)
    usual = max(1e-6, float(known[fraud].mean()))
    return _moderately(amounts, fraud, random) * np.where(fraud, np.clip(known / usual, 1 / 3, 3), 1).astype(np.float32)


def _balanced(amounts: Weights, fraud: Flags, random: np.random.Generator) -> Weights:
    """All fraud, and a sample of the rest."""
    wanted = max(_FEWEST_GENUINE, _GENUINE_PER_FRAUD * int(fraud.sum()))
    share = min(1.0, wanted / max(1, int((~fraud).sum())))
    return (fraud | (random.random(len(fraud)) < share)).astype(np.float32)


_MAX_BIN = 512  # in 128 no threshold may lie near an amount above which all is fraud, where that is one payment in 300
_COMMON = {
    "objective": "binary:logistic",
    "eval_metric": "aucpr",
    "tree_method": "hist",
    "max_bin": _MAX_BIN,
    "eta": 0.1,
    "subsample": 0.8,
    "reg_lambda": 2.0,
}
RECIPES: tuple[Recipe, ...] = (
    Recipe("lead", {"max_depth": 6, "colsample_bytree": 0.8, "min_child_weight": 3}, _moderately),
    Recipe("money", {"max_depth": 5, "colsample_bytree": 0.5, "min_child_weight": 5}, _by_amount),
    Recipe("balanced", {"max_depth": 4, "colsample_bytree": 0.6, "min_child_weight": 2, "eta": 0.15}, _balanced),
)
assert len(RECIPES) == MEMBERS


def grow(
    earlier: FeatureRows,
    fraud: Flags,
    later: FeatureRows,
    later_fraud: Flags,
    *,
    seed: int,
    nthread: int,
    step: Step | None = None,
    counts: tuple[Weights, Weights] | None = None,
) -> list[tuple[str, xgboost.Booster]]:
    """The three members, (name, model), grown on what models see of the earlier rows, and stopped early on what came later.

    `counts`: how often each row counts, of the earlier and of the later ones; None: once.
    """
    random = np.random.default_rng(seed)
    amounts = earlier.column(0).astype(np.float32)
    lost = _lost(len(earlier), random)
    of_each, of_later = counts or (np.float32(1), np.ones(len(later), np.float32))
    stop_on = partial(_pieces, later, later_fraud, of_later)
    members = []
    with TemporaryDirectory(prefix="assay-bins-") as folder:
        for recipe in RECIPES:
            weights = recipe.weigh(amounts, fraud, random) * of_each
            learnt = partial(_pieces, earlier, fraud, weights, lost)
            parameters = _COMMON | recipe.parameters | {"seed": seed, "nthread": nthread, "monotone_constraints": _SIGNS}
            rows = int((weights > 0).sum()), len(later)
            booster = _grow_one(learnt, stop_on, rows, folder, parameters, _callbacks(recipe.name, step))
            members.append((recipe.name, booster[: booster.best_iteration + 1]))
    return members


def _grow_one(
    learnt: Again,
    stop_on: Again,
    rows: tuple[int, int],
    folder: str,
    parameters: dict[str, Any],
    callbacks: list[xgboost.callback.TrainingCallback],
) -> xgboost.Booster:
    """rows: how many are learnt from, and how many say when to stop."""
    bins = {"max_bin": _MAX_BIN, "nthread": parameters["nthread"]}
    data = binned(learnt, rows[0], folder, **bins)
    later = binned(stop_on, rows[1], folder, **bins, ref=data)
    return xgboost.train(parameters, data, MAX_TREES, evals=[(later, "later")], verbose_eval=False, callbacks=callbacks)


def _pieces(rows: FeatureRows, fraud: Flags, weights: Weights, lost: Flags | None = None) -> Iterator[Piece]:
    """Rows that have a weight, with what models see of them but for what they have `lost`."""
    start = 0
    for part in rows.parts():
        stop = start + len(part)
        kept = weights[start:stop] > 0
        seen = part[kept, :MODEL_FEATURES]
        if lost is not None:
            of_part = lost[start:stop][kept]
            seen[of_part[:, 0], PROFILE_FEATURES:] = np.nan
            seen[:, _BATCH][of_part[:, 1:]] = np.nan
        yield seen, fraud[start:stop][kept], weights[start:stop][kept]
        start = stop


def _lost(count: int, random: np.random.Generator) -> Flags:
    """What rows have to do without, bool (count, 1 + BATCH_FEATURES): all that comes from Redis, and each batch feature."""
    shares = [WITHOUT_ENTITIES, *[WITHOUT_BATCH] * BATCH_FEATURES]
    return np.stack([random.random(count) < share for share in shares], axis=1)


_SIGNS = "(" + ",".join(str(feature.sign) for feature in FEATURES[:MODEL_FEATURES]) + ")"


def _callbacks(name: str, step: Step | None) -> list[xgboost.callback.TrainingCallback]:
    callbacks = [xgboost.callback.EarlyStopping(rounds=PATIENCE, metric_name="aucpr", maximize=True)]
    return [*callbacks, _Told(name, step)] if step is not None else callbacks


class _Told(xgboost.callback.TrainingCallback):
    def __init__(self, name: str, step: Step) -> None:
        super().__init__()
        self._name, self._step = name, step

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._step(self._name, epoch + 1)
        return False
