"""Profiles made anew from transactions, by the very steps of the flow: decode, recall, fold, remember. Nothing is judged.

A rebuild folds into a store of its own, is held against what the changelog says, and is then published between two marks
(`tables.changelog`), so that it counts whole or not at all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from assay.agents.profiles import Profiles
from assay.agents.said import SaidBefore
from assay.schemas.decode import Request, decode
from assay.schemas.mapping import Mapped
from assay.schemas.source import SOURCE_HEADER, OutRecord, Source, SourceRecord, SourceTopic
from assay.streams.publisher import Batches, Placed
from assay.tables.changelog import REBUILD_BEGUN_KEY, REBUILD_DONE_KEY, rebuild_mark
from assay.tables.digests import Digests
from assay.tables.events import Events
from assay.tables.partition_state import STATE_KEY
from assay.tables.profile import last_offset_of
from assay.tables.rates import Rates
from assay.tables.store import RowStore


@dataclass(frozen=True, slots=True)
class Counts:
    """Records that were folded, repeats included, and records that are dead letters, or would be.

    >>> Counts(5, 1) + Counts(2)
    Counts(transactions=7, refused=1)
    """

    transactions: int = 0
    refused: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.transactions + other.transactions, self.refused + other.refused)


@dataclass(frozen=True, slots=True)
class FoldedRecords:
    """What came of some records.

    Attributes:
        transactions: that were valid, repeats included.
        events: EVENT (n,), those that were new.
        features: float32 (n, FEATURE_COUNT) of those; what comes from Redis is NaN.
    """

    transactions: int
    tombstones: int
    events: Events
    features: npt.NDArray[np.float32]


class Refold:
    """Folds partitions of the transactions topic into `store`, which is empty at first.

    Args:
        ends: {source partition: the offset before which everything is folded, and at which workers go on}.
        mapped: makes transactions of what comes in another shape.
    """

    def __init__(
        self,
        store: RowStore,
        rates: Rates,
        digests: Digests,
        topic: SourceTopic,
        ends: Mapping[int, int],
        *,
        mapped: Mapped | None = None,
    ) -> None:
        self._mapped = mapped
        self._profiles = Profiles(
            store, _NoLog(), SaidBefore(), rates, digests, "", membership=_GoesOnAt(ends), open_repeats=lambda _: {}
        )
        self._ends = ends
        self._profiles.begin(topic, ends)

    async def take(self, records: Sequence[SourceRecord], refused: Callable[[Request], bool]) -> Counts:
        """The next records of one partition, in order.

        Args:
            refused: whether there is a dead letter: whatever this version would say, it was never folded.
        """
        folded = await self.fold(records, refused)
        return Counts(folded.transactions, len(records) - folded.transactions - folded.tombstones)

    async def fold(self, records: Sequence[SourceRecord], refused: Callable[[Request], bool]) -> "FoldedRecords":
        """The same, and the features."""
        decoded = decode(records, mapped=self._mapped)
        requests = [request for request in decoded.requests if not refused(request)]
        recalled = self._profiles.recall(requests)
        features = self._profiles.fold(recalled)
        await self._profiles.remember([recalled.folded], {records[0].partition: records[-1].offset + 1})
        return FoldedRecords(len(requests), decoded.tombstones, recalled.events[recalled.fresh], features)

    async def finish(self) -> None:
        """All partitions were taken to their ends."""
        await self._profiles.remember([], self._ends)


class _NoLog:
    """Takes what would go to a changelog, and says that it lies there."""

    def __init__(self) -> None:
        self._end = 0

    async def publish(self, batches: Batches) -> Placed:
        self._end += 1
        return dict.fromkeys(batches, self._end)


class _GoesOnAt:
    """The place in the group of somebody who has all partitions, and has committed what is to be rebuilt."""

    generation = 0

    def __init__(self, ends: Mapping[int, int]) -> None:
        self._ends = ends

    def assigned(self) -> set[int]:
        return set(self._ends)

    def committed(self, partition: int) -> int:
        return self._ends[partition]

    def commit(self, partition: int, next_offset: int) -> None:
        raise NotImplementedError("a rebuild acknowledges nothing")

    def begun(self, starts: Mapping[int, int]) -> None:
        raise NotImplementedError("a rebuild takes nothing over")


@dataclass(slots=True)
class Difference:
    """How the rows of a rebuild differ from those in the changelog.

    >>> Difference(equal=5, changed=1) + Difference(added=2)
    Difference(equal=5, changed=1, added=2, removed=0)
    """

    equal: int = 0
    changed: int = 0
    added: int = 0
    removed: int = 0

    def __add__(self, other: "Difference") -> "Difference":
        return Difference(
            self.equal + other.equal, self.changed + other.changed, self.added + other.added, self.removed + other.removed
        )

    def __bool__(self) -> bool:
        return bool(self.changed or self.added or self.removed)

    @property
    def records(self) -> int:
        """Rows and tombstones that a rebuild publishes."""
        return self.equal + self.changed + self.added + self.removed


def difference(before: RowStore, after: RowStore, partition: int) -> Difference:
    """Of one partition: what the changelog says, and what the rebuild does."""
    found = Difference()
    for _, old, new in _side_by_side(before, after, partition):
        if old is None:
            found.added += 1
        elif new is None:
            found.removed += 1
        elif old == new:
            found.equal += 1
        else:
            found.changed += 1
    return found


def rows_to_publish(before: RowStore, after: RowStore, topic: str, partition: int) -> Iterator[OutRecord]:
    """Every row, as the flow would have published it, and a tombstone for each user that is no longer there."""
    for user, _, row in _side_by_side(before, after, partition):
        if row is None:
            yield user, None, []
        else:
            yield user, row, [(SOURCE_HEADER, Source(topic, partition, last_offset_of(row)).header())]


def first_mark(name: str, whole_since: int) -> OutRecord:
    """What stands before the rows of a rebuild, at this changelog offset: whatever came before it no longer counts."""
    return REBUILD_BEGUN_KEY, rebuild_mark(name, whole_since), []


def last_records(after: RowStore, partition: int, name: str, whole_since: int) -> list[OutRecord]:
    """What stands after them: the state of the partition, and the mark that makes the rebuild count."""
    state = after.state(partition)
    assert state is not None, "a rebuild ends with a state of each partition"
    return [(STATE_KEY, state.encode(), []), (REBUILD_DONE_KEY, rebuild_mark(name, whole_since), [])]


def _side_by_side(before: RowStore, after: RowStore, partition: int) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """(user, row before, row after), by user; None where there is none."""
    old = ((user, 0, row) for user, row in before.rows(partition))
    new = ((user, 1, row) for user, row in after.rows(partition))
    for user, found in groupby(merge(old, new), itemgetter(0)):
        rows: list[bytes | None] = [None, None]
        for _, which, row in found:
            rows[which] = row
        yield user, rows[0], rows[1]
