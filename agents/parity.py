"""Parity: whether the features that decisions were made from are those of an offline replay of the same topic, bit for bit.

Profile features are folded anew by the steps of the flow, partition by partition. The windows of an entity depend on the order
in which partitions reached Redis. That order is in the evidence, as a number for each observation of an entity; it is followed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import numpy.typing as npt

from assay.agents.rebuild import Refold
from assay.schemas.decode import Request
from assay.schemas.source import Source, SourceRecord
from assay.tables.entity_columns import columns_of, nothing_seen
from assay.tables.entity_fold import EntityWindows
from assay.tables.entity_layout import observations
from assay.tables.events import EVENT, Events
from assay.tables.features import ENTITIES, ENTITY_FEATURES, FEATURE_COUNT, NAMES, PROFILE_FEATURES
from assay.tables.replay import replay_events

UNKNOWN = -1  # in place of a sequence number: the evidence has none


@dataclass(frozen=True, slots=True)
class Logged:
    """What the evidence of one decision says: features float32 (FEATURE_COUNT,), and five sequence numbers or None.

    risk_sequences: six, how many changes each row of risk had seen that was read; None where none were read.
    """

    features: npt.NDArray[np.float32]
    sequences: Sequence[int] | None
    risk_sequences: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One feature of one transaction."""

    source: Source
    feature: str
    logged: float
    replayed: float


@dataclass
class Run:
    """The transactions of one run that were folded, in the order of their partitions, as columns of n.

    Attributes:
        events: EVENT (n,).
        partitions: int64 (n,).
        replayed: float32 (n, PROFILE_FEATURES): folded anew.
        logged: by position, where there is evidence.
    """

    topic: str
    events: Events = field(default_factory=lambda: np.zeros(0, EVENT))
    partitions: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    replayed: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, PROFILE_FEATURES), np.float32))
    logged: dict[int, Logged] = field(default_factory=dict)

    def source(self, position: int) -> Source:
        return Source(self.topic, int(self.partitions[position]), int(self.events["offset"][position]))


class Replay:
    """Folds the records of a run, some of one partition at a time, and holds their evidence beside them.

    Args:
        logged: evidence by source.
    """

    def __init__(self, topic: str, refold: Refold, logged: dict[Source, Logged]) -> None:
        self._topic, self._refold, self._logged = topic, refold, logged
        self._events: list[Events] = []
        self._partitions: list[npt.NDArray[np.int64]] = []
        self._replayed: list[npt.NDArray[np.float32]] = []

    async def take(self, records: Sequence[SourceRecord], refused: Callable[[Request], bool]) -> None:
        """The next records of one partition, in order."""
        folded = await self._refold.fold(records, refused)
        self._events.append(folded.events)
        self._partitions.append(np.full(len(folded.events), records[0].partition))
        self._replayed.append(folded.features[:, :PROFILE_FEATURES])

    def run(self) -> Run:
        """All that was taken."""
        run = Run(self._topic)
        if self._events:
            run.events, run.partitions = np.concatenate(self._events), np.concatenate(self._partitions)
            run.replayed = np.concatenate(self._replayed)
        for position in range(len(run.events)):
            if (logged := self._logged.get(run.source(position))) is not None:
                run.logged[position] = logged
        return run


@dataclass(frozen=True, slots=True)
class Compared:
    """What came of a comparison.

    Attributes:
        transactions: that were folded.
        compared: (transactions, feature values): those with evidence.
        differences: the first ones, in the order of append times, and how many there are.
        unordered: observations of entities whose order the evidence does not tell.
    """

    transactions: int
    compared: int
    differ: int
    first: Difference | None
    unordered: int = 0


def compare_profiles(run: Run) -> Compared:
    """Event and profile features of every transaction with evidence."""
    positions = np.array(sorted(run.logged), np.int64)
    logged = np.array([run.logged[i].features[:PROFILE_FEATURES] for i in positions.tolist()], np.float32)
    return compare(run, positions, logged.reshape(len(positions), PROFILE_FEATURES), run.replayed[positions], 0)


