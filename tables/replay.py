"""Replay: the features of transactions offline, by the fold and the entity windows of the stream (invariant I4).

Training, backtests and `assay score` take their features from here: there is no second implementation of any.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt

from assay.schemas.transaction import Transaction
from assay.tables.batch_history import BatchHistory
from assay.tables.changes import CHANGE, Changes
from assay.tables.digests import OFFLINE
from assay.tables.encode import encode_events
from assay.tables.entity_fold import EntityWindows
from assay.tables.events import EVENT, Events
from assay.tables.features import ENTITY_FEATURES, FEATURE_COUNT, PROFILE_FEATURES
from assay.tables.fold import fold, recall
from assay.tables.profile import Rows, new_rows
from assay.tables.rates import Rates
from assay.tables.recall import NEW
from assay.tables.risk_family import RISK_COLUMNS, RiskFamily
from assay.tables.risk_fold import RiskWindows
from assay.tables.spilled import Spilled

CHUNK = 8_192  # transactions at a time: the size changes nothing but the memory

Progress = Callable[[int], None]


def replay(
    transactions: Iterable[Transaction], rates: Rates, progress: Progress | None = None, *, batch: BatchHistory | None = None
) -> npt.NDArray[np.float32]:
    """Features of transactions in the order given, which is the order they are taken to have arrived in.

    Returns float32 (n, FEATURE_COUNT). `progress` is told how many transactions each step has done.
    """
    return replay_events(events_of(transactions, rates), progress, batch=batch)


def events_of(transactions: Iterable[Transaction], rates: Rates) -> Events:
    """Transactions as (n,) EVENT, as if each had been appended at its own time, to one partition."""
    return np.concatenate([np.zeros(0, EVENT), *_encoded(transactions, rates)])


def spilled_events(transactions: Iterable[Transaction], rates: Rates) -> Spilled:
    """The same on disk."""
    events = Spilled(EVENT)
    for chunk in _encoded(transactions, rates):
        events.append(chunk)
    return events


def _encoded(transactions: Iterable[Transaction], rates: Rates) -> Iterator[Events]:
    source = iter(transactions)
    offset = 0
    while chunk := list(islice(source, CHUNK)):
        times = [transaction.timestamp.ms for transaction in chunk]
        yield encode_events(chunk, range(offset, offset + len(chunk)), times, rates, OFFLINE)
        offset += len(chunk)


def replay_events(
    events: Events,
    progress: Progress | None = None,
    *,
    batch: BatchHistory | None = None,
    changes: Changes | None = None,
    known_before: npt.NDArray[np.int64] | None = None,
) -> npt.NDArray[np.float32]:
    """Features of events, (n,) EVENT, in their order: float32 (n, FEATURE_COUNT).

    `batch`: the batch features that were loaded, read as of the time of each event; None: none were. `changes` (m,) CHANGE:
    what became of transactions, in that order; change j is known before event number known_before[j], int64 (m,), ascending.
    None: nothing was known. Offsets are not looked at. A transaction that comes again has the features of its first time, and
    is counted once.
    """
    features = np.empty((len(events), FEATURE_COUNT), np.float32)
    start = 0
    for chunk in _replayed(events, features.__getitem__, batch, changes, known_before):
        features[start : start + len(chunk)] = chunk
        start += len(chunk)
        if progress is not None:
            progress(len(chunk))
    return features


def spilled_features(
    events: Spilled,
    progress: Progress | None = None,
    *,
    batch: BatchHistory | None = None,
    changes: Changes | None = None,
    known_before: npt.NDArray[np.int64] | None = None,
) -> Spilled:
    """The same from disk to disk."""
    features = Spilled(np.dtype(np.float32), FEATURE_COUNT)
    for chunk in _replayed(events, features.__getitem__, batch, changes, known_before):
        features.append(chunk)
        if progress is not None:
            progress(len(chunk))
    return features


def _replayed(
    events: Events | Spilled,
    earlier: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float32]],
    batch: BatchHistory | None,
    changes: Changes | None,
    known_before: npt.NDArray[np.int64] | None,
) -> Iterator[npt.NDArray[np.float32]]:
    """Features chunk by chunk; `earlier` gives those of events, by number, of chunks that were given before."""
    users = np.unique(events["user"])
    if changes is None or known_before is None:
        changes, known_before = np.zeros(0, CHANGE), np.zeros(0, np.int64)
    redis = _Redis(batch or BatchHistory(), RiskWindows(RISK_COLUMNS, changes, known_before))
    rows = new_rows(len(users))
    for start in range(0, len(events), CHUNK):
        chunk = events[start : start + CHUNK].copy()
        slots = np.searchsorted(users, chunk["user"]).astype(np.int32)
        out = np.empty((len(chunk), FEATURE_COUNT), np.float32)
        chunk["offset"] = np.arange(start, start + len(chunk))
        repeats = np.empty(len(chunk), np.int64)
        recall(rows, slots, chunk, repeats)
        firsts, new = _firsts(rows, slots, repeats, start), repeats == NEW
        fold(rows, slots, chunk, repeats, out)
        out[new, PROFILE_FEATURES:] = redis.observe(chunk[new], start + np.flatnonzero(new))
        old, within = ~new & (firsts < start), ~new & (firsts >= start)
        out[old] = earlier(firsts[old])
        out[within] = out[firsts[within] - start]
        yield out


class _Redis:
    """What would have come from Redis."""

    def __init__(self, batch: BatchHistory, risk: RiskWindows) -> None:
        self._windows, self._batch, self._risk = EntityWindows(), batch, risk

    def observe(self, events: Events, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """The columns after PROFILE_FEATURES of events (n,), in order; numbers (n,) are their places among all."""
        block = np.full((len(events), FEATURE_COUNT - PROFILE_FEATURES), np.nan, np.float32)
        block[:, :ENTITY_FEATURES] = self._windows.observe(events)[0]
        self._batch.fill(events, block)
        block[:, RiskFamily.columns] = self._risk.read(events, numbers, block)
        return block


def _firsts(rows: Rows, slots: npt.NDArray[np.int32], repeats: npt.NDArray[np.int64], start: int) -> npt.NDArray[np.int64]:
    """By event of a batch that begins at `start`: which event, counted from the first of all, it repeats, or itself."""
    firsts = np.arange(start, start + len(repeats))
    remembered, in_batch = repeats > NEW, repeats < NEW
    firsts[remembered] = rows["decision_offset"][slots[remembered], repeats[remembered]]
    firsts[in_batch] = start - repeats[in_batch] - 2
    return firsts
