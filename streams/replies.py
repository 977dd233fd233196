"""Replies: to the topic and partition that a request names, after its decision is acknowledged, never before.

Replies don't decide anything: one that can't be delivered is counted, and the decision stands where it was published. No topic
that a caller names may slow another caller's replies: each is sent on its own, under a short deadline, and one that fails is
left alone for a while.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from assay.schemas import limits
from assay.schemas.answer_format import in_format
from assay.schemas.formats import AS_JSON
from assay.schemas.headers import Dialect, ReplyAddress, faust_response
from assay.schemas.limits import MAX_PUBLISHED_BATCH_BYTES, REPLY_DEADLINE_S
from assay.schemas.reply_topics import ReplyTopics
from assay.schemas.signature import SigningKey
from assay.schemas.source import OutRecord
from assay.streams.metrics import Metrics
from assay.streams.outbox import Outbox
from assay.streams.partitioning import partition_of
from assay.streams.publisher import Batches
from assay.streams.reading import begin

PAUSE_S = 5.0  # until a topic that was not there, or failed, is tried again
WARN_EVERY_S = 60.0  # of topics that replies may not go to
LEAST_LOOK_PAUSE_S = 0.1  # between two looks for topics, whatever is asked for

Reply = tuple[ReplyAddress, OutRecord]

log = logging.getLogger("assay.replies")


class Replies:
    """Routes replies and sends them off the answer path.

    Args:
        options: aiokafka's client options.
        signing_key: signs what leaves, as it leaves.
        schema_ids: of our answers in the registry, by subject.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        allowed: ReplyTopics,
        metrics: Metrics,
        signing_key: SigningKey | None = None,
        schema_ids: Mapping[str, int] | None = None,
    ) -> None:
        self._signing_key = signing_key
        self._schema_ids: Mapping[str, int] = {} if schema_ids is None else schema_ids
        self._options, self._allowed, self._metrics = dict(options), allowed, metrics
        self._outbox = Outbox(self._send, limits.MAX_WAITING_REPLY_BATCHES, lost=lambda count: self._count("queue_full", count))
        self._producer: AIOKafkaProducer | None = None
        self._partitions: dict[str, int] = {}  # of topics that were asked for and are there
        self._paused: dict[str, float] = {}  # topic -> until when (monotonic) it is left alone
        self._unknown: list[Reply] = []  # whose topics are being looked for
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = 0.0
        self._warned_at = -WARN_EVERY_S

    async def start(self) -> None:
        """Connect. Raises ServiceError."""
        # Not idempotent: nothing depends on the order of replies, and one that fails must not spoil the next.
        self._producer = AIOKafkaProducer(acks="all", max_batch_size=MAX_PUBLISHED_BATCH_BYTES, linger_ms=0, **self._options)
        await begin(self._producer, self._options)
        self._outbox.start()

    async def close(self, within_s: float) -> None:
        await self._outbox.close(within_s)
        if self._producer is not None:
            await asyncio.wait([asyncio.ensure_future(self._producer.stop())], timeout=within_s)

    def send(self, replies: Sequence[Reply]) -> None:
        """Queue replies; never waits."""
        if replies:
            self._outbox.offer(lambda: self._route(replies))

    async def _route(self, replies: Sequence[Reply]) -> Batches:
        batches: dict[tuple[str, int], list[OutRecord]] = {}
        for address, made in replies:
            record = self._rewritten(address, made)
            if record is None:
                continue
            if self._signing_key is not None:
                record[2].append(self._signing_key.header(record[1] or b""))
            where = self._where(address, record)
            if where is not None:
                batches.setdefault(where, []).append(record)
        return batches

    def _rewritten(self, address: ReplyAddress, record: OutRecord) -> OutRecord | None:
        """As its caller reads it; None for what is lost, and counted: it costs only itself."""
        if address.dialect is not Dialect.FAUST and address.format is AS_JSON:
            return record
        try:
            if address.dialect is Dialect.FAUST:
                return faust_response(address, record)
            if (rewritten := in_format(record, address.format, self._schema_ids)) is None:
                self._count("no_schema", 1)
            return rewritten
        except Exception:
            log.exception("a reply could not be written as %s", address.format.content_type.decode("ascii", "replace"))
            self._count("failed", 1)
            return None

    def _where(self, address: ReplyAddress, record: OutRecord) -> tuple[str, int] | None:
        topic, partition = address.topic, address.partition
        count = self._partitions.get(topic)
        if not self._allowed.allows(topic):
            self._count("not_allowed", 1)
            self._warn_of(topic)
        elif self._paused.get(topic, 0.0) > time.monotonic():
            self._count("no_topic" if count is None else "paused", 1)
        elif count is None or (partition is not None and partition >= count):
            self._look_for(address, record)
        else:
            key = record[0]
            return topic, partition if partition is not None else (partition_of(key, count) if key else 0)
        return None

    def _warn_of(self, topic: str) -> None:
        now = time.monotonic()
        if now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            log.warning("no reply to %r: it matches nothing in ASSAY_REPLY_TOPICS", topic)

    # -- topics not seen before -----------------------------------------------------------------------------------------

    def _look_for(self, address: ReplyAddress, record: OutRecord) -> None:
        """Put a reply aside until its topic has been looked for: nobody else's waits for that."""
        if len(self._unknown) >= limits.MAX_WAITING_UNKNOWN_REPLIES:
            self._count("no_topic", 1)
            return
        self._unknown.append((address, record))
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        while self._unknown:  # more come while topics are being looked up
            await self._look_once()

    async def _look_once(self) -> None:
        await asyncio.sleep(max(0.0, self._looked_at + LEAST_LOOK_PAUSE_S - time.monotonic()))
        self._looked_at = time.monotonic()
        replies, self._unknown = self._unknown, []
        try:
            async with asyncio.timeout(REPLY_DEADLINE_S):
                cluster = await self._running.client.fetch_all_metadata()
        except (KafkaError, OSError, TimeoutError) as error:
            log.warning("topics could not be looked up: %r", error)
            self._count("failed", len(replies))
            return
        batches: dict[tuple[str, int], list[OutRecord]] = {}
        for address, record in replies:
            count = len(cluster.partitions_for_topic(address.topic) or ())
            self._learn(address.topic, count)
            if address.topic not in self._partitions:
                self._count("no_topic", 1)
            elif address.partition is not None and address.partition >= count:
                self._count("no_partition", 1)
            elif (where := self._where(address, record)) is not None:
                batches.setdefault(where, []).append(record)
        await self._send(batches)

    def _learn(self, topic: str, partitions: int) -> None:
        if partitions and (topic in self._partitions or len(self._partitions) < limits.MAX_REPLY_TOPICS):
            self._partitions[topic] = partitions
        else:
            self._pause(topic)

    def _pause(self, topic: str) -> None:
        """Leave it alone for a while: it must not cost a request, or a wait, for each reply."""
        self._partitions.pop(topic, None)
        now = time.monotonic()
        if len(self._paused) >= limits.MAX_REPLY_TOPICS:
            self._paused = {name: until for name, until in self._paused.items() if until > now}
        if len(self._paused) < limits.MAX_REPLY_TOPICS:
            self._paused[topic] = now + PAUSE_S

    # -- sent -----------------------------------------------------------------------------------------------------------

    async def _send(self, batches: Batches) -> None:
        if len(batches) == 1:
            [(where, records)] = batches.items()
            await self._send_to(where, records)
        else:
            await asyncio.gather(*(self._send_to(where, records) for where, records in batches.items()))

    async def _send_to(self, where: tuple[str, int], records: Sequence[OutRecord]) -> None:
        topic, partition = where
        try:
            async with asyncio.timeout(REPLY_DEADLINE_S):
                for batch in self._prepared(records):
                    await (await self._running.send_batch(batch, topic, partition=partition))
        except (KafkaError, OSError, TimeoutError) as error:
            log.warning("%d replies to %s/%d were lost: %r", len(records), topic, partition, error)
            self._count("failed", len(records))
            if not isinstance(error, MessageSizeTooLargeError):  # that is the fault of a record, not of its topic
                self._pause(topic)
        else:
            self._count("sent", len(records))

    def _prepared(self, records: Sequence[OutRecord]) -> list[Any]:
        batches: list[Any] = []
        for key, value, headers in records:
            if not batches or batches[-1].append(timestamp=None, key=key, value=value, headers=headers) is None:
                batches.append(self._running.create_batch())
                batches[-1].append(timestamp=None, key=key, value=value, headers=headers)
        for batch in batches:
            batch.close()
        return batches

    @property
    def _running(self) -> AIOKafkaProducer:
        assert self._producer is not None, "start() comes first"
        return self._producer

    def _count(self, result: str, number: int) -> None:
        self._metrics.replies.labels(result).inc(number)
