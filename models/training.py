"""From past transactions with labels to a bundle.

    by time:  | learn: the trees grow | tune: early stopping, calibration, thresholds | (gap) | held out: the report |

Features come from the same fold as the stream's. Nothing that came later teaches what is asked about what came before.
"""

from array import array
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.models.bundle import Bundle, write_bundle
from assay.models.calibration import fit_calibration
from assay.models.control_group import weights_of
from assay.models.costs import Costs, best_thresholds
from assay.models.ensemble import Ensemble, seen_in
from assay.models.evaluate import at_thresholds, ranking
from assay.models.feature_rows import FeatureRows, batch_coverage
from assay.models.forest import Forest, read_forest
from assay.models.form_parity import Form
from assay.models.forms import check, parity_of
from assay.models.manifest import SCORED_TIERS, Calibration, Thresholds, TierSettings
from assay.models.members import MAX_TREES, grow
from assay.models.outcome_history import outcome_history
from assay.models.progress import Progress, read_with_amounts, silent, steps
from assay.models.quality import more_of
from assay.models.reasons import SHIPPED
from assay.schemas.decision import Tier
from assay.schemas.errors import InputError
from assay.schemas.transaction import Transaction
from assay.tables.batch_history import BatchHistory
from assay.tables.changes import changes_of_labels
from assay.tables.events import first_times
from assay.tables.features import DAY, LABEL_DELAY_S, MODEL_FEATURES, NAMES
from assay.tables.rates import Rates
from assay.tables.replay import spilled_events, spilled_features
from assay.tables.spilled import Spilled

DAY_MS = 86_400_000
LABEL_DELAY_DAYS = LABEL_DELAY_S / DAY
MOST_COMPARED = 100_000  # payments, held out, of which the forms' scores are compared
LEAST_FRAUD = 10  # in the part that is learnt from, and in the one that is tuned on
_AMOUNT, _LOCAL_HOUR = NAMES.index("amount"), NAMES.index("local_hour")

Features = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Split:
    """How the rows are divided, by their time. Shares are of the rows that are used."""

    holdout: float = 0.15  # kept for the report
    tune: float = 0.2  # of what is not held out: its later part
    warm_up_days: float = 0.0  # the first days fill the profiles and teach nothing
    reviews_a_day: float | None = None  # that people can do; None: as many as pay off
    gap_days: float = 0.0  # left out before what is held out: labels that would not have been known yet


def train(
    transactions: Iterable[Transaction],
    labels: npt.ArrayLike | None,
    out: Path,
    *,
    rates: Rates,
    batch: BatchHistory | None = None,
    outcomes: Path | None = None,
    now_ms: int | None = None,
    label_delay_days: float = LABEL_DELAY_DAYS,
    costs: Costs | None = None,
    split: Split | None = None,
    labelled: npt.ArrayLike | None = None,
    shares: npt.NDArray[np.float64] | None = None,
    seed: int = 7,
    nthread: int = 2,
    progress: Progress | None = None,
) -> Bundle:
    """Train on transactions in the order of their time with their labels, bool (n,), True for fraud; write the bundle to `out`.

    `batch`: the batch features that were loaded meanwhile. `label_delay_days`: how long after a payment its fraud became known;
    features of later payments count it from then on. `outcomes`: a file that says when what became of them was known
    (`models.outcome_history`), in place of that; and what they were, where `labels` is None; those known after `now_ms` (epoch)
    are left out and counted. `labelled`, bool (n,): what has no
    label (yet) is neither fraud nor genuine; it fills the features of later payments, and nothing is learnt or measured on it.
    Nor is it on a payment that comes again: its first row counts. `shares` (n,): of what the control group let through the
    share of its like; else NaN.

    Raises InputError where there is too little fraud to learn from, BundleError where `out` can't be written.
    """
    told = progress or silent
    whole = array("q")
    events = spilled_events(read_with_amounts(transactions, whole, told), rates)
    heard = None if outcomes is None else outcome_history(outcomes, events, whole, now_ms=now_ms)
    fraud = np.asarray(labels if labels is not None or heard is None else heard.fraud, np.bool_)
    if labels is None and heard is not None:
        labelled = heard.labelled
    if len(events) != len(fraud):
        raise InputError("transactions and labels differ in number", expected=f"{len(events)} labels", got=str(len(fraud)))
    if len(events) and np.isnan(events["amount"]).all():
        raise InputError(
            "no amount can be converted: there is no rate for the currency of any payment",
            expected=f"currencies among {', '.join(sorted(rates.currencies))}",
            mend="correct the currency (--map currency=EUR), or give --rates",
        )
    firsts = first_times(events)
    labelled = firsts if labelled is None else firsts & np.asarray(labelled, np.bool_)
    if heard is None:
        changes, known_before = changes_of_labels(events, fraud, round(label_delay_days * DAY_MS))
    else:
        changes, known_before = heard.changes, heard.known_before
    replayed = steps("replay", len(fraud), told)
    features = spilled_features(events, replayed, batch=batch, changes=changes, known_before=known_before)
    return train_on_features(
        features,
        events["time_ms"].astype(np.int64),
        fraud,
        out,
        costs=costs,
        split=split,
        labelled=labelled,
        counts=None if shares is None else weights_of(shares),
        outcomes=None if heard is None else {"read": heard.outcomes, "unknown": heard.unknown, "future": heard.future},
        label_delay_days=label_delay_days,
        seed=seed,
        nthread=nthread,
        progress=told,
    )


