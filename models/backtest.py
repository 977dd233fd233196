"""Judging past transactions as the stream would have: the same fold, the same judge, and what that would have saved."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.models.costs import Costs
from assay.models.evaluate import outcome, ranking
from assay.models.history import DAY_MS, History
from assay.models.judge import Judge, Verdicts
from assay.models.progress import Progress, read_with_amounts, silent, steps
from assay.schemas.decision import Action, Tier
from assay.schemas.limits import MAX_BATCH_TRANSACTIONS
from assay.schemas.transaction import Transaction
from assay.tables.batch_history import BatchHistory
from assay.tables.changes import Changes, changes_of_labels, with_declines
from assay.tables.events import first_times
from assay.tables.features import DAY, LABEL_DELAY_S, NAMES
from assay.tables.rates import Rates
from assay.tables.replay import spilled_events, spilled_features
from assay.tables.spilled import Spilled

_AMOUNT = NAMES.index("amount")

ChangesOf = Callable[[Spilled, Sequence[int]], tuple[Changes, npt.NDArray[np.int64]]]


@dataclass(frozen=True, slots=True)
class Judged:
    """One micro-batch of a backtest."""

    start: int  # row in the history
    transactions: list[Transaction]
    features: npt.NDArray[np.float32]
    verdicts: Verdicts
    firsts: npt.NDArray[np.bool_]  # False where a transaction comes again: its verdict is repeated, and counts once


def judge_history(
    history: History,
    judge: Judge,
    rates: Rates,
    *,
    batch: BatchHistory | None = None,
    first: int = 0,
    tier: Tier = Tier.FULL,
    label_delay_days: float = LABEL_DELAY_S / DAY,
    changes: ChangesOf | None = None,
    own_declines: bool = False,
    progress: Progress | None = None,
) -> Iterator[Judged]:
    """Verdicts of a history in micro-batches, in its order, from row `first` on; the rows before only fill the profiles.

    `batch`: the batch features that were loaded meanwhile. `label_delay_days`: how long after a payment its label became known,
    where there are labels; later payments count it from then on. `changes`: says so in place of labels, of all events and the
    amounts of their transactions, in thousandths of their own currency (`models.outcome_history`). `own_declines`: rules see
    what this judge would have declined before, in the tier full, which is found by judging once more; else nothing ever was.

    Raises InputError where a row can't be used.
    """
    told = progress or silent
    total = len(history)
    whole = array("q")
    events = spilled_events(read_with_amounts(history, whole, told), rates)
    fraud = np.zeros(total, np.bool_) if history.labels is None else history.labels
    if changes is None:
        known, known_before = changes_of_labels(events, fraud, round(label_delay_days * DAY_MS))
    else:
        known, known_before = changes(events, whole)
    features = spilled_features(events, steps("replay", total, told), batch=batch, changes=known, known_before=known_before)
    firsts = first_times(events)
    if own_declines and tier is Tier.FULL:
        before = _judge(history, features, firsts, judge, tier, 0, partial(told, "judge, for our own declines"))
        declined = [action is Action.DECLINE for judged in before for action in judged.verdicts.action]
        known, known_before = with_declines(events, np.array(declined), known, known_before)
        del features  # the next are as large
        again = steps("replay, with our own declines", total, told)
        features = spilled_features(events, again, batch=batch, changes=known, known_before=known_before)
    yield from _judge(history, features, firsts, judge, tier, first, partial(told, "judge"))


def _judge(
    history: History,
    features: Spilled,
    firsts: npt.NDArray[np.bool_],
    judge: Judge,
    tier: Tier,
    first: int,
    told: Callable[[int, int], None],
) -> Iterator[Judged]:
    total = len(history)
    for start in range(first, total, MAX_BATCH_TRANSACTIONS):
        stop = min(start + MAX_BATCH_TRANSACTIONS, total)
        transactions = history.part(start, stop)
        rows = features[start:stop]
        yield Judged(start, transactions, rows, judge.judge(transactions, rows, tier), firsts[start:stop])
        told(stop - first, total - first)


class Tally:
    """Adds up a backtest; of a transaction that comes again its first time."""

    def __init__(self) -> None:
        self.actions: Counter[str] = Counter()
        self.rules: Counter[str] = Counter()
        self.failures: dict[str, str] = {}
        self.repeated = 0
        self._severe: list[npt.NDArray[np.int8]] = []
        self._scores: list[npt.NDArray[np.float64]] = []
        self._amounts: list[npt.NDArray[np.float32]] = []
        self._firsts: list[npt.NDArray[np.bool_]] = []

    def add(self, judged: Judged) -> None:
        verdicts, firsts = judged.verdicts, judged.firsts
        self.actions.update(action.value for action, first in zip(verdicts.action, firsts, strict=True) if first)
        self.rules.update(rule for rules, first in zip(verdicts.rules, firsts, strict=True) if first for rule in rules)
        self.repeated += int((~firsts).sum())
        self._firsts.append(firsts)
        self.failures.update(dict(verdicts.failures))
        self._severe.append(np.array([list(Action).index(action) for action in verdicts.action], np.int8))
        self._scores.append(verdicts.score)
        self._amounts.append(judged.features[:, _AMOUNT])

    def summary(
        self, fraud: npt.NDArray[np.bool_] | None, costs: Costs, labelled: npt.NDArray[np.bool_] | None = None
    ) -> dict[str, Any]:
        """Counts, and with labels, bool (n,), ranking and money; beside them as many alerts by amount alone.

        Those that are not `labelled`, bool (n,), are neither fraud nor genuine, and count in neither ranking nor money.
        """
        summary: dict[str, Any] = {
            "transactions": sum(self.actions.values()),
            "repeated": self.repeated,
            "actions": {action.value: self.actions[action.value] for action in Action},
            "rules": dict(self.rules.most_common()),
            "failed_rules": self.failures,
        }
        if fraud is None or not self._scores:
            return summary
        kept = np.concatenate(self._firsts)
        if labelled is not None:
            kept &= labelled
        actions, scores, fraud = np.concatenate(self._severe)[kept], np.concatenate(self._scores)[kept], fraud[kept]
        amounts = np.nan_to_num(np.concatenate(self._amounts).astype(np.float64))[kept]
        declined, reviewed = actions == list(Action).index(Action.DECLINE), actions == list(Action).index(Action.REVIEW)
        rank = np.empty(len(amounts), np.int64)
        rank[np.argsort(-amounts, kind="stable")] = np.arange(len(amounts))
        by_amount = (rank < declined.sum(), (rank >= declined.sum()) & (rank < declined.sum() + reviewed.sum()))
        known = {} if np.isnan(scores).any() else ranking(scores, fraud)
        return (
            summary
            | known
            | outcome(declined, reviewed, amounts, fraud, costs)
            | {"transactions": summary["transactions"], "labelled": int(kept.sum())}
            | {"amount_alone": ranking(amounts, fraud) | outcome(*by_amount, amounts, fraud, costs)}
        )
