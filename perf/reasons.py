"""Whether reasons are the right ones, and what they cost: `python perf/reasons.py --help`. `perf/README.md` says more."""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xgboost
from command import ended, positive
from model_rows import LATER_SEED, bundle_of, simulated

from assay.models.bundle import Bundle
from assay.models.reasons import heaviest
from assay.schemas.decision import Tier
from assay.schemas.errors import InputError
from assay.schemas.limits import MAX_REASONS
from assay.tables.features import MODEL_FEATURES

REPEATS = 5
EXAMPLES = """\
examples:
  make reasons                                     half a minute
  python perf/reasons.py --bundle .assay/bundle    of a bundle of your own, on simulated payments

The last line of stdout is one JSON object.
"""

Floats = npt.NDArray[np.float32]


def measure(bundle: Bundle, count: int) -> dict[str, float]:
    """Compare with XGBoost on the reviews and declines of so many payments. Raises InputError where there are none."""
    features, _, _ = simulated(LATER_SEED, count)
    score, _ = bundle.ensemble.score(features, Tier.FULL)
    rows = np.ascontiguousarray(features[score >= bundle.thresholds[Tier.FULL][0]])
    if not len(rows):
        raise InputError("no payment is reviewed or declined", expected="at least one", mend="give more --transactions")
    families = bundle.catalogue.families
    exact, path = (_heaviest(_by_xgboost(bundle, rows, approx_contribs=way), rows, families) for way in (False, True))
    columns, _ = heaviest(bundle.ensemble.contributions(rows, Tier.FULL), rows, families)
    ours = [[int(families[column]) for column in row if column >= 0] for row in columns]
    spent = _us(lambda: bundle.catalogue.reasons(bundle.ensemble.contributions(rows, Tier.FULL), rows), len(rows))
    scoring = _us(lambda: bundle.ensemble.score(features, Tier.FULL), len(features))
    print(f"{len(rows):,} reviews and declines of {len(features):,} simulated payments; bundle {bundle.version[:12]}.\n")
    print("| reasons by | of the exact top 4 | the same first |\n| --- | --- | --- |")
    for name, found in (("Assay", ours), ("differences along the path (XGBoost's approximation)", path)):
        same_first = np.mean([a[:1] == b[:1] for a, b in zip(found, exact, strict=True)])
        print(f"| {name} | {_overlap(found, exact):.3f} | {same_first:.3f} |")
    print(f"\nus a row, minimum / median / maximum: {_spread(spent)} with texts; {_spread(scoring)} to score.")
    share = len(rows) / len(features)
    print(f"{share:.1%} of all payments are explained: {min(spent) * share:.2f} us a payment.")
    return {"overlap_top4": round(_overlap(ours, exact), 4), "us_per_row": round(statistics.median(spent), 1)}


def _by_xgboost(bundle: Bundle, rows: Floats, *, approx_contribs: bool) -> npt.NDArray[np.float64]:
    """Contributions of each feature to the sum of the members' margins, without ours."""
    matrix = xgboost.DMatrix(rows[:, :MODEL_FEATURES], nthread=1)
    total = np.zeros((len(rows), MODEL_FEATURES))
    for member in bundle.manifest.members:
        model = xgboost.Booster({"nthread": 1}, model_file=bundle.path / member.file)
        total += model.predict(matrix, pred_contribs=True, approx_contribs=approx_contribs)[:, :-1]
    return total


def _heaviest(contributions: npt.NDArray[np.float64], rows: Floats, families: npt.NDArray[np.int16]) -> list[list[int]]:
    """The families that weigh most in each row, heaviest first, without ours."""
    known = np.where(np.isnan(rows[:, :MODEL_FEATURES]), 0.0, contributions)
    weights = np.abs(known @ np.eye(int(families.max()) + 1)[families])
    order = np.argsort(-weights, axis=1, kind="stable")[:, :MAX_REASONS]
    return [[int(of) for of in row if weight[of] > 0] for row, weight in zip(order, weights, strict=True)]


def _overlap(found: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> float:
    """The mean share of what is wanted that was found."""
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found, wanted, strict=True) if b]))


def _us(call: Callable[[], object], rows: int) -> list[float]:
    """Microseconds a row, each time; the first call, in which something may be set up, is not counted."""
    call()
    spent = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        spent.append((time.perf_counter() - began) / rows * 1e6)
    return spent


def _spread(spent: Sequence[float]) -> str:
    return f"{min(spent):.2f} / {statistics.median(spent):.2f} / {max(spent):.2f}"


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="perf/reasons.py",
        description="Compare the reasons of reviews and declines with XGBoost's exact TreeSHAP.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bundle", type=Path, help="use this bundle instead of training one")
    parser.add_argument("--history", type=positive, default=60_000, help="simulated payments to train on (%(default)s)")
    parser.add_argument("--transactions", type=positive, default=40_000, help="later payments, of other people (%(default)s)")
    plan = parser.parse_args()

    def run() -> dict[str, float]:
        with bundle_of(plan.bundle, plan.history) as bundle:
            return measure(bundle, plan.transactions)

    return ended(run)


if __name__ == "__main__":
    sys.exit(main())
