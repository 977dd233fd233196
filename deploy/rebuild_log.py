"""What a rebuild reads of Kafka, and where it has to begin and to end."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from assay.schemas.decode import Request
from assay.schemas.errors import ServiceError, TopologyError
from assay.schemas.source import SourceTopic
from assay.streams.decision_reader import CLOCK_MARGIN_MS, source_of
from assay.streams.kafka import client_options
from assay.streams.reading import FETCH_MAX_WAIT_MS, connect, reader, stop
from assay.streams.settings import Settings
from assay.tables.partition_state import PartitionState

FETCH_BYTES = 4 << 20  # of one partition at once
READ_AT_ONCE = 2_000  # records
POLL_MS = 500
QUIET_S = 30.0  # without anything new, though there is more


class Until(StrEnum):
    """Up to where transactions are folded: the group's commit, or the beginning or the end of what is there."""

    COMMIT = "commit"
    EARLIEST = "earliest"
    END = "end"


@dataclass(frozen=True, slots=True)
class Span:
    """Of one source partition: records at offsets in [first, end) are folded, and workers go on at `end`."""

    partition: int
    first: int
    end: int
    committed: int | None


class Log:
    """The brokers, asked by a client that is no member of the group."""

    def __init__(self, settings: Settings, admin: AIOKafkaAdminClient, consumer: AIOKafkaConsumer) -> None:
        self._settings, self._admin, self._consumer = settings, admin, consumer

    @classmethod
    @asynccontextmanager
    async def of(cls, settings: Settings) -> AsyncIterator[Self]:
        """Connected for as long as the block runs. Raises ServiceError, also for what Kafka refuses meanwhile."""
        options = client_options(settings)
        admin = AIOKafkaAdminClient(**options)
        try:
            await connect(admin.start(), options)
            consumer = await reader(
                options, auto_offset_reset="none", isolation_level="read_committed", max_partition_fetch_bytes=FETCH_BYTES,
                fetch_max_wait_ms=FETCH_MAX_WAIT_MS,
            )  # fmt: skip
            try:
                yield cls(settings, admin, consumer)
            finally:
                await stop(consumer)
        except KafkaError as error:
            raise ServiceError(
                f"Kafka at {settings.bootstrap_servers}: {error!r}",
                expected="the right to read all topics, to write the changelog, and to describe the group and commit for it",
                mend="see that it answers, and what this user may do; then run it again",
            ) from error
        finally:
            await admin.close()

    async def check_nobody_works(self) -> None:
        """Raises ServiceError while the group has members."""
        [answer] = await self._admin.describe_consumer_groups([self._settings.group_id])
        members = sum(len(group[5]) for group in answer.groups)
        if members:
            raise ServiceError(
                f"the group {self._settings.group_id} has {members} members: the profiles are being worked on",
                expected="no worker that runs",
                got=f"{members}",
                mend="stop all workers; one that was killed is a member until its session times out",
            )

    async def records(self, topic: str, partition: int, first: int, end: int) -> AsyncIterator[list[ConsumerRecord]]:
        """The records of a partition at offsets in [first, end), some at a time. Raises ServiceError or KafkaError."""
        self.begin(topic, {partition: first})
        while records := await self.some(topic, partition, end):
            yield records

    def begin(self, topic: str, firsts: Mapping[int, int]) -> None:
        """Read these partitions of a topic from now on, and no others, each from its offset."""
        self._consumer.assign([TopicPartition(topic, partition) for partition in firsts])
        for partition, first in firsts.items():
            self._consumer.seek(TopicPartition(topic, partition), first)

    async def some(self, topic: str, partition: int, end: int) -> list[ConsumerRecord]:
        """The next records of a partition at offsets before `end`; none once it is there. Raises as `records` does."""
        where, consumer = TopicPartition(topic, partition), self._consumer
        asked = time.monotonic()
        while await consumer.position(where) < end:
            fetched = await consumer.getmany(where, timeout_ms=POLL_MS, max_records=READ_AT_ONCE)
            if records := [record for record in fetched.get(where, ()) if record.offset < end]:
                return records
            if time.monotonic() - asked > QUIET_S:
                raise ServiceError(f"{topic}/{partition}: nothing comes any more", mend="see that Kafka answers")
        return []

    async def all_records(self, topic: str, partition: int) -> AsyncIterator[list[ConsumerRecord]]:
        """The same, of all that is there now."""
        first, end = await self.bounds(topic, partition)
        async for records in self.records(topic, partition, first, end):
            yield records

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset of a partition, and the one after its last record that can be read."""
        where = TopicPartition(topic, partition)
        first, end = await asyncio.gather(self._consumer.beginning_offsets([where]), self._consumer.end_offsets([where]))
        return first[where], end[where]

    async def bounds_since(self, topic: str, partition: int, since_ms: int | None) -> tuple[int, int]:
        """The same, from the first record on that was appended at `since_ms` (epoch) or later; None: from the beginning."""
        first, end = await self.bounds(topic, partition)
        if since_ms is not None:
            where = TopicPartition(topic, partition)
            found = (await self._consumer.offsets_for_times({where: max(0, since_ms)}))[where]
            first = end if found is None else int(found.offset)
        return first, end

    async def committed(self, topic: str = "") -> dict[int, int]:
        """The group's offsets of a topic (of the transactions), by partition; those that it has."""
        offsets = await self._admin.list_consumer_group_offsets(self._settings.group_id)
        topic = topic or self._settings.transactions
        return {where.partition: found.offset for where, found in offsets.items() if where.topic == topic and found.offset >= 0}

    async def commit(self, offsets: Mapping[int, int]) -> None:
        """Set offsets of the group, {source partition: offset}. Kafka refuses it while the group has members."""
        if not offsets:
            return
        member = AIOKafkaConsumer(**client_options(self._settings), group_id=self._settings.group_id, enable_auto_commit=False)
        await member.start()
        try:
            at = {TopicPartition(self._settings.transactions, partition): offset for partition, offset in offsets.items()}
            member.assign(list(at))
            await member.commit(at)
        finally:
            await stop(member)