def compare_entities(run: Run) -> Compared:
    """Entity windows of every transaction whose evidence has them, in the order that the evidence gives."""
    n = len(run.events)
    sequences = np.full((n, len(ENTITIES)), UNKNOWN, np.int64)
    for position, logged in run.logged.items():
        if logged.sequences is not None:
            sequences[position] = logged.sequences
    seen, replayed = observations(run.events), nothing_seen(n)
    comparable = np.zeros((n, ENTITY_FEATURES), bool)
    unordered = 0
    for slot, entity in enumerate(ENTITIES):
        digests = np.ascontiguousarray(seen.digests[:, slot])
        order, lost = logged_order(digests, sequences[:, slot], run.events["appended_ms"])
        values, numbers = EntityWindows().observe_seen(seen.only(slot).of(order))
        found, columns = numbers[:, slot], columns_of(entity)
        replayed[np.ix_(order, columns)] = values[:, columns]
        # An entity that had been seen before the run has other numbers, and other windows.
        comparable[np.ix_(order, columns)] = (found == sequences[order, slot])[:, None]
        comparable[np.ix_(digests == 0, columns)] = True
        unordered += lost + int(((sequences[order, slot] != UNKNOWN) & (found != sequences[order, slot])).sum())
    positions = np.array(sorted(i for i, logged in run.logged.items() if logged.sequences is not None), np.int64)
    windows = slice(PROFILE_FEATURES, PROFILE_FEATURES + ENTITY_FEATURES)
    logged_values = np.array([run.logged[i].features[windows] for i in positions.tolist()], np.float32)
    logged_values = logged_values.reshape(len(positions), ENTITY_FEATURES)
    found_values = np.where(comparable[positions], replayed[positions], logged_values)
    return compare(run, positions, logged_values, found_values, PROFILE_FEATURES, unordered)


def logged_order(
    digests: npt.NDArray[np.uint64], sequences: npt.NDArray[np.int64], appended_ms: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], int]:
    """Positions of one kind of entity in the order of their observations, entity by entity; absent ones are left out.

    Sequence numbers begin again at 1 where an entity was forgotten; what has none (Redis did not answer in time, and learnt of
    it later) takes the numbers that nobody else has. Returns (positions, how many numbers nobody has).

    >>> digests = np.array([7, 7, 7, 0, 7], np.uint64)
    >>> logged_order(digests, np.array([2, 1, UNKNOWN, 0, 4]), np.arange(5))
    (array([1, 0, 2, 4]), 0)
    """
    present = np.flatnonzero(digests)
    present = present[np.lexsort((appended_ms[present], digests[present]))]
    ordered: list[int] = []
    lost = 0
    for _, positions in groupby(present.tolist(), digests.__getitem__):
        group, missing = _order_of_one(list(positions), sequences)
        ordered += group
        lost += missing
    return np.array(ordered, np.int64), lost


def _order_of_one(positions: Sequence[int], sequences: npt.NDArray[np.int64]) -> tuple[list[int], int]:
    lives: list[tuple[dict[int, int], list[int]]] = [({}, [])]  # (by number, those without one)
    for position in positions:
        number = int(sequences[position])
        if number == UNKNOWN:
            lives[-1][1].append(position)
        elif number in lives[-1][0]:
            lives.append(({number: position}, []))
        else:
            lives[-1][0][number] = position
    ordered: list[int] = []
    lost = 0
    for numbered, others in lives:
        waiting = iter(others)
        for number in range(1, max(numbered, default=0) + 1):
            placed = numbered[number] if number in numbered else next(waiting, None)
            if placed is None:
                lost += 1
            else:
                ordered.append(placed)
        ordered += waiting
    return ordered, lost


@dataclass(frozen=True, slots=True)
class OrderEffect:
    """What it changes that transactions are folded as they arrive, and not in the order of their event times.

    Attributes:
        transactions: how many have any feature that differs.
        features: {feature: transactions}, the most affected first.
    """

    transactions: int
    features: dict[str, int]


def order_effect(events: Events) -> OrderEffect:
    """Both orders replayed offline, with all features."""
    arrived = np.argsort(events["appended_ms"], kind="stable")
    happened = np.argsort(events["time_ms"], kind="stable")
    one, other = np.empty((2, len(events), FEATURE_COUNT), np.float32)
    one[arrived] = replay_events(events[arrived])
    other[happened] = replay_events(events[happened])
    differ = _bits(one) != _bits(other)
    by_feature = differ.sum(axis=0)
    most = [int(i) for i in np.argsort(-by_feature, kind="stable") if by_feature[i]]
    return OrderEffect(int(differ.any(axis=1).sum()), {NAMES[i]: int(by_feature[i]) for i in most})


def compare(
    run: Run,
    positions: npt.NDArray[np.int64],
    logged: npt.NDArray[np.float32],
    replayed: npt.NDArray[np.float32],
    first_feature: int,
    unordered: int = 0,
) -> Compared:
    """Two of the same features, float32 (p, c) from column `first_feature` on, of the transactions at positions (p,)."""
    differ = _bits(logged) != _bits(replayed)
    first = None
    if differ.any():
        rows = np.flatnonzero(differ.any(axis=1))
        row = rows[np.argmin(run.events["appended_ms"][positions[rows]])]
        column = int(np.flatnonzero(differ[row])[0])
        source, name = run.source(int(positions[row])), NAMES[first_feature + column]
        first = Difference(source, name, float(logged[row, column]), float(replayed[row, column]))
    return Compared(len(run.events), len(positions), int(differ.sum()), first, unordered)


def _bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    """Equal bits are equal values; every NaN is one and the same (JSON has a single null)."""
    return np.where(np.isnan(values), np.float32(np.nan), values).astype(np.float32).view(np.uint32)
