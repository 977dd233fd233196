"""Finding decisions in the decisions topic: by the source record that made them, when memory no longer holds them."""

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import ConsumerRecord

from assay.schemas.source import FENCE_HEADER, REPLAY_HEADER, SOURCE_HEADER, Source
from assay.streams.reading import FETCH_MAX_WAIT_MS, reader, stop

POLL_MS = 100
LATE_APPENDS = 1_000  # source offsets by which a decision may lie out of order
CLOCK_MARGIN_MS = 5_000  # append times of two leaders may differ


def source_of(record: ConsumerRecord) -> Source | None:
    """The source record that made this one; None for a fence and for records of others. The last header wins."""
    for name, value in reversed(record.headers):
        if name == FENCE_HEADER:
            return None
        if name == SOURCE_HEADER:
            try:
                return Source.parse(value)
            except ValueError:
                return None
    return None


class DecisionReader:
    """Reads the decisions topic without a group, one look-up at a time.

    Args:
        options: aiokafka's client options.
        topic: the decisions topic, partitioned like its source.
        deadline: seconds for one look-up.
    """

    def __init__(self, options: Mapping[str, Any], topic: str, deadline: float) -> None:
        self._options, self._topic, self._deadline = dict(options), topic, deadline
        self._consumer: AIOKafkaConsumer | None = None
        self._turn = asyncio.Lock()

    async def read(self, partition: int, wanted: set[int], since_ms: int) -> dict[int, ConsumerRecord]:
        """{source offset: its first decision} for the wanted source offsets, of decisions appended since.

        Decisions lie in the order of their sources, but for repeats and for what a former owner appended late: so it reads
        until all are found, or until first decisions are well past the last one wanted. Raises TimeoutError or KafkaError:
        then nothing is known.
        """
        found: dict[int, ConsumerRecord] = {}
        where, enough = TopicPartition(self._topic, partition), max(wanted) + LATE_APPENDS
        async with self._turn, asyncio.timeout(self._deadline):
            consumer = await self._started()
            consumer.assign([where])
            begins = (await consumer.offsets_for_times({where: max(0, since_ms - CLOCK_MARGIN_MS)}))[where]
            end = (await consumer.end_offsets([where]))[where]
            if begins is None:
                return found
            consumer.seek(where, begins.offset)
            while await consumer.position(where) < end and len(found) < len(wanted):
                for record in (await consumer.getmany(where, timeout_ms=POLL_MS)).get(where, ()):
                    source = source_of(record)
                    if source is None or source.partition != partition:
                        continue
                    if source.offset in wanted:
                        found.setdefault(source.offset, record)
                    elif source.offset > enough and not any(name == REPLAY_HEADER for name, _ in record.headers):
                        return found
        return found

    async def close(self) -> None:
        if self._consumer is not None:
            await stop(self._consumer)

    async def _started(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            self._consumer = await reader(self._options, fetch_max_wait_ms=FETCH_MAX_WAIT_MS, auto_offset_reset="none")
        return self._consumer