async def dead_letters(log: Log, settings: Settings, partition: int, first: int, end: int) -> dict[int, int]:
    """{source offset in [first, end): append time (epoch, ms) of its last dead letter}"""
    found = {}
    async for records in log.all_records(settings.dead_letters, partition):
        for record in records:
            source = source_of(record)
            if source is not None and source.topic == settings.transactions and first <= source.offset < end:
                found[source.offset] = record.timestamp
    return found


def has_dead_letter(letters: Mapping[int, int], request: Request) -> bool:
    """One from before its append is of a topic that was there before this one."""
    return letters.get(request.source.offset, 0) + CLOCK_MARGIN_MS >= request.appended_ms


async def spans(log: Log, states: Mapping[int, PartitionState | None], topic: SourceTopic, until: Until) -> list[Span]:
    """What is to be folded of each partition.

    Args:
        states: what the changelog says of the partitions.

    Raises TopologyError where the group's offset lies outside of the topic.
    """
    committed = await log.committed()
    return [
        span_of(partition, await log.bounds(topic.name, partition), committed.get(partition), states[partition], topic, until)
        for partition in range(topic.partitions)
    ]


def span_of(
    partition: int,
    bounds: tuple[int, int],
    committed: int | None,
    state: PartitionState | None,
    topic: SourceTopic,
    until: Until,
) -> Span:
    """What is to be folded of one partition; where the group has no offset (any more), workers go on as a take-over would.

    >>> topic = SourceTopic("transactions", "id", 4)
    >>> span_of(0, (10, 90), 40, None, topic, Until.COMMIT)
    Span(partition=0, first=10, end=40, committed=40)
    >>> span_of(0, (10, 90), None, PartitionState("id", 4, 30, 35), topic, Until.COMMIT).end
    30
    """
    earliest, end = bounds
    if until is Until.END:
        at = end
    elif until is Until.EARLIEST:
        at = earliest
    elif committed is not None:
        at = committed
    else:
        at = state.committed if state is not None and state.topic_id == topic.id else earliest
    if not earliest <= at <= end:
        raise TopologyError(
            f"partition {partition}: the group's offset is outside of the transactions topic, whose records expired before "
            "they were scored, or which was made anew",
            expected=f"{earliest} to {end}",
            got=str(at),
            mend="say where workers are to go on: --until earliest (everything that is there gets its verdict) or --until end "
            "(what is there gets none)",
        )
    return Span(partition, earliest, at, committed)
