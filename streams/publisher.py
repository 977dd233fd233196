"""Publishing: prepared batches per partition, through an idempotent producer, acknowledged by all replicas.

A record in a prepared batch costs 2-3 us, one sent alone 41. Our own deadline stands over every call, since aiokafka retries an
idempotent batch for ever. After the first failure nothing more leaves: whoever publishes must end the process, uncommitted.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    InvalidProducerEpoch,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RecordListTooLargeError,
)
from aiokafka.producer.message_accumulator import BatchBuilder

from assay.schemas.errors import DeadlinePassed, Fenced, OutOfOrder, PublishError, TooLarge
from assay.schemas.source import OutRecord

TYPED: dict[type[BaseException], type[PublishError]] = {
    ProducerFenced: Fenced,
    InvalidProducerEpoch: Fenced,
    OutOfOrderSequenceNumber: OutOfOrder,
    MessageSizeTooLargeError: TooLarge,
    RecordListTooLargeError: TooLarge,
    TimeoutError: DeadlinePassed,
}
MAX_PUBLISHED_BATCH_BYTES = 900_000  # below the broker's default message.max.bytes


@dataclass(frozen=True, slots=True)
class Appended:
    """Where records came to lie: offsets inclusive, and the append time of the last batch (ms; -1 with CreateTime)."""

    first: int
    last: int
    timestamp_ms: int


class Publisher:
    """One connection to the brokers; one batch in flight per topic and partition, so that none overtakes a failed one.

    Args:
        options: aiokafka's client options (`streams.kafka.client_options`).
        deadline: seconds that bound every call.
        max_batch_bytes: of one prepared batch; records beyond it go into the next one.
    """

    def __init__(self, options: dict[str, Any], *, deadline: float, max_batch_bytes: int = MAX_PUBLISHED_BATCH_BYTES) -> None:
        self._options, self._deadline, self._max_batch_bytes = options, deadline, max_batch_bytes
        self._producer: AIOKafkaProducer | None = None
        self._turns: dict[TopicPartition, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.failure: PublishError | None = None

    async def start(self) -> None:
        """Connect. Raises PublishError."""
        self._producer = AIOKafkaProducer(
            acks="all", enable_idempotence=True, max_batch_size=self._max_batch_bytes, linger_ms=0, **self._options
        )
        # aiokafka gives a batch up, its sequence spent, when no leader is known for request_timeout_ms: only we may give up.
        self._producer._message_accumulator._batch_ttl = 2 * self._deadline
        async with self._bounded("start"):
            await self._producer.start()

    async def close(self) -> None:
        """Close without waiting for what is not acknowledged: aiokafka's own stop() flushes for ever."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        producer._closed = True
        closing = [asyncio.ensure_future(producer.client.close())]
        if (sender := producer._sender.sender_task) is not None:
            sender.cancel()  # it leaves once the request in flight has ended, which closing the connections does
            closing.append(sender)
        await asyncio.wait(closing, timeout=self._deadline)

    async def publish(self, topic: str, partition: int, records: Iterable[OutRecord]) -> Appended:
        """Append records (at least one) in order; return once all replicas in sync have them. A PublishError is the end.

        Calls for one partition keep the order in which they were made.
        """
        placed = []
        where = f"publish to {topic}/{partition}"
        async with self._bounded(where), self._turns[TopicPartition(topic, partition)]:
            for batch in self._batches(topic, partition, records):
                if self.failure is not None:
                    raise self.failure
                metadata = await (await self._running.send_batch(batch, topic, partition=partition))
                if metadata.offset < 0:
                    raise PublishError(f"{where}: taken for a duplicate, so it can't be said where it lies")
                placed.append((metadata.offset, metadata.offset + batch.record_count() - 1, metadata.timestamp))
        return Appended(placed[0][0], placed[-1][1], placed[-1][2] if placed[-1][2] is not None else -1)

    async def topics(self) -> dict[str, int]:
        """{topic: number of partitions} of all that this client may see."""
        async with self._bounded("metadata"):
            cluster = await self._running.client.fetch_all_metadata()
        return {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in cluster.topics()}

    @property
    def _running(self) -> AIOKafkaProducer:
        if self._producer is None:
            raise PublishError("the publisher is not started")
        return self._producer

    def _new_batch(self, topic: str, partition: int) -> BatchBuilder:
        """The seam of the fence: a partition's own producer identity is to be stamped on the batches made here."""
        return self._running.create_batch()

    def _batches(self, topic: str, partition: int, records: Iterable[OutRecord]) -> Iterable[BatchBuilder]:
        batch: BatchBuilder | None = None
        for key, value, headers in records:
            if batch is None or batch.append(timestamp=None, key=key, value=value, headers=headers) is None:
                if batch is not None:
                    batch.close()
                    yield batch
                batch = self._new_batch(topic, partition)
                batch.append(timestamp=None, key=key, value=value, headers=headers)  # a first record always fits
        if batch is not None:
            batch.close()
            yield batch

    @asynccontextmanager
    async def _bounded(self, doing: str) -> AsyncIterator[None]:
        """Run under the deadline; whatever stops it, a cancellation too, is the failure of the whole publisher."""
        if self.failure is not None:
            raise self.failure
        try:
            async with asyncio.timeout(self._deadline):
                yield
        except PublishError as error:
            self._fail(error)
            raise
        except Exception as error:
            failure = TYPED.get(type(error), PublishError)(
                f"{doing}: {error!r}", mend=f"see that Kafka answers; the deadline is {self._deadline} s"
            )
            self._fail(failure)
            raise failure from error
        except BaseException:  # cancelled: what was sent may still be accepted, so nothing may follow it
            self._fail(PublishError(f"{doing}: cancelled"))
            raise

    def _fail(self, error: PublishError) -> None:
        if self.failure is None:
            self.failure = error
            if self._producer is not None and self._producer._sender.sender_task is not None:
                self._producer._sender.sender_task.cancel()  # whatever is still queued must not leave
                self._producer._message_accumulator.fail_all(error)
