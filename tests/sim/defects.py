"""Defects to be put into the real code, each a small one that somebody could make: the simulation has to find every one."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from itertools import product
from typing import Any, NamedTuple
from unittest.mock import patch

from assay.agents import profiles
from assay.agents.answers import Answers, Prepared
from assay.agents.flow import Acknowledgements, Continuity, Turns
from assay.agents.memory import Memory
from assay.agents.profiles import Profiles, Recalled
from assay.streams.claims import Claim
from assay.streams.decision_reader import source_of
from assay.streams.micro_batches import MicroBatch, WaitingRecords
from assay.streams.ownership import Ownership
from assay.streams.publisher import FENCE, Placed, Publisher
from assay.streams.read_back import LogReader, ReadBack
from assay.tables.recall import NEW
from assay.tables.working_rows import Folded

Defect = AbstractContextManager[Any]


class Known(NamedTuple):
    """A defect and the invariants by which it may show; anything else is none of its doing."""

    put: Callable[[], Defect]
    breaks: tuple[str, ...]


DEFECTS: dict[str, Known] = {}


def breaks(*invariants: str) -> Callable[[Callable[[], Defect]], Callable[[], Defect]]:
    """Name a defect among those that have to be found."""

    def known(defect: Callable[[], Defect]) -> Callable[[], Defect]:
        DEFECTS[defect.__name__] = Known(defect, invariants)
        return defect

    return known


@breaks("I3")
def remember_before_publishing() -> Defect:
    """Rows leave without waiting for the acknowledgement of their decisions."""
    publish, under_way = Answers.publish, set()

    async def begin(self: Answers, prepared: Prepared) -> None:
        under_way.add(asyncio.ensure_future(publish(self, prepared)))

    return patch.object(Answers, "publish", begin)


@breaks("I3")
def commit_before_remembering() -> Defect:
    """The source is acknowledged when its decisions are, before its rows."""
    put = Memory.put

    async def acknowledge(self: Memory, batch: MicroBatch, folded: Folded) -> None:
        self._acknowledge(batch)
        await put(self, batch, folded)

    return patch.object(Memory, "put", acknowledge)


@breaks("I3")
def acknowledge_out_of_order() -> Defect:
    """Micro-batches overtake each other."""

    @asynccontextmanager
    async def at_once(self: Turns, number: int) -> Any:
        yield

    return patch.object(Turns, "turn", at_once)


@breaks("I3")
def commit_past_look_ups() -> Defect:
    """A repeat that is still looked up does not hold back the commit."""
    return patch.object(Acknowledgements, "open", lambda self, partition, offset, earlier: None)


@breaks("I2", "I4")
def forget_open_look_ups() -> Defect:
    """What a former owner was still looking up is not known to the next one."""
    begin = Profiles.begin

    def forget(self: Profiles, *what: Any) -> Any:
        new = begin(self, *what)
        self._left_open = {}
        return new

    return patch.object(Profiles, "begin", forget)


@breaks("I1")
def skip_the_read_back() -> Defect:
    """What former owners said is judged anew."""

    async def nothing(self: LogReader, wanted: Mapping[int, Any]) -> dict[int, ReadBack]:
        return {partition: ReadBack() for partition in wanted}

    return patch.object(LogReader, "read_back", nothing)


@breaks("I1")
def stop_the_read_back_early() -> Defect:
    """Reading backwards, it stops at the first record of an older source: what lies before that is not seen."""
    note = LogReader._note

    def stop(self: LogReader, record: Any, commit: int, found: ReadBack) -> None:
        source = source_of(record)
        if source is not None and source.offset < commit:
            (found.dead_letters if record.topic == self._dead_letters else found.decisions).clear()
        note(self, record, commit, found)

    return patch.object(LogReader, "_note", stop)


@breaks("I1")
@contextmanager
def leave_out_the_fence() -> Iterator[None]:
    """Fence records are nobody's: brokers go on to take what former owners append."""

    async def unsigned(self: Ownership, claims: Mapping[int, Claim]) -> Placed:
        placed = {}
        for publisher in self._publishers:
            await publisher.fence(claims)
            for topic, partition in product(publisher.owned, claims):
                batch = publisher._running.create_batch()
                batch.append(timestamp=None, key=FENCE[0], value=FENCE[1], headers=FENCE[2])
                sent = await publisher._running.send_batch(batch, topic, partition=partition)
                placed[topic, partition] = (await sent).offset
        return placed

    with patch.object(Publisher, "_fences", lambda self, claims: {}), patch.object(Ownership, "_fence", unsigned):
        yield


@breaks("I1")
def ignore_dead_letters() -> Defect:
    """The read-back is of decisions only."""
    note = LogReader._note

    def decisions_only(self: LogReader, record: Any, commit: int, found: ReadBack) -> None:
        if record.topic != self._dead_letters:
            note(self, record, commit, found)

    return patch.object(LogReader, "_note", decisions_only)


@breaks("I4")
def fold_twice() -> Defect:
    """What is replayed is folded again into rows that have it already."""
    recall = Profiles.recall

    def all_new(self: Profiles, requests: Any) -> Recalled:
        recalled = recall(self, requests)
        for position in recalled.said:
            recalled.fresh[position], recalled.repeats[position] = True, NEW
        return recalled

    return patch.object(profiles.Profiles, "recall", all_new)


@breaks("I3")
def reply_before_publishing() -> Defect:
    """The caller hears first."""
    publish = Answers.publish

    async def reply_first(self: Answers, prepared: Prepared) -> None:
        self._replies.send(prepared.replies)
        await publish(self, prepared)

    return patch.object(Answers, "publish", reply_first)


@breaks("I3")
def disk_before_changelog() -> Defect:
    """Rows go to disk while their changelog records are on their way."""
    remember = Profiles.remember

    async def write_first(self: Profiles, micro_batches: Any, reached: Any) -> None:
        for folded in micro_batches:
            for partition, rows in folded.items():
                offset = self._store.offset(partition) or 0  # type: ignore[attr-defined]
                self._store.write(partition, {user: each.row for user, each in rows.items()}, offset)
        await remember(self, micro_batches, reached)

    return patch.object(Profiles, "remember", write_first)


@breaks("I3")
def overlook_lost_fetches() -> Defect:
    """Nobody checks that fetches follow each other."""

    async def fine(self: Continuity, partition: int, records: Any) -> None:
        return None

    return patch.object(Continuity, "check", fine)


@breaks("I5")
def fetch_without_bound() -> Defect:
    """What was fetched does not count until it is taken in."""
    return patch.object(WaitingRecords, "expect", lambda self, partition, records: None)
