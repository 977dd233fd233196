"""Publishing: prepared batches per partition, through an idempotent producer, acknowledged by all replicas.

Batches of the topics that are partitioned like their source bear the identity of their source partition (`streams.claims`),
so that the broker refuses a worker that has lost the partition without knowing. A record in a prepared batch costs 2-3 us, one
sent alone 41. Our own deadline stands over every call, since aiokafka retries an idempotent batch for ever. After the first
failure nothing more leaves: whoever publishes must end the process, uncommitted.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidProducerEpoch,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RecordListTooLargeError,
)
from aiokafka.producer.message_accumulator import BatchBuilder

from assay.schemas.errors import DeadlinePassed, Fenced, OutOfOrder, PublishError, TooLarge
from assay.schemas.limits import MAX_PUBLISHED_BATCH_BYTES
from assay.schemas.source import FENCE_HEADER, FENCE_KEY, OutRecord
from assay.streams.claims import Claim, Identity, OwnedBatch

Placed = dict[tuple[str, int], int]  # {(topic, partition): offset of the last record}
Batches = Mapping[tuple[str, int], Sequence[OutRecord]]  # {(topic, partition): records}

TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
TYPED: dict[type[BaseException], type[PublishError]] = {
    ProducerFenced: Fenced,
    InvalidProducerEpoch: Fenced,
    OutOfOrderSequenceNumber: OutOfOrder,
    TimeoutError: DeadlinePassed,
} | dict.fromkeys(TOO_LARGE, TooLarge)
OVERTAKEN = "Fenced: another worker has taken our partitions over, while this one was paused, cut off or slow"
OVERTAKEN_MEND = "nothing has to be mended: start it again, as its supervisor does"
NO_COMPRESSION = 0  # it costs 7 us a record, and our batches are small
UNKNOWN = -1  # where the broker took a batch for one that it had already
FENCE: OutRecord = (FENCE_KEY, None, [(FENCE_HEADER, b"1")])


class Publisher:
    """One connection to the brokers; at most one batch in flight per topic and partition.

    Args:
        options: aiokafka's client options (`streams.kafka.client_options`).
        owned: topics that only the owner of a source partition may publish to: `fence` it first. Others are anybody's.
        deadline: seconds that bound every call.
        max_bytes: of a batch, by topic: its `max.message.bytes`. Records beyond it go into the next batch.
        stamp: from a record's headers to its time (epoch, ms), for topics that keep it; None: now.
    """

    def __init__(
        self,
        options: dict[str, Any],
        *,
        owned: Sequence[str] = (),
        deadline: float,
        max_bytes: Mapping[str, int] | None = None,
        stamp: Callable[[Sequence[tuple[str, Any]]], int | None] | None = None,
    ) -> None:
        self._stamp = stamp
        self._options, self.owned, self._deadline, self._max_bytes = options, tuple(owned), deadline, max_bytes or {}
        self._identities: dict[int, Identity] = {}
        self._producer: AIOKafkaProducer | None = None
        self._turn = asyncio.Lock()
        self.failure: PublishError | None = None

    async def start(self) -> None:
        """Connect. Raises PublishError."""
        self._producer = AIOKafkaProducer(
            acks="all", enable_idempotence=True, max_batch_size=MAX_PUBLISHED_BATCH_BYTES, linger_ms=0, **self._options
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

    async def publish(self, batches: Batches) -> Placed:
        """Append records in order; return where the last ones lie once all replicas in sync have all of them.

        A PublishError is the end. Calls take turns, in the order in which they were made, so nothing overtakes what has
        failed. One call for several partitions costs one round trip and one deadline.
        """
        async with self._bounded("publish"), self._turn:
            return await self._append(batches, self._identities)

    async def fence(self, claims: Mapping[int, Claim]) -> Placed:
        """Publish under these claims from now on, {source partition: claim}, beginning with a fence record in each owned topic.

        Where those lie is where former owners end. Raises PublishError.
        """
        async with self._bounded("fence"), self._turn:
            for partition, claim in claims.items():
                held = self._identities.get(partition)
                if held is None or held.claim != claim:
                    self._identities[partition] = Identity(claim)
            return await self._append(self._fences(claims), self._identities)

    async def shut_out(self, partition: int, outranking: Claim) -> None:
        """Write one fence record under another's producer id, in an epoch above all of its own. Raises PublishError."""
        async with self._bounded("shutting out"), self._turn:
            await self._append(self._fences([partition]), {partition: Identity(outranking)})

    def _fences(self, partitions: Iterable[int]) -> Batches:
        return {(topic, partition): [FENCE] for topic in self.owned for partition in partitions}

    async def _append(self, batches: Batches, identities: Mapping[int, Identity]) -> Placed:
        placed: Placed = {}
        lanes = {where: self._prepare(*where, records, identities) for where, records in batches.items() if records}
        while lanes:
            await self._round(lanes, placed)
        return placed

    async def _round(self, lanes: dict[tuple[str, int], Iterator[BatchBuilder]], placed: Placed) -> None:
        """Send the next batch of each partition, and wait for all of them; partitions without one are taken out."""
        if self.failure is not None:
            raise self.failure
        sent = []
        for where, lane in list(lanes.items()):
            batch = next(lane, None)
            if batch is None:
                del lanes[where]
            else:
                sent.append((where, batch, await self._running.send_batch(batch, where[0], partition=where[1])))
        for where, batch, acknowledged in sent:
            metadata = await acknowledged
            known = metadata.offset >= 0  # else the broker had it already: an acknowledgement was lost on the way
            placed[where] = metadata.offset + batch.record_count() - 1 if known else UNKNOWN

    @property
    def _running(self) -> AIOKafkaProducer:
        if self._producer is None:
            raise PublishError("the publisher is not started")
        return self._producer

    def _new_batch(self, topic: str, partition: int, identities: Mapping[int, Identity]) -> BatchBuilder:
        most = min(MAX_PUBLISHED_BATCH_BYTES, self._max_bytes.get(topic, MAX_PUBLISHED_BATCH_BYTES))
        if topic not in self.owned:
            return BatchBuilder(most, NO_COMPRESSION)
        if (identity := identities.get(partition)) is None:
            raise PublishError(f"{topic}/{partition}: the partition was not claimed")
        return OwnedBatch(identity, topic, most, NO_COMPRESSION)

    def _prepare(
        self, topic: str, partition: int, records: Iterable[OutRecord], identities: Mapping[int, Identity]
    ) -> Iterator[BatchBuilder]:
        batch: BatchBuilder | None = None
        stamp, at = self._stamp, None
        for key, value, headers in records:
            if stamp is not None:
                at = stamp(headers)
            if batch is None or batch.append(timestamp=at, key=key, value=value, headers=headers) is None:
                if batch is not None:
                    batch.close()
                    yield batch
                batch = self._new_batch(topic, partition, identities)
                batch.append(timestamp=at, key=key, value=value, headers=headers)  # a first record always fits
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
            failure = self._explained(doing, error)
            self._fail(failure)
            raise failure from error
        except BaseException:  # cancelled: what was sent may still be accepted, so nothing may follow it
            self._fail(PublishError(f"{doing}: cancelled"))
            raise

    def _explained(self, doing: str, error: Exception) -> PublishError:
        """What happened, in words for whoever is woken by it."""
        kind = TYPED.get(type(error), PublishError)
        if kind is Fenced:
            return Fenced(f"{doing}: {OVERTAKEN}", mend=OVERTAKEN_MEND)
        if kind is TooLarge:
            return TooLarge(f"{doing}: {error!r}", mend="restart: max.message.bytes of the topics is read at start")
        return kind(f"{doing}: {error!r}", mend=f"see that Kafka answers; the deadline is {self._deadline} s")

    def _fail(self, error: PublishError) -> None:
        if self.failure is None:
            self.failure = error
            if self._producer is not None and self._producer._sender.sender_task is not None:
                self._producer._sender.sender_task.cancel()  # whatever is still queued must not leave
                self._producer._message_accumulator.fail_all(error)
