"""Steps 2, 4 and 7 for one micro-batch: recall what has a verdict, fold what has none, make the folded rows durable."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from assay.agents.ports import Membership, Publishes, Rows
from assay.agents.said import SaidBefore
from assay.schemas.decode import Request
from assay.schemas.errors import PublishError
from assay.schemas.source import SOURCE_HEADER, OutRecord, Source, SourceTopic
from assay.streams.publisher import UNKNOWN
from assay.streams.read_back import Said
from assay.tables.digests import Digests
from assay.tables.encode import encode_events
from assay.tables.events import Events
from assay.tables.features import FEATURE_COUNT
from assay.tables.fold import fold
from assay.tables.partition_state import STATE_KEY, Earlier, PartitionState
from assay.tables.rates import Rates
from assay.tables.recall import NEW, recall
from assay.tables.working_rows import Folded, FoldedRow, Gathered, UserKey, WorkingRows

if TYPE_CHECKING:
    from assay.agents.limits import Limited


@dataclass(slots=True)
class Recalled:
    """The requests of one micro-batch, and which of them have a verdict already.

    Attributes:
        events: EVENT (n,), one for each request.
        repeats: int64 (n,), see `tables.recall`.
        fresh: bool (n,): those to be folded.
        said: by position: what a former owner published for this very record.
        judged: bool (n,): those to be judged: fresh, and nothing was said.
        judged_requests: the requests of those.
        earlier: by position, for those not fresh: the transaction that they repeat.
        folded: the new rows, once `fold` has run.
        limited: those fresh ones that are over a rate limit, and so are not judged.
    """

    requests: Sequence[Request]
    events: Events
    gathered: Gathered
    repeats: npt.NDArray[np.int64]
    fresh: npt.NDArray[np.bool_]
    said: dict[int, Said]
    judged: npt.NDArray[np.bool_]
    judged_requests: Sequence[Request]
    earlier: dict[int, Earlier]
    folded: Folded = field(default_factory=dict)
    limited: "Limited | None" = None


class Profiles:
    """The profiles of this worker's users, from recall to durable row.

    Args:
        rates: for amounts in the base currency.
        digests: that identifiers become in rows.
        changelog: name of the topic that rows are published to before they go to disk.
        membership: our place in the consumer group.
        open_repeats: by source offset: those of a partition whose decision is still being looked up.
    """

    def __init__(
        self,
        store: Rows,
        publisher: Publishes,
        said: SaidBefore,
        rates: Rates,
        digests: Digests,
        changelog: str,
        membership: Membership,
        open_repeats: Callable[[int], Mapping[int, Earlier]],
    ) -> None:
        self._store, self._publisher, self._said = store, publisher, said
        self._rates, self._digests = rates, digests
        self._changelog, self._membership, self._open_repeats = changelog, membership, open_repeats
        self._left_open: dict[int, Mapping[int, Earlier]] = {}
        self._rows = WorkingRows(store)
        self._topic, self._generation = SourceTopic("", "", 0), -1

    def begin(self, topic: SourceTopic, partitions: Iterable[int]) -> set[int]:
        """Partitions were taken over: only what is durable counts, and rows are folded from this topic from now on.

        Returns those that have no state yet.
        """
        self._rows.clear()
        self._topic, self._generation = topic, self._membership.generation
        states = {partition: self._store.state(partition) for partition in partitions}
        self._left_open = {partition: state.open for partition, state in states.items() if state is not None}
        return states.keys() - self._left_open.keys()

    def recall(self, requests: Sequence[Request]) -> Recalled:
        """Gather the users' newest rows, and tell transactions that are new from those that have a verdict."""
        events = encode_events(
            [request.transaction for request in requests],
            [request.source.offset for request in requests],
            [request.appended_ms for request in requests],
            self._rates,
            self._digests,
        )
        gathered = self._rows.gather([UserKey(request.source.partition, request.user) for request in requests])
        repeats = np.empty(len(requests), np.int64)
        recall(gathered.rows, gathered.slots, events, repeats)
        fresh = repeats == NEW
        said = self._said_of(requests) if self._said else {}
        if not said and fresh.all():
            return Recalled(requests, events, gathered, repeats, fresh, {}, fresh, requests, {})
        judged = fresh.copy()
        judged[list(said)] = False
        judged_requests = [requests[i] for i in np.flatnonzero(judged).tolist()]
        earlier = self._earlier(requests, gathered, repeats)
        return Recalled(requests, events, gathered, repeats, fresh, said, judged, judged_requests, earlier)

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

    async def remember(self, micro_batches: Sequence[Folded], reached: Mapping[int, int]) -> None:
        """The newest rows of published micro-batches: to the changelog, acknowledged, and only then to disk (invariant I3).

        Args:
            reached: {source partition: offset before which everything has its verdict}, once this is remembered.

        Raises PublishError.
        """
        newest: Folded = {partition: {} for partition in reached}
        for folded in micro_batches:
            for partition, rows in folded.items():
                newest.setdefault(partition, {}).update(rows)
        if not newest:
            return
        states = {partition: self._state(partition, reached[partition]) for partition in newest}
        appended = await self._publisher.publish(
            # The state first: rows that leave in several batches must never be durable without it.
            {(self._changelog, p): [(STATE_KEY, states[p], []), *self._records(p, rows)] for p, rows in newest.items()}
        )
        if self._membership.generation != self._generation:
            raise PublishError("rows of partitions that changed hands are not written to disk")
        for partition, rows in newest.items():
            offset = appended[self._changelog, partition]
            if offset == UNKNOWN:
                raise PublishError(f"{self._changelog}/{partition}: taken for a duplicate, so it can't be said where it lies")
            values = {user: folded.row for user, folded in rows.items()}
            self._store.write(partition, values | {STATE_KEY: states[partition]}, offset)
        self._rows.durable(micro_batches)

    def _state(self, partition: int, reached: int) -> bytes:
        topic = self._topic
        left_open = self._left_open.get(partition, {})  # and not read again yet
        still_open = {o: earlier for o, earlier in left_open.items() if o >= reached} | dict(self._open_repeats(partition))
        state = PartitionState(
            topic.id, topic.partitions, self._membership.committed(partition), reached, still_open,
            log_id=topic.log_id, fingerprint=self._digests.fingerprint,
        )  # fmt: skip
        return state.encode()

    def _records(self, partition: int, rows: dict[bytes, FoldedRow]) -> list[OutRecord]:
        topic = self._topic.name
        return [
            (user, folded.row, [(SOURCE_HEADER, Source(topic, partition, folded.last_offset).header())])
            for user, folded in rows.items()
        ]

    def _said_of(self, requests: Sequence[Request]) -> dict[int, Said]:
        found = ((i, self._said.decision(request.source)) for i, request in enumerate(requests))
        return {i: said for i, said in found if said is not None}

    def _earlier(self, requests: Sequence[Request], gathered: Gathered, repeats: npt.NDArray[np.int64]) -> dict[int, Earlier]:
        earlier = {}
        for i in np.flatnonzero(repeats != NEW).tolist():
            own = requests[i]
            left_open = self._left_open.get(own.source.partition, {}).get(own.source.offset)
            if left_open is not None:  # whatever the ring says now: the id may have come again since
                earlier[i] = left_open
                continue
            row, place = gathered.rows[gathered.slots[i]], int(repeats[i])
            if 0 <= place < len(row["decision_offset"]):
                earlier[i] = Earlier(int(row["decision_offset"][place]), int(row["decision_appended_ms"][place]))
            elif place < NEW:
                first = requests[-(place + 2)]
                earlier[i] = Earlier(first.source.offset, first.appended_ms)
            else:  # folded before: it is its own source
                earlier[i] = Earlier(own.source.offset, own.appended_ms)
        return earlier