def train_on_features(
    features: Features | Spilled,
    times_ms: Times,
    fraud: Flags,
    out: Path,
    *,
    costs: Costs | None = None,
    split: Split | None = None,
    labelled: Flags | None = None,
    counts: npt.NDArray[np.float64] | None = None,
    outcomes: dict[str, int] | None = None,
    label_delay_days: float = LABEL_DELAY_DAYS,
    seed: int = 7,
    nthread: int = 2,
    progress: Progress | None = None,
) -> Bundle:
    """The same from features, float32 (n, F), with the time (epoch ms) and label of each row, and whether it has one.

    `counts` (n,): for how many each stands, in the trees, the calibration and the thresholds; None: for itself. `outcomes`: how
    many there were of each kind, for the report.
    """
    costs, split, told = costs or Costs(), split or Split(), progress or silent
    learn, tune, held = divide(times_ms, fraud, split, labelled)
    tuned_on, held_out = (FeatureRows(features, tune), fraud[tune]), (FeatureRows(features, held), fraud[held])
    members = grow(
        FeatureRows(features, learn),
        fraud[learn],
        *tuned_on,
        seed=seed,
        nthread=nthread,
        counts=None if counts is None else (counts[learn].astype(np.float32), counts[tune].astype(np.float32)),
        step=lambda name, trees: told(f"grow {name}", trees, MAX_TREES),
    )
    raw = [bytes(model.save_raw("ubj")) for _, model in members]
    forest = read_forest(raw, MODEL_FEATURES)
    most_reviewed = _most_reviewed(times_ms[tune], split)
    of_tuned = None if counts is None else counts[tune]
    tiers = {tier: _tune(forest, tier, *tuned_on, costs, most_reviewed, of_tuned) for tier in SCORED_TIERS}
    amounts = _amounts(tuned_on[0])
    by_amount = best_thresholds(amounts, amounts, fraud[tune], costs, most_reviewed, of_tuned)
    report = {
        "learnt_from": _part(learn, times_ms, fraud),
        "tuned_on": _part(tune, times_ms, fraud),
        "held_out": _part(held, times_ms, fraud),
        "members": {name: model.num_boosted_rounds() for name, model in members},
        "seed": seed,
        "split": asdict(split),
        "tiers": {tier.value: _quality(forest, tier, settings, *held_out, costs) for tier, settings in tiers.items()},
        "amount_alone": _judged(_amounts(held_out[0]), *held_out, *by_amount, costs),
        "label_delay_days": label_delay_days,
        "outcomes": outcomes,  # None: known by labels alone
    }
    report |= _oddities(FeatureRows.all_of(features), labelled, counts)
    report |= more_of(forest, [name for name, _ in members], tiers[Tier.FULL], *held_out, times_ms[held], seed)
    shown = held_out[0].evenly(MOST_COMPARED)
    parity = parity_of(Form.COMPILED, forest, raw, tiers, shown.whole(), fraud[shown.numbers])
    check(Form.COMPILED, parity)
    manifest = {
        "form": Form.COMPILED,
        "parity": parity,
        "tiers": tiers,
        "label_delay_days": label_delay_days,
        "batch_coverage": batch_coverage(FeatureRows(features, learn)),
        "costs": costs,
        "summary": _summary(report),
    }
    return write_bundle(out, manifest, members, SHIPPED.read_bytes(), report)


