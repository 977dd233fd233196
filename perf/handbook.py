"""Scores by the Fraud Detection Handbook's protocol: `make handbook`. `docs/handbook.md` says how it was chosen."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path

import numpy as np
from command import ended, positive
from handbook_data import Payments, read_payments
from handbook_folds import CHOSEN_ON, LATER, REPORTED, fold, published
from handbook_models import Floats, columns, judged, scores, surer

from assay.deploy.progress_bars import progress_bars

DATA = Path(__file__).parents[2] / "shared" / "data" / "handbook-transactions.parquet"
CACHE = Path(__file__).parents[1] / ".cache"

EXAMPLES = """\
examples:
  make handbook                                            the four folds that are reported, and three later ones
  make handbook HANDBOOK=~/handbook-transactions.parquet   the data lie elsewhere
  make handbook ARGS=--choosing                            the earlier weeks alone, on which all was chosen

The first run replays 1.75 million transactions (two minutes), kept in .cache/. The last line is one JSON object.
"""

Report = Callable[[str, int, int], None]


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make handbook", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = Path(os.environ.get("HANDBOOK") or DATA)
    parser.add_argument(
        "--data", type=Path, default=data, help="the transactions, Parquet, or their folder (default: %(default)s)"
    )
    parser.add_argument("--choosing", action="store_true", help="only the earlier weeks, on which all was chosen")
    parser.add_argument("--draws", type=positive, default=500, help="of the paired bootstrap (default: %(default)s)")
    parser.add_argument("--threads", type=positive, default=2, help="processor cores for training (default: %(default)s)")
    plan = parser.parse_args(given)
    if plan.data.is_dir():
        plan.data = plan.data / DATA.name
    return plan


def run(plan: argparse.Namespace) -> Mapping[str, object]:
    with progress_bars() as told:
        payments = read_payments(plan.data, CACHE, told)
        contest = Contest(payments, plan.threads, told)
        if plan.choosing:
            mine, _ = contest.held("earlier", CHOSEN_ON)
        else:
            mine, _ = contest.held("reported", REPORTED)
            contest.compared(LATER, plan.draws)
    print("\n".join(contest.lines))
    return {
        "average_precision": round(mine["average_precision"], 4),
        "card_precision_100": round(mine["card_precision_100"], 4),
        "auc": round(mine["auc"], 4),
        "folds": mine["folds"],
        "replay_per_s": payments.replay_per_s,
    }


class Contest:
    """Our features and the 15 published ones on the same folds, with the same learner."""

    def __init__(self, payments: Payments, threads: int, told: Report) -> None:
        self._payments, self._threads, self._told = payments, threads, told
        self._ours, self._theirs = columns(payments), published(payments)
        self.lines = [
            "| learnt from | features | average precision | card precision 100 | AUC |",
            "| --- | --- | --- | --- | --- |",
        ]

    def held(self, name: str, starts: Sequence[date]) -> tuple[dict[str, float], tuple[list[Floats], list[Floats]]]:
        """The means of ours over the folds; and the margins of both on each."""
        folds = [fold(self._payments, start) for start in starts]
        ours, theirs = list[Floats](), list[Floats]()
        for number, one in enumerate(folds, 1):
            ours.append(scores(*self._ours, self._payments.fraud, one, self._threads))
            theirs.append(scores(self._theirs, None, self._payments.fraud, one, self._threads))
            self._told(f"{name} folds", number, len(folds))
        means = {}
        for whose, margins in (("Assay's", ours), ("the 15 published", theirs)):
            found = [judged(self._payments, one, margin) for one, margin in zip(folds, margins, strict=True)]
            for start, figures in zip(starts, found, strict=True):
                self._line(f"{start:%m-%d}", whose, figures)
            means[whose] = {key: float(np.mean([figures[key] for figures in found])) for key in found[0]}
            self._line(f"mean of {len(folds)}", whose, means[whose])
        return means["Assay's"] | {"folds": len(folds)}, (ours, theirs)

    def compared(self, starts: Sequence[date], draws: int) -> None:
        """The same folds for both, and whether the difference could be chance."""
        _, (ours, theirs) = self.held("later", starts)
        done = iter(range(draws + 1))
        folds = [fold(self._payments, start) for start in starts]
        found, low, high = surer(
            self._payments, folds, ours, theirs, draws, lambda: self._told("bootstrap", next(done) + 1, draws + 1)
        )
        self.lines.append(
            f"\nOn the {len(starts)} later folds ours are {found:+.4f} average precision above the published features; 95% of "
            f"a paired bootstrap of {draws} draws of customers: {low:+.4f} to {high:+.4f}."
        )

    def _line(self, when: str, whose: str, figures: Mapping[str, float]) -> None:
        parts = (f"{figures[key]:.4f}" for key in ("average_precision", "card_precision_100", "auc"))
        self.lines.append(f"| {when} | {whose} | {' | '.join(parts)} |")


def main(given: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 2 after an error, 130 after Ctrl-C."""
    plan = arguments(given)
    return ended(lambda: run(plan))


if __name__ == "__main__":
    sys.exit(main())
