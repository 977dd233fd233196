"""Reading back what was published for source offsets that were never committed, up to our own fence.

The decisions topic is the write-ahead log (invariant I3): what it holds for an offset is what was said, and is repeated.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import ConsumerRecord

from assay.schemas import limits
from assay.schemas.errors import TopologyError
from assay.schemas.source import BEYOND_HORIZON_HEADER, CONFLICT_HEADER
from assay.streams.decision_reader import CLOCK_MARGIN_MS, POLL_MS, source_of
from assay.streams.reading import FETCH_MAX_WAIT_MS, reader, stop


class Said(NamedTuple):
    """A decision as it was published for a source offset."""

    value: bytes
    conflict: bool = False
    beyond_horizon: bool = False


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """What to read back of one source partition.

    Attributes:
        commit: the source offset from which on nothing is committed.
        since_ms: when the first transaction from there on was appended (epoch).
        decisions_end, dead_letters_end: the offsets of our fences.
    """

    commit: int
    since_ms: int
    decisions_end: int
    dead_letters_end: int


@dataclass(slots=True)
class ReadBack:
    """What one source partition's former owners said after the commit, by source offset."""

    decisions: dict[int, Said] = field(default_factory=dict)
    dead_letters: set[int] = field(default_factory=set)


class LogReader:
    """Reads decisions and dead letters back, without a group.

    Args:
        options: aiokafka's client options.
        transactions: the source topic.
        decisions, dead_letters: the topics that are partitioned like it.
        deadline: seconds without anything new.
    """

    def __init__(
        self, options: Mapping[str, Any], transactions: str, decisions: str, dead_letters: str, deadline: float
    ) -> None:
        self._options, self._transactions = dict(options), transactions
        self._decisions, self._dead_letters, self._deadline = decisions, dead_letters, deadline

    async def read_back(self, wanted: Mapping[int, Uncommitted]) -> dict[int, ReadBack]:
        """{source partition: all that was made from source offsets at or after its commit}.

        Reads each topic up to its fence, all of it, since repeats and late appends of older sources lie among what is wanted.
        The first record of a source offset stands: a later one repeats it. Raises ServiceError, KafkaError, TimeoutError, or
        TopologyError where there is more than can be held, or where clocks differ too much.
        """
        found = {partition: ReadBack() for partition in wanted}
        if not wanted:
            return found
        ends = {TopicPartition(self._decisions, p): each.decisions_end for p, each in wanted.items()}
        ends |= {TopicPartition(self._dead_letters, p): each.dead_letters_end for p, each in wanted.items()}
        # "none": where retention cuts in between, it must not go on at the end as if it had read.
        consumer = await reader(self._options, fetch_max_wait_ms=FETCH_MAX_WAIT_MS, auto_offset_reset="none")
        try:
            await self._read(consumer, ends, wanted, found)
        finally:
            await stop(consumer)
        return found

    async def _read(
        self,
        consumer: AIOKafkaConsumer,
        ends: Mapping[TopicPartition, int],
        wanted: Mapping[int, Uncommitted],
        found: Mapping[int, ReadBack],
    ) -> None:
        consumer.assign(list(ends))
        since = {where: max(0, wanted[where.partition].since_ms - CLOCK_MARGIN_MS) for where in ends}
        begins = await asyncio.wait_for(consumer.offsets_for_times(since), self._deadline)
        for where, end in ends.items():
            if begins[where] is None:  # though our fence lies there, and was appended after the transaction
                raise _clocks_differ(where, since[where])
            consumer.seek(where, min(begins[where].offset, end))
        async for where, records in read_up_to(consumer, ends, self._deadline):
            for record in records:
                self._note(record, wanted[where.partition].commit, found[where.partition])
            if sum(len(each.decisions) for each in found.values()) > limits.MAX_READ_BACK_DECISIONS:
                raise _too_many()

    def _note(self, record: ConsumerRecord, commit: int, found: ReadBack) -> None:
        source = source_of(record)
        if source is None or source.offset < commit or source[:2] != (self._transactions, record.partition):
            return
        if record.topic == self._dead_letters:
            found.dead_letters.add(source.offset)
        elif record.value is not None:
            marks = {name for name, _ in record.headers}
            said = Said(record.value, CONFLICT_HEADER in marks, BEYOND_HORIZON_HEADER in marks)
            found.decisions.setdefault(source.offset, said)


async def read_up_to(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int], deadline: float
) -> AsyncIterator[tuple[TopicPartition, list[ConsumerRecord]]]:
    """What assigned partitions hold between where the consumer stands and these offsets, some at a time.

    Raises TimeoutError after `deadline` seconds without anything new, or KafkaError.
    """
    remaining, moved = set(ends), time.monotonic()
    while remaining:
        fetched = await consumer.getmany(*remaining, timeout_ms=POLL_MS)
        for where, records in fetched.items():
            yield where, [record for record in records if record.offset < ends[where]]
        passed = {where for where in remaining if await consumer.position(where) >= ends[where]}
        consumer.pause(*passed)
        remaining -= passed
        if fetched or passed:
            moved = time.monotonic()
        elif time.monotonic() - moved > deadline:
            raise TimeoutError(f"{', '.join(sorted({where.topic for where in ends}))} could not be read for {deadline} s")


def _clocks_differ(where: TopicPartition, since_ms: int) -> TopologyError:
    return TopologyError(
        f"{where.topic}/{where.partition}: a fence just written is older than the transactions that are not committed",
        expected=f"an append time after {since_ms} (epoch, ms): brokers' clocks within {CLOCK_MARGIN_MS} ms of each other",
        got="none",
        mend="set the brokers' clocks (NTP), then start again",
    )


def _too_many() -> TopologyError:
    return TopologyError(
        "more was decided since the committed offset than a take-over can hold",
        expected=f"at most {limits.MAX_READ_BACK_DECISIONS} decisions",
        mend="see why nothing was committed; to go on without judging again: stop the workers, `assay rebuild --until end`",
    )
