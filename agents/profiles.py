"""Steps 2, 4 and 7 for one micro-batch: recall what has a verdict, fold what has none, make the folded rows durable."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from assay.schemas.decode import Request
from assay.schemas.errors import PublishError
from assay.schemas.source import SOURCE_HEADER, OutRecord, Source
from assay.streams.publisher import UNKNOWN, Publisher
from assay.tables.encode import encode_events
from assay.tables.events import Events
from assay.tables.features import FEATURE_COUNT
from assay.tables.fold import fold
from assay.tables.rates import Rates
from assay.tables.recall import NEW, recall
from assay.tables.store import RowStore
from assay.tables.working_rows import Folded, FoldedRow, Gathered, UserKey, WorkingRows


class Earlier(NamedTuple):
    """Where the transaction lay that a repeated one repeats: its source offset and append time (epoch, ms)."""

    offset: int
    appended_ms: int


@dataclass(slots=True)
class Recalled:
    """The requests of one micro-batch, and which of them have a verdict already.

    Attributes:
        events: EVENT (n,), one for each request.
        repeats: int64 (n,), see `tables.recall`.
        fresh: bool (n,): those to be folded and judged.
        fresh_requests: the requests of those.
        earlier: by position, for the others: the transaction that they repeat.
        folded: the new rows, once `fold` has run.
    """

    requests: Sequence[Request]
    events: Events
    gathered: Gathered
    repeats: npt.NDArray[np.int64]
    fresh: npt.NDArray[np.bool_]
    fresh_requests: Sequence[Request]
    earlier: dict[int, Earlier]
    folded: Folded = field(default_factory=dict)


class Profiles:
    """The profiles of this worker's users, from recall to durable row.

    Args:
        rates: for amounts in the base currency.
        transactions, changelog: names of the topics that rows are folded from, and published to before they go to disk.
    """

    def __init__(self, store: RowStore, publisher: Publisher, rates: Rates, transactions: str, changelog: str) -> None:
        self._store, self._publisher, self._rates = store, publisher, rates
        self._transactions, self._changelog = transactions, changelog
        self._rows = WorkingRows(store)

    def recall(self, requests: Sequence[Request]) -> Recalled:
        """Gather the users' newest rows, and tell transactions that are new from those that have a verdict."""
        events = encode_events(
            [request.transaction for request in requests],
            [request.source.offset for request in requests],
            [request.appended_ms for request in requests],
            self._rates,
        )
        gathered = self._rows.gather([UserKey(request.source.partition, request.user) for request in requests])
        repeats = np.empty(len(requests), np.int64)
        recall(gathered.rows, gathered.slots, events, repeats)
        fresh = repeats == NEW
        if fresh.all():
            return Recalled(requests, events, gathered, repeats, fresh, requests, {})
        fresh_requests = [requests[i] for i in np.flatnonzero(fresh).tolist()]
        return Recalled(requests, events, gathered, repeats, fresh, fresh_requests, self._earlier(requests, gathered, repeats))

    def fold(self, recalled: Recalled) -> npt.NDArray[np.float32]:
        """Fold the new transactions into the rows. Returns their features, (number of them, FEATURE_COUNT) float32."""
        features = np.full((len(recalled.events), FEATURE_COUNT), np.nan, np.float32)
        fold(recalled.gathered.rows, recalled.gathered.slots, recalled.events, recalled.repeats, features)
        recalled.folded = self._rows.folded(recalled.gathered, recalled.fresh)
        return features if not recalled.earlier else np.ascontiguousarray(features[recalled.fresh])

    def peek(self, request: Request) -> npt.NDArray[np.float32]:
        """The features that a transaction would have now, (1, FEATURE_COUNT) float32, without folding it."""
        recalled = self.recall([request])
        features = np.full((1, FEATURE_COUNT), np.nan, np.float32)
        fold(recalled.gathered.rows, recalled.gathered.slots, recalled.events, np.array([NEW]), features)
        return features

    async def remember(self, micro_batches: Sequence[Folded]) -> None:
        """The newest rows of published micro-batches: to the changelog, acknowledged, and only then to disk (invariant I3).

        Raises PublishError.
        """
        newest: Folded = {}
        for folded in micro_batches:
            for partition, rows in folded.items():
                newest.setdefault(partition, {}).update(rows)
        appended = await self._publisher.publish(
            {(self._changelog, partition): self._records(partition, rows) for partition, rows in newest.items()}
        )
        for partition, rows in newest.items():
            offset = appended[self._changelog, partition]
            if offset == UNKNOWN:
                raise PublishError(f"{self._changelog}/{partition}: taken for a duplicate, so it can't be said where it lies")
            self._store.write(partition, {user: folded.row for user, folded in rows.items()}, offset)
        self._rows.durable(micro_batches)

    def _records(self, partition: int, rows: dict[bytes, FoldedRow]) -> list[OutRecord]:
        topic = self._transactions
        return [
            (user, folded.row, [(SOURCE_HEADER, Source(topic, partition, folded.last_offset).header())])
            for user, folded in rows.items()
        ]

    def forget(self) -> None:
        """Partitions changed hands: only what is durable counts."""
        self._rows.clear()

    @staticmethod
    def _earlier(requests: Sequence[Request], gathered: Gathered, repeats: npt.NDArray[np.int64]) -> dict[int, Earlier]:
        earlier = {}
        for i in np.flatnonzero(repeats != NEW).tolist():
            row, place = gathered.rows[gathered.slots[i]], int(repeats[i])
            if 0 <= place < len(row["decision_offset"]):
                earlier[i] = Earlier(int(row["decision_offset"][place]), int(row["decision_appended_ms"][place]))
            else:  # of this batch, or folded before with its decision gone from the ring: it is its own source
                source = requests[-(place + 2)] if place < NEW else requests[i]
                earlier[i] = Earlier(source.source.offset, source.appended_ms)
        return earlier
