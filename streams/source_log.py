"""What is known of the source partitions besides their records: committed, earliest and end offsets, and holes."""

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import IllegalStateError
from faust.types import TP

from assay.streams.reading import assigned

HOLE_TIMEOUT_S = 10.0
POLL_MS = 100


class SourceLog:
    """Offsets are asked through Faust's consumer thread, so that the answers carry the group membership of this worker.

    Args:
        options: aiokafka's client options, for a consumer of its own that looks into holes.
    """

    def __init__(self, app: Any, options: Mapping[str, Any], topic: str) -> None:
        self._app, self._options, self._topic = app, options, topic
        self._consumer: AIOKafkaConsumer | None = None

    async def position(self, partition: int) -> int:
        """The offset that is read next; 0 while the partition changes hands."""
        try:
            return await self._app.consumer.position(TP(self._topic, partition)) or 0
        except IllegalStateError:
            return 0

    async def holds_records(self, partition: int, first: int, end: int) -> bool:
        """Whether the log has any record at an offset in [first, end). Raises TimeoutError when Kafka does not say so."""
        where = TopicPartition(self._topic, partition)
        async with asyncio.timeout(HOLE_TIMEOUT_S):
            if self._consumer is None:
                self._consumer = await assigned(self._options, self._topic, [partition], fetch_max_wait_ms=10)
            self._consumer.assign([where])
            self._consumer.seek(where, first)
            while await self._consumer.position(where) < end:
                for record in (await self._consumer.getmany(where, timeout_ms=POLL_MS)).get(where, ()):
                    return bool(record.offset < end)
        return False

    async def close(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()

    async def committed(self, partitions: set[int]) -> Mapping[int, int | None]:
        """The group's committed offsets; None where there is none."""
        thread = self._app.consumer._thread
        consumer = thread._ensure_consumer()
        return {p: await thread.call_thread(consumer.committed, TP(self._topic, p)) for p in partitions}

    async def earliest(self, partitions: set[int]) -> Mapping[int, int]:
        """The offsets of the first records that are still there."""
        found = await self._app.consumer.earliest_offsets(*(TP(self._topic, p) for p in partitions))
        return {tp.partition: offset for tp, offset in found.items()}

    async def ends(self, partitions: set[int]) -> Mapping[int, int]:
        """The offsets after the last records."""
        found = await self._app.consumer.highwaters(*(TP(self._topic, p) for p in partitions))
        return {tp.partition: offset for tp, offset in found.items()}
