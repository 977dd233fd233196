"""Judging past transactions as the stream would have: the same fold, the same judge, and what that would have saved."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from assay.tables.changes import Changes, changes_of_labels
from assay.tables.events import Events
from assay.tables.features import DAY, LABEL_DELAY_S, NAMES
from assay.tables.rates import Rates
from assay.tables.replay import events_of, replay_events

_AMOUNT = NAMES.index("amount")

ChangesOf = Callable[[Events, Sequence[int]], tuple[Changes, npt.NDArray[np.int64]]]


@dataclass(frozen=True, slots=True)
class Judged:
    """One micro-batch of a backtest."""

    start: int  # row in the history
    transactions: list[Transaction]
    features: npt.NDArray[np.float32]
    verdicts: Verdicts


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
    progress: Progress | None = None,
) -> Iterator[Judged]:
    """Verdicts of a history in micro-batches, in its order, from row `first` on; the rows before only fill the profiles.

    `batch`: the batch features that were loaded meanwhile. `label_delay_days`: how long after a payment its label became known,
    where there are labels; later payments count it from then on. `changes`: says so in place of labels, of all events and the
    amounts of their transactions, in thousandths of their own currency (`models.outcome_history`).

    Raises InputError where a row can't be used.
    """
    told = progress or silent
    total = len(history)
    whole: list[int] = []
    events = events_of(read_with_amounts(history, whole, told), rates)
    fraud = np.zeros(total, np.bool_) if history.labels is None else history.labels
    if changes is None:
        known, known_before = changes_of_labels(events, fraud, round(label_delay_days * DAY_MS))
    else:
        known, known_before = changes(events, whole)
    features = replay_events(events, steps("replay", total, told), batch=batch, changes=known, known_before=known_before)
    for start in range(first, total, MAX_BATCH_TRANSACTIONS):
        stop = min(start + MAX_BATCH_TRANSACTIONS, total)
        transactions = history.part(start, stop)
        rows = features[start:stop]
        yield Judged(start, transactions, rows, judge.judge(transactions, rows, tier))
        told("judge", stop - first, total - first)


class Tally:
    """Adds up a backtest."""

    def __init__(self) -> None:
        self.actions: Counter[str] = Counter()
        self.rules: Counter[str] = Counter()
        self.failures: dict[str, str] = {}
        self._severe: list[npt.NDArray[np.int8]] = []
        self._scores: list[npt.NDArray[np.float64]] = []
        self._amounts: list[npt.NDArray[np.float32]] = []

    def add(self, judged: Judged) -> None:
        verdicts = judged.verdicts
        self.actions.update(action.value for action in verdicts.action)
        self.rules.update(rule for rules in verdicts.rules for rule in rules)
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
            "actions": {action.value: self.actions[action.value] for action in Action},
            "rules": dict(self.rules.most_common()),
            "failed_rules": self.failures,
        }
        if fraud is None or not self._scores:
            return summary
        kept = np.ones(len(fraud), np.bool_) if labelled is None else labelled
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
            | {"transactions": len(kept), "labelled": int(kept.sum())}
            | {"amount_alone": ranking(amounts, fraud) | outcome(*by_amount, amounts, fraud, costs)}
        )
