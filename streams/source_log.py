"""What is known of the source partitions besides their records: committed, earliest and end offsets, and holes."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, OffsetOutOfRangeError
from faust.types import TP

from assay.schemas.limits import ASK_TIMEOUT_S
from assay.schemas.source import FENCE_HEADER, SourceRecord
from assay.streams.reading import FETCH_MAX_WAIT_MS, reader, stop

POLL_MS = 100
FETCH_BYTES = 16 * 1024  # one record tells

log = logging.getLogger("assay.worker")


class SourceLog:
    """Offsets are asked through Faust's consumer thread, so that the answers carry the group membership of this worker.

    Args:
        options: aiokafka's client options, for consumers of its own: one that looks into holes, and one that only watches.
        deadline: seconds for a question that the flow waits for.
    """

    def __init__(self, app: Any, options: Mapping[str, Any], topic: str, deadline: float) -> None:
        self._app, self._options, self._topic, self._deadline = app, options, topic, deadline
        self._consumers: dict[str, AIOKafkaConsumer] = {}
        self._turn = asyncio.Lock()

    async def position(self, partition: int) -> int:
        """The offset that the worker's consumer reads next; 0 while the partition changes hands."""
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                return await self._app.consumer.position(TP(self._topic, partition)) or 0
        except (IllegalStateError, TimeoutError):
            return 0

    async def holds_records(self, partition: int, first: int, end: int) -> bool:
        """Whether the log has, or had, any record at an offset in [first, end). Raises TimeoutError or KafkaError."""
        try:
            return await self._first(partition, first, end) is not None
        except OffsetOutOfRangeError:  # expired before they were scored
            return True

    async def first_append(self, partition: int, first: int, end: int) -> int | None:
        """When the first record at an offset in [first, end) was appended (epoch, ms); None where there is none.

        Fences are passed over: in a topic of copies they alone have the time of whoever wrote them. Raises
        OffsetOutOfRangeError where it has expired, TimeoutError or another KafkaError.
        """
        return await self._first(partition, first, end, fences=False)

    async def _first(self, partition: int, first: int, end: int, *, fences: bool = True) -> int | None:
        where = TopicPartition(self._topic, partition)
        async with asyncio.timeout(self._deadline), self._turn:
            own = await self._own("looks")
            own.assign([where])
            own.seek(where, first)
            while await own.position(where) < end:
                for record in (await own.getmany(where, timeout_ms=POLL_MS)).get(where, ()):
                    if record.offset >= end:
                        return None
                    if fences or not _is_fence(record):
                        return int(record.timestamp)
        return None

    async def readable(self, partitions: set[int]) -> Mapping[int, int]:
        """The ends of what can be read. Raises TimeoutError or KafkaError."""
        async with asyncio.timeout(self._deadline), self._turn:
            return await self._ends(await self._own("looks"), partitions)

    async def seen_by_others(self, partitions: set[int]) -> Mapping[int, int]:
        """The same, asked by a client that does nothing else: the worker's consumer may have stopped without a word.

        Raises TimeoutError or KafkaError, soon.
        """
        async with asyncio.timeout(ASK_TIMEOUT_S):
            return await self._ends(await self._own("watches"), partitions)

    async def _ends(self, own: AIOKafkaConsumer, partitions: set[int]) -> dict[int, int]:
        found = await own.end_offsets([TopicPartition(self._topic, partition) for partition in partitions])
        return {where.partition: end for where, end in found.items()}

    async def _own(self, use: str) -> AIOKafkaConsumer:
        if use not in self._consumers:
            self._consumers[use] = await reader(
                self._options,
                auto_offset_reset="none",
                isolation_level="read_committed",
                fetch_max_wait_ms=FETCH_MAX_WAIT_MS,
                max_partition_fetch_bytes=FETCH_BYTES,
            )
        return self._consumers[use]

    async def close(self) -> None:
        for consumer in self._consumers.values():
            await stop(consumer)

    async def committed(self, partitions: set[int]) -> Mapping[int, int | None]:
        """The group's committed offsets; None where there is none."""
        thread = self._app.consumer._thread
        consumer = thread._ensure_consumer()
        return {p: await thread.call_thread(consumer.committed, TP(self._topic, p)) for p in partitions}

    async def confirm(self, offsets: Mapping[int, int]) -> bool:
        """Commit these with the generation of our membership: False where the group has gone on without us.

        Only this tells a sleeper that has woken up that it is one. Raises KafkaError.
        """
        thread = self._app.consumer._thread
        consumer, asked_at = thread._ensure_consumer(), time.monotonic()
        try:
            await thread.call_thread(consumer.commit, {TopicPartition(self._topic, p): at for p, at in offsets.items()})
        except (CommitFailedError, IllegalStateError) as error:
            log.info("the group has gone on: %r", error)
            return False
        self._app.consumer.heard_at = asked_at
        return True

    async def earliest(self, partitions: set[int]) -> Mapping[int, int]:
        """The offsets of the first records that are still there."""
        found = await self._app.consumer.earliest_offsets(*(TP(self._topic, p) for p in partitions))
        return {tp.partition: offset for tp, offset in found.items()}


def _is_fence(record: SourceRecord) -> bool:
    return record.value is None and any(name == FENCE_HEADER for name, _ in record.headers)
