"""The forms in which an ensemble can be served.

compiled  our own walk (`models.walks`): on a CPU the fastest for every micro-batch (`make bench-models`), and the default
xgboost   XGBoost's own prediction, on the CPU: undoes the walk
cuda      XGBoost's own prediction, on a GPU, where one is there (optional extra `gpu`)
"""

import json
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import xgboost

from assay.models.ensemble import Ensemble, Margins, seen_in
from assay.models.forest import Forest, walk
from assay.models.form_parity import Form, Parity, compare
from assay.models.manifest import TierSettings
from assay.schemas.decision import Tier
from assay.schemas.errors import BundleError

_PROBED = 67  # rows

Floats = npt.NDArray[np.float32]


def margins_in(form: Form, forest: Forest, members: Sequence[bytes]) -> Margins:
    """What computes margins in that form, of members given as XGBoost's UBJSON. Raises BundleError where it can't be had."""
    if form is Form.COMPILED:
        return lambda features, asked: walk(forest, features, asked)
    device = "cuda" if form is Form.CUDA else "cpu"
    boosters = [xgboost.Booster({"nthread": 1}, model_file=bytearray(member)) for member in members]
    for booster in boosters:
        _move(booster, device)
    count = forest.features

    def margins(features: Floats, asked: int) -> Floats:
        rows = np.ascontiguousarray(features[:, :count])
        if not len(rows):
            return np.empty((0, asked), np.float32)
        if device == "cpu":
            of_each = [booster.inplace_predict(rows, predict_type="margin") for booster in boosters[:asked]]
        else:
            matrix = xgboost.DMatrix(rows, nthread=1)
            of_each = [booster.predict(matrix, output_margin=True) for booster in boosters[:asked]]
        return np.stack(of_each, axis=1)

    return margins


def _move(booster: xgboost.Booster, device: str) -> None:
    """To the device, or an error: XGBoost itself goes on with the CPU where there is no GPU, and only warns."""
    if device == "cuda" and not xgboost.build_info().get("USE_CUDA"):
        raise BundleError(
            "models can't be served in form cuda: this XGBoost is built without it",
            expected="an XGBoost with CUDA",
            got=f"xgboost {xgboost.__version__} for the CPU",
            mend="pip uninstall xgboost-cpu, then pip install --force-reinstall xgboost; or ASSAY_MODEL_FORM=compiled",
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        booster.set_param({"device": device})
        found = json.loads(booster.save_config())["learner"]["generic_param"].get("device", "cpu")
    if not str(found).startswith(device):
        raise BundleError(
            "models can't be served in form cuda: there is no GPU",
            expected="a CUDA device that this process may use",
            got=f"XGBoost fell back to {found}",
            mend="give the worker a GPU, or ASSAY_MODEL_FORM=compiled",
        )


def served_in(form: Form, forest: Forest, members: Sequence[bytes], tiers: Mapping[Tier, TierSettings]) -> Margins:
    """The same, once it has passed the gate on made-up rows. Raises BundleError.

    The compiled walk has none to pass: a bundle compares it with XGBoost when it is read.
    """
    if form is not Form.COMPILED:
        check(form, parity_of(form, forest, members, tiers, probe(forest)))
    return margins_in(form, forest, members)


def probe(forest: Forest) -> Floats:
    """Made-up rows that end at many leaves, missing values among them."""
    random = np.random.default_rng(0)
    thresholds = np.append(np.unique(forest.slots["threshold"]), np.float32(0))
    rows = random.choice(thresholds, (_PROBED, forest.features)).astype(np.float32)
    rows[random.random(rows.shape) < 0.1] = np.nan
    return rows


def parity_of(
    form: Form,
    forest: Forest,
    members: Sequence[bytes],
    tiers: Mapping[Tier, TierSettings],
    features: Floats,
    fraud: npt.NDArray[np.bool_] | None = None,
) -> dict[Tier, Parity]:
    """How a form compares with XGBoost on the CPU over rows (n, F), with the calibration and thresholds of each tier."""
    forms = [margins_in(one, forest, members) for one in (form, Form.XGBOOST)]
    found = {}
    for tier, settings in tiers.items():
        rows, calibrations = seen_in(features, tier), {tier: settings.calibration}
        scores = [Ensemble(forest, calibrations, margins).score(rows, tier)[0] for margins in forms]
        found[tier] = compare(scores[0], scores[1], (settings.thresholds.review, settings.thresholds.decline), fraud)
    return found


def check(form: Form, parities: Mapping[Tier, Parity]) -> None:
    """The gate. Raises BundleError for the first tier in which the form does not hold."""
    for tier, parity in parities.items():
        if not parity.holds:
            raise BundleError(
                f"form {form} does not score as XGBoost on the CPU does, in the tier {tier}",
                expected="the same actions, and the same scores but for their last digit",
                got=f"{parity.actions_changed} of {parity.rows} actions changed, scores by up to {parity.score_difference:.2g}",
                mend="ASSAY_MODEL_FORM=compiled",
            )
