"""The forms that the ensemble can take, side by side: `python perf/models.py --help`. `perf/README.md` says more."""

import argparse
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from command import ended, positive
from model_forms import REFERENCE, SERVED, Form, forms
from model_rows import LATER_SEED, bundle_of, simulated

from assay.models.bundle import Bundle
from assay.models.ensemble import Ensemble
from assay.models.form_parity import compare
from assay.schemas.decision import Tier
from assay.tables.features import MODEL_FEATURES

SIZES = (1, 8, 32, 128, 256)
SLICE_S = 0.02  # of one form at one size, before the next has its turn

EXAMPLES = """\
examples:
  make bench-models                                a minute
  python perf/models.py --bundle .assay/bundle     of a bundle of your own, on simulated payments
  python perf/models.py --repeat 30                on a noisy machine

The last line of stdout is one JSON object.
"""

Floats = npt.NDArray[np.float32]
Spent = dict[str, dict[int, list[float]]]  # form, size: microseconds a row of each repeat


def measure(contenders: Mapping[str, Form], rows: Floats, repeat: int) -> Spent:
    """Forms take turns, so that a slow moment of the machine is shared. `rows`: float32 (n, M), n >= 256."""
    spent: Spent = {name: {size: [] for size in SIZES} for name in contenders}
    for _ in range(repeat + 1):
        for size in SIZES:
            for name, form in contenders.items():
                spent[name][size].append(_us(form, rows, size))
    return {name: {size: times[1:] for size, times in of.items()} for name, of in spent.items()}  # the first warms up


def _us(form: Form, rows: Floats, size: int) -> float:
    """Microseconds a row, in micro-batches of that size."""
    done, began, at = 0, time.perf_counter(), 0
    while (took := time.perf_counter() - began) < SLICE_S or not done:
        form(rows[at : at + size])
        done, at = done + size, (at + size) % (len(rows) - size + 1)
    return took / done * 1e6


def table(spent: Spent) -> str:
    """Minimum / median / maximum, in Markdown."""
    lines = [f"| us a row, by rows in a micro-batch | {' | '.join(map(str, SIZES))} |", "| --- " * (len(SIZES) + 1) + "|"]
    for name, of in spent.items():
        cells = [f"{min(times):.2f} / {statistics.median(times):.2f} / {max(times):.2f}" for times in of.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def parity_table(bundle: Bundle, contenders: Mapping[str, Form], features: Floats, fraud: npt.NDArray[np.bool_]) -> str:
    """How scores, average precision and actions differ from those of XGBoost, in Markdown."""
    tier = bundle.manifest.tiers[Tier.FULL]
    thresholds = (tier.thresholds.review, tier.thresholds.decline)

    def scores(form: Form) -> npt.NDArray[np.float64]:
        of_members = Ensemble(bundle.ensemble.forest, {Tier.FULL: tier.calibration}, lambda rows, asked: form(rows))
        return of_members.score(features, Tier.FULL)[0]

    expected = scores(contenders[REFERENCE])
    lines = ["| beside XGBoost, three boosters | largest difference of a score | average precision | actions changed |"]
    lines.append("| --- " * 4 + "|")
    for name, form in contenders.items():
        found = compare(scores(form), expected, thresholds, fraud)
        precision = found.average_precision_difference
        lines.append(f"| {name} | {found.score_difference:.6f} | {precision:.6f} | {found.actions_changed} of {found.rows:,} |")
    return "\n".join(lines)


def run(bundle: Bundle, count: int, repeat: int) -> dict[str, Any]:
    """Measure, compare and print; the figures for the last line are minimums, the steadiest where others work."""
    features, _, fraud = simulated(LATER_SEED, count)
    rows, contenders = np.ascontiguousarray(features[:, :MODEL_FEATURES]), forms(bundle)
    spent = measure(contenders, rows, repeat)
    forest = bundle.ensemble.forest
    depths = " / ".join(map(str, forest.depths))
    print(f"{len(forest.leaf)} trees of depth {depths}, {forest.features} features; {repeat} repeats.\n")
    print(table(spent), parity_table(bundle, contenders, rows, fraud), sep="\n\n", end="\n\n")
    least = {name: {str(size): round(min(times), 2) for size, times in of.items()} for name, of in spent.items()}
    served = least[SERVED]
    fastest = {size: min(least, key=lambda name: least[name][size]) for size in served}
    gain = round(served[str(SIZES[0])] / served[str(SIZES[-1])], 2)
    return {"us_per_row": least, "fastest": fastest, "served": SERVED, "batch_gain": gain}


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="perf/models.py",
        description="Measure the forms of the ensemble side by side, by the size of the micro-batch.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bundle", type=Path, help="use this bundle instead of training one")
    parser.add_argument("--history", type=positive, default=60_000, help="simulated payments to train on (%(default)s)")
    parser.add_argument("--transactions", type=positive, default=20_000, help="payments to score (%(default)s)")
    parser.add_argument("--repeat", type=positive, default=9, help="turns of each form (%(default)s)")
    plan = parser.parse_args()
    if plan.transactions < max(SIZES):
        parser.error(f"--transactions has to be at least {max(SIZES)}")

    def measured() -> dict[str, Any]:
        with bundle_of(plan.bundle, plan.history) as bundle:
            return run(bundle, plan.transactions, plan.repeat)

    return ended(measured)


if __name__ == "__main__":
    sys.exit(main())
