"""Parity: whether the features that decisions were made from are those of an offline replay of the same topic, bit for bit.

Profile features are folded anew by the steps of the flow, partition by partition. The windows of an entity depend on the order
in which partitions reached Redis. That order is in the evidence, as a number for each observation of an entity; it is followed.
Where those numbers don't add up to what the topic has, Redis counted something twice, or lost it: that is a difference, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from assay.agents.observation_order import UNKNOWN, Miscount, logged_order
from assay.agents.rebuild import Refold
from assay.schemas.decode import Request
from assay.schemas.source import Source, SourceRecord
from assay.tables.entity_columns import WINDOWS, columns_of, nothing_seen
from assay.tables.entity_fold import EntityWindows
from assay.tables.entity_layout import observations
from assay.tables.events import EVENT, Events
from assay.tables.features import ENTITIES, ENTITY_FEATURES, FEATURE_COUNT, NAMES, PROFILE_FEATURES
from assay.tables.replay import replay_events


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

    def appended_ms(self, source: Source) -> int:
        """When one of them was appended."""
        [found] = self.events["appended_ms"][(self.partitions == source.partition) & (self.events["offset"] == source.offset)]
        return int(found)


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
        told: those whose evidence has these features.
        compared: those of which all these features were compared.
        differ: feature values that differ, and miscounts.
        first: the first difference, by append time.
        unordered: readings of an entity that were not compared: the evidence does not tell what they follow from.
        miscounts: observations that Redis counted and the topic does not have, or the other way round.
    """

    transactions: int
    told: int
    compared: int
    differ: int
    first: Difference | None
    unordered: int = 0
    miscounts: int = 0


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
    comparable = np.zeros((n, len(ENTITIES)), bool)
    miscounts: list[tuple[str, Miscount]] = []
    for slot, entity in enumerate(ENTITIES):
        digests = np.ascontiguousarray(seen.digests[:, slot])
        order = logged_order(digests, sequences[:, slot], run.events["appended_ms"], run.partitions)
        values, numbers = EntityWindows().observe_seen(seen.only(slot).of(order.positions))
        replayed[np.ix_(order.positions, columns_of(entity))] = values[order.read_at][:, columns_of(entity)]
        # An entity that had been seen before the run has other numbers, and other windows.
        replayed_number = numbers[order.read_at, slot]
        comparable[order.positions, slot] = order.certain & (replayed_number == sequences[order.positions, slot])
        comparable[digests == 0, slot] = True
        miscounts += [(entity, miscount) for miscount in order.miscounts]
    positions = np.array(sorted(i for i, logged in run.logged.items() if logged.sequences is not None), np.int64)
    windows = slice(PROFILE_FEATURES, PROFILE_FEATURES + ENTITY_FEATURES)
    logged_values = np.array([run.logged[i].features[windows] for i in positions.tolist()], np.float32)
    logged_values = logged_values.reshape(len(positions), ENTITY_FEATURES)
    may_differ = comparable[:, _SLOTS][positions]
    found_values = np.where(may_differ, replayed[positions], logged_values)
    found = compare(run, positions, logged_values, found_values, PROFILE_FEATURES, comparable[positions])
    return _with_miscounts(run, found, miscounts)


_SLOTS = np.array([ENTITIES.index(feature.entity) for feature in WINDOWS])  # of each window


def _with_miscounts(run: Run, found: Compared, miscounts: Sequence[tuple[str, Miscount]]) -> Compared:
    """Of a miscount and a value of one transaction, the miscount is the first: the other follows from it."""
    if not miscounts:
        return found
    entity, earliest = min(miscounts, key=lambda each: int(run.events["appended_ms"][each[1].position]))
    number, expected = float(earliest.number), float(earliest.expected)
    first = Difference(run.source(earliest.position), f"{entity}_observations", number, expected)
    if found.first is not None and run.appended_ms(found.first.source) < run.appended_ms(first.source):
        first = found.first
    return replace(found, differ=found.differ + len(miscounts), first=first, miscounts=len(miscounts))


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
    comparable: npt.NDArray[np.bool_] | None = None,
) -> Compared:
    """Two of the same features, float32 (p, c) from column `first_feature` on, of the transactions at positions (p,).

    comparable: bool (p, kinds of entities), where not all that was logged could be replayed.
    """
    if comparable is None:
        comparable = np.ones((len(positions), 1), bool)
    differ = _bits(logged) != _bits(replayed)
    first = None
    if differ.any():
        rows = np.flatnonzero(differ.any(axis=1))
        row = rows[np.argmin(run.events["appended_ms"][positions[rows]])]
        column = int(np.flatnonzero(differ[row])[0])
        source, name = run.source(int(positions[row])), NAMES[first_feature + column]
        first = Difference(source, name, float(logged[row, column]), float(replayed[row, column]))
    whole, unordered = int(comparable.all(axis=1).sum()), int((~comparable).sum())
    return Compared(len(run.events), len(positions), whole, int(differ.sum()), first, unordered)


def _bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    """Equal bits are equal values; every NaN is one and the same (JSON has a single null)."""
    return np.where(np.isnan(values), np.float32(np.nan), values).astype(np.float32).view(np.uint32)