def _oddities(rows: FeatureRows, labelled: Flags | None, counts: npt.NDArray[np.float64] | None) -> dict[str, int]:
    """How many rows are not like the others."""
    return {
        "left_out": 0 if labelled is None else int((~labelled).sum()),  # without a label, or repeated
        "control_group": 0 if counts is None else int((counts > 1).sum()),  # each stands for several
        "without_hour": int((rows.column(_LOCAL_HOUR) < 0).sum()),  # neither a time zone nor an offset tells the local time
        "without_rate": int(np.isnan(rows.column(_AMOUNT)).sum()),  # learnt from without their amount
    }


def _tune(
    forest: Forest,
    tier: Tier,
    rows: FeatureRows,
    fraud: Flags,
    costs: Costs,
    most_reviewed: int | None,
    counts: npt.NDArray[np.float64] | None,
) -> TierSettings:
    """Calibration and thresholds of a tier, from rows that no tree has seen."""
    margins = rows.each(lambda part: Ensemble(forest, {}).margin(seen_in(part, tier), tier))
    calibration = fit_calibration(margins, fraud, counts)
    scores = _scores(forest, tier, calibration, rows)
    review, decline = best_thresholds(scores, _amounts(rows), fraud, costs, most_reviewed, counts)
    return TierSettings(calibration=calibration, thresholds=Thresholds(review=review, decline=decline))


def _most_reviewed(times_ms: Times, split: Split) -> int | None:
    """How many of these payments people can review."""
    if split.reviews_a_day is None:
        return None
    return int(split.reviews_a_day * float(times_ms.max() - times_ms.min()) / DAY_MS)


def _quality(
    forest: Forest, tier: Tier, settings: TierSettings, rows: FeatureRows, fraud: Flags, costs: Costs
) -> dict[str, Any]:
    scores = _scores(forest, tier, settings.calibration, rows)
    return _judged(scores, rows, fraud, settings.thresholds.review, settings.thresholds.decline, costs)


def _scores(forest: Forest, tier: Tier, calibration: Calibration, rows: FeatureRows) -> npt.NDArray[np.float64]:
    ensemble = Ensemble(forest, {tier: calibration})
    return rows.each(lambda part: ensemble.score(seen_in(part, tier), tier)[0])


def divide(
    times_ms: Times, fraud: Flags, split: Split, labelled: Flags | None = None
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Row numbers to learn from, to tune on and held out, in the order of time. Raises InputError where fraud is missing."""
    order = np.argsort(times_ms, kind="stable")
    if len(order):
        order = order[times_ms[order] >= times_ms[order[0]] + split.warm_up_days * DAY_MS]
    if labelled is not None:
        order = order[labelled[order]]
    held_from = len(order) - round(len(order) * split.holdout)
    held, before = order[held_from:], order[:held_from]
    if len(held):
        before = before[times_ms[before] < times_ms[held[0]] - split.gap_days * DAY_MS]
    tune_from = len(before) - round(len(before) * split.tune)
    learn, tune = before[:tune_from], before[tune_from:]
    for name, part in (("learn from", learn), ("tune on", tune)):
        if fraud[part].sum() < LEAST_FRAUD or fraud[part].all():
            raise InputError(
                f"too little to {name}: {int(fraud[part].sum())} fraud in {len(part)} transactions",
                expected=f"at least {LEAST_FRAUD} fraud, and genuine payments, in each part",
                mend="give a longer history, or hold out less",
            )
    return learn, tune, held


def _amounts(rows: FeatureRows) -> npt.NDArray[np.float64]:
    return np.nan_to_num(rows.column(_AMOUNT))


def _part(rows: npt.NDArray[np.intp], times_ms: Times, fraud: Flags) -> dict[str, Any]:
    times = times_ms[rows]
    span = {"from_ms": int(times.min()), "to_ms": int(times.max())} if len(rows) else {}
    return {"transactions": len(rows), "fraud": int(fraud[rows].sum())} | span


def _judged(
    scores: npt.NDArray[np.float64], rows: FeatureRows, fraud: Flags, review: float, decline: float, costs: Costs
) -> dict[str, Any]:
    return ranking(scores, fraud) | at_thresholds(scores, _amounts(rows), fraud, review, decline, costs)


def _summary(report: dict[str, Any]) -> dict[str, Any]:
    kept = ("average_precision", "auc", "money_saved")
    return {
        "trained_on": report["learnt_from"]["transactions"],
        "trained_fraud": report["learnt_from"]["fraud"],
        "held_out": report["held_out"]["transactions"],
        "held_out_fraud": report["held_out"]["fraud"],
        "tiers": {tier: {name: quality[name] for name in kept} for tier, quality in report["tiers"].items()},
    }
