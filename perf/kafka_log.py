"""What the benchmark does on Kafka around a run: topics, a backlog, how far decisions have come, and what they say.

The log is the witness: rates come from the append times that the broker wrote (LogAppendTime), not from what a contender says.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from peers.job import CORRELATION

from assay.schemas.errors import ServiceError
from assay.streams.kafka import client_options
from assay.streams.load import Payload
from assay.streams.partitioning import partition_of
from assay.streams.reading import assigned, connect
from assay.streams.settings import Settings
from assay.streams.topics import describe, ensure_topics

FILL_BATCH = 1_000  # transactions, all partitions together
FILL_BATCH_BYTES = 1 << 20  # of one partition
READ_TIMEOUT_S = 60.0


@asynccontextmanager
async def topics_of(settings: Settings) -> AsyncIterator[None]:
    """The topics of one prefix, gone afterwards with all that a contender made under that prefix."""
    await ensure_topics(settings)
    try:
        yield
    finally:
        with suppress(Exception):  # the failure that led here matters more
            await _delete(settings)


async def _delete(settings: Settings) -> None:
    admin = AIOKafkaAdminClient(**client_options(settings))
    await connect(admin.start(), client_options(settings))
    try:
        await admin.delete_topics([topic for topic in await describe(admin) if topic.startswith(settings.topic_prefix)])
    finally:
        await admin.close()


async def fill(settings: Settings, payloads: Sequence[Payload]) -> None:
    """Append the transactions as a caller would who wants no reply: keyed by user, in order, with a correlation header."""
    producer = AIOKafkaProducer(acks="all", max_batch_size=FILL_BATCH_BYTES, **client_options(settings))
    await connect(producer.start(), client_options(settings))
    try:
        for first in range(0, len(payloads), FILL_BATCH):
            lanes: dict[int, Any] = {}
            for number, (key, value, _) in enumerate(payloads[first : first + FILL_BATCH], start=first):
                partition = partition_of(key, settings.partitions)
                if partition not in lanes:
                    lanes[partition] = producer.create_batch()
                correlation = [(CORRELATION, b"%016x" % number)]
                if lanes[partition].append(key=key, value=value, timestamp=None, headers=correlation) is None:
                    raise ServiceError("a backlog's batch is full", mend="make FILL_BATCH smaller")
            sent = [
                await producer.send_batch(batch, settings.transactions, partition=partition)
                for partition, batch in lanes.items()
            ]
            await asyncio.gather(*sent)
    finally:
        await producer.stop()


class Ends:
    """How many records topics hold, asked for cheaply and often."""

    def __init__(self, consumer: AIOKafkaConsumer, partitions: int) -> None:
        self._consumer, self._partitions = consumer, partitions

    async def count(self, topic: str) -> int:
        partitions = [TopicPartition(topic, partition) for partition in range(self._partitions)]
        ends: Mapping[TopicPartition, int] = await self._consumer.end_offsets(partitions)
        return sum(ends.values())


@asynccontextmanager
async def ends_of(settings: Settings) -> AsyncIterator[Ends]:
    """A client that looks at the ends of topics."""
    consumer = AIOKafkaConsumer(**client_options(settings))
    await connect(consumer.start(), client_options(settings))
    try:
        yield Ends(consumer, settings.partitions)
    finally:
        await consumer.stop()


@dataclass(frozen=True)
class Decisions:
    """What lies on a decisions topic.

    Attributes:
        appended_ms: append times, int64 (n,), sorted, of every record with a value.
        transactions: how many different transactions have a decision.
        contradictory: how many of them have two that differ in action or score.
    """

    appended_ms: npt.NDArray[np.int64]
    transactions: int
    contradictory: int

    @property
    def per_s(self) -> float:
        """Decisions a second from the first append to the last."""
        return rate_after(self.appended_ms, 0)

    @property
    def late_per_s(self) -> float:
        """The same of the later half, when everything is warm."""
        return rate_after(self.appended_ms, len(self.appended_ms) // 2)


def rate_after(appended_ms: npt.NDArray[np.int64], index: int) -> float:
    """Records a second after the append of number `index`. Those that share its time are not counted: they came before.

    >>> rate_after(np.array([1_000, 1_000, 1_500, 2_000]), 0)
    2.0
    """
    if not len(appended_ms):
        return float("nan")
    elapsed_ms = int(appended_ms[-1] - appended_ms[index])
    later = int((appended_ms > appended_ms[index]).sum())
    return later / elapsed_ms * 1000 if elapsed_ms else float("nan")


async def read_decisions(settings: Settings) -> Decisions:
    """All of the decisions topic, once its writer has stopped."""
    partitions = range(settings.partitions)
    consumer = await assigned(client_options(settings), settings.decisions, partitions, from_beginning=True, check_crcs=False)
    times: list[int] = []
    verdicts: dict[str, set[tuple[Any, Any]]] = {}
    try:
        ends = await consumer.end_offsets([TopicPartition(settings.decisions, partition) for partition in partitions])
        give_up = time.monotonic() + READ_TIMEOUT_S
        while [tp for tp, end in ends.items() if await consumer.position(tp) < end] and time.monotonic() < give_up:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for record in records:
                    if record.value is not None:
                        times.append(record.timestamp)
                        decision = orjson.loads(record.value)
                        verdict = (decision["action"], decision["fraud_score"])
                        verdicts.setdefault(decision["transaction_id"], set()).add(verdict)
    finally:
        await consumer.stop()
    contradictory = sum(len(of_one) > 1 for of_one in verdicts.values())
    return Decisions(np.sort(np.array(times, np.int64)), len(verdicts), contradictory)
