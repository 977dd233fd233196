"""What a data scientist asks of held-out payments besides the ranking: curves, calibration, money, members, segments, weeks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.models.ensemble import Ensemble
from assay.models.evaluate import ranking
from assay.models.feature_rows import FeatureRows
from assay.models.forest import Forest, walk
from assay.models.manifest import TierSettings
from assay.schemas.decision import Tier
from assay.schemas.transaction import Channel, Kind
from assay.tables.features import MODEL_FEATURES, NAMES

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Times = npt.NDArray[np.int64]

WEEK_MS = 7 * 86_400_000
POINTS, BINS, DRAWS = 60, 10, 200
EXPLAINED = 400  # payments: an explanation costs as much as sixty scores
_YES = {-1: "unknown", 0: "no", 1: "yes"}
_SEGMENTS: Mapping[str, Mapping[int, str]] = {  # feature -> what its values are called
    "channel": {0: "not said"} | {1 + index: channel.value for index, channel in enumerate(Channel)},
    "kind": {index: kind.value for index, kind in enumerate(Kind)},
    "weekend": _YES,
    "night": _YES,
}


def more_of(
    forest: Forest, names: Sequence[str], full: TierSettings, held: FeatureRows, fraud: Flags, times_ms: Times, seed: int
) -> dict[str, Any]:
    """Of the tier full on what was held out, n rows: for the report, beside the tiers. Empty without fraud."""
    if fraud.all() or not fraud.any():
        return {}
    ensemble = Ensemble(forest, {Tier.FULL: full.calibration})
    scores = held.each(lambda part: ensemble.score(part, Tier.FULL)[0])
    amounts = np.nan_to_num(held.column(NAMES.index("amount")))
    return {
        "curves": curves(scores, amounts, fraud),
        "calibration": calibration(scores, fraud),
        "ensemble": against_members(held.each(lambda part: walk(forest, part)), names, fraud, seed),
        "importance": importance(ensemble, held),
        "segments": segments(scores, held, amounts, fraud),
        "weeks": weeks(scores, times_ms, fraud),
    }


def curves(scores: Floats, amounts: Floats, fraud: Flags) -> dict[str, list[float]]:
    """As more and more payments are stopped, the most suspicious first: recall, precision, false alarms, amount of fraud."""
    order = np.argsort(-scores, kind="stable")
    hits, alarms, money = np.cumsum(fraud[order]), np.cumsum(~fraud[order]), np.cumsum((amounts * fraud)[order])
    # Closer together at the beginning, where the thresholds lie.
    at = np.unique(np.geomspace(1, len(order), POINTS).astype(np.int64)) - 1
    parts = {
        "stopped": (at + 1) / len(order),
        "recall": hits[at] / hits[-1],
        "precision": hits[at] / (at + 1),
        "false_alarms": alarms[at] / max(1, alarms[-1]),
        "fraud_amount": money[at] / max(money[-1], 1e-9),
    }
    return {name: [round(float(value), 5) for value in values] for name, values in parts.items()}


def calibration(scores: Floats, fraud: Flags) -> list[dict[str, float]]:
    """In tenths of the scores, each on a scale of its own: what was said, what was true, of how many."""
    edges = np.unique(np.quantile(scores, [*np.linspace(0, 0.9, BINS), 0.97, 0.99, 0.997]))
    which = np.searchsorted(edges, scores, side="right")
    return [
        {
            "said": round(float(scores[which == one].mean()), 6),
            "true": round(float(fraud[which == one].mean()), 6),
            "transactions": int((which == one).sum()),
        }
        for one in np.unique(which)
    ]


def against_members(margins: Floats, names: Sequence[str], fraud: Flags, seed: int) -> dict[str, Any]:
    """Average precision of each member and of all, margins (n, M); and by how much all beat the best, with a paired bootstrap.

    `beats_best` only where the whole of the middle 95% of the draws lies above 0.
    """
    every = [_precision(margins[:, member], fraud) for member in range(margins.shape[1])]
    best, together = int(np.argmax(every)), margins.mean(axis=1)
    random, differences = np.random.default_rng(seed), []
    for _ in range(DRAWS):
        drawn = random.integers(0, len(fraud), len(fraud))
        if fraud[drawn].any():
            differences.append(_precision(together[drawn], fraud[drawn]) - _precision(margins[drawn, best], fraud[drawn]))
    low, high = np.quantile(differences, [0.025, 0.975])
    return {
        "members": {name: round(value, 6) for name, value in zip(names, every, strict=True)},
        "together": round(_precision(together, fraud), 6),
        "best_member": names[best],
        "above_best": [round(float(low), 6), round(float(high), 6)],
        "beats_best": bool(low > 0),
    }


def importance(ensemble: Ensemble, held: FeatureRows) -> list[dict[str, Any]]:
    """How far each feature moved log-odds, in the mean of a sample evenly over time; the largest first."""
    moved = ensemble.contributions(held.evenly(EXPLAINED).whole(), Tier.FULL)
    means = np.abs(moved).mean(axis=0)
    order = np.argsort(-means[:MODEL_FEATURES], kind="stable")
    return [{"feature": NAMES[column], "log_odds": round(float(means[column]), 5)} for column in order if means[column] > 0]


def segments(scores: Floats, held: FeatureRows, amounts: Floats, fraud: Flags) -> list[dict[str, Any]]:
    """The ranking within parts of the payments: by amount, by what the payment says, and of users new within a week."""
    quarter = np.searchsorted(np.quantile(amounts, [0.25, 0.5, 0.75]), amounts)
    parts = [(f"amount, quarter {one + 1}", quarter == one) for one in range(4)]
    parts.append(("user seen less than 7 days", held.column(NAMES.index("user_age_s")) < WEEK_MS / 1000))
    for name, values in _SEGMENTS.items():
        column = held.column(NAMES.index(name))
        parts += [
            (f"{name}: {values.get(int(value), int(value))}", column == value) for value in np.unique(column[~np.isnan(column)])
        ]
    return [_part(name, scores[rows], fraud[rows]) for name, rows in parts if rows.any() and not rows.all()]


def weeks(scores: Floats, times_ms: Times, fraud: Flags) -> list[dict[str, Any]]:
    """The ranking week by week, from the first held-out payment on."""
    week = (times_ms - times_ms.min()) // WEEK_MS
    return [_part(f"week {one + 1}", scores[week == one], fraud[week == one]) for one in np.unique(week)]


def _part(name: str, scores: Floats, fraud: Flags) -> dict[str, Any]:
    said = round(float(scores.mean()), 6)
    return {"name": name, "transactions": len(fraud), "fraud": int(fraud.sum()), "mean_score": said} | ranking(scores, fraud)


def _precision(scores: Floats, fraud: Flags) -> float:
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(fraud[order])
    return float((hits / np.arange(1, len(hits) + 1))[fraud[order]].sum() / hits[-1])
