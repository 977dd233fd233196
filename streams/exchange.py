"""The client's side of Kafka: send a transaction, hear replies. No consumer group: a partition assigned by hand.

A group would rebalance while callers wait, and commit offsets that nobody needs: a reply is for one process, once.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from assay.schemas.errors import ServiceError
from assay.schemas.source import SourceRecord

CONNECT_TIMEOUT_S = 10.0
REPLY_PARTITIONS = 4  # of a reply topic that we make; clients choose one each
REPLY_RETENTION_MS = 10 * 60 * 1000  # nobody reads a reply that old
SETTLE_ATTEMPTS = 100  # times 0.05 s: until the controller's word has reached the broker


class Exchange(Protocol):
    """What `DecisionClient` needs of the world."""

    async def start(self) -> None:
        """Return when replies to whatever is sent from now on will be heard."""

    async def send(self, key: bytes, value: bytes, headers: list[tuple[str, bytes]]) -> "asyncio.Future[Any]":
        """Hand a transaction over, with where to reply to; the future ends when it is acknowledged, or fails."""

    async def receive(self) -> Sequence[SourceRecord]:
        """Wait for replies. Raises ServiceError when there will be no more."""

    async def close(self) -> None: ...


class KafkaExchange:
    """An `Exchange` over Kafka.

    Args:
        options: aiokafka's client options, `bootstrap_servers` among them (`streams.kafka.client_options`).
        create: make the reply topic where it is missing.
        partition: of the reply topic; one by chance when None, so that clients spread.
    """

    def __init__(
        self, options: dict[str, Any], *, transactions_topic: str, reply_topic: str, create: bool, partition: int | None = None
    ) -> None:
        self._options, self._transactions, self._replies = options, transactions_topic, reply_topic
        self._create, self._partition = create, partition
        self._address: list[tuple[str, bytes]] = []
        self._producer: AIOKafkaProducer | None = None
        self._consumer: AIOKafkaConsumer | None = None

    async def start(self) -> None:
        await connect(self._start(), self._options)

    async def _start(self) -> None:
        partitions = await ensure_reply_topic(self._options, self._replies, self._transactions, create=self._create)
        partition = random.randrange(partitions) if self._partition is None else self._partition
        self._consumer = await replies_from_now(self._options, self._replies, [partition])
        # Linger 0: one transaction waits for nobody. Those of other callers that come meanwhile share the next request.
        self._producer = AIOKafkaProducer(**self._options, acks="all", linger_ms=0)
        await self._producer.start()
        await self._producer.partitions_for(self._transactions)  # or the first call would pay for the metadata
        self._address = [("reply-to", self._replies.encode()), ("reply-partition", b"%d" % partition)]

    async def send(self, key: bytes, value: bytes, headers: list[tuple[str, bytes]]) -> "asyncio.Future[Any]":
        assert self._producer is not None, "start() comes first"
        # aiokafka's default partitioner is murmur2 over the key, as the Java clients' is and as the contract wants
        future: asyncio.Future[Any] = await self._producer.send(
            self._transactions, key=key, value=value, headers=[*headers, *self._address]
        )
        return future

    async def receive(self) -> Sequence[SourceRecord]:
        assert self._consumer is not None, "start() comes first"
        try:
            batches = await self._consumer.getmany(timeout_ms=1_000)
        except KafkaError as error:
            raise ServiceError(f"replies can't be read any more: {error!r}", mend="open a new client") from error
        return [record for batch in batches.values() for record in batch]

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.stop()
        if self._consumer is not None:
            await self._consumer.stop()


async def connect(starting: Any, options: dict[str, Any]) -> Any:
    """Await it for so long, and say in our words that Kafka is not there. Raises ServiceError."""
    try:
        return await asyncio.wait_for(starting, CONNECT_TIMEOUT_S)
    except (KafkaError, TimeoutError, OSError) as error:
        raise ServiceError(
            f"Kafka does not answer at {options['bootstrap_servers']}: {error!r}",
            expected="a broker at ASSAY_BOOTSTRAP_SERVERS",
            mend="start one (`assay services up` does, for development) or set ASSAY_BOOTSTRAP_SERVERS",
        ) from error


async def ensure_reply_topic(options: dict[str, Any], topic: str, transactions_topic: str, *, create: bool) -> int:
    """The number of partitions of the reply topic, which is made where it is missing. Raises ServiceError."""
    admin = AIOKafkaAdminClient(**options)
    try:
        await admin.start()
        there = await admin.list_topics()
        if transactions_topic not in there:
            raise ServiceError(
                f"there is no topic {transactions_topic}",
                expected="the topic that workers read",
                mend="start a worker, which makes it, or set ASSAY_TOPIC_PREFIX and ASSAY_TRANSACTIONS_TOPIC as it has them",
            )
        if topic not in there:
            if not create:
                raise ServiceError(f"there is no reply topic {topic}", mend="make it, or allow the client to")
            await _create(admin, topic)
        for _ in range(SETTLE_ATTEMPTS):
            described = await admin.describe_topics([topic])
            partitions = described[0]["partitions"]
            if partitions and all(partition["leader"] >= 0 for partition in partitions):
                return len(partitions)
            await asyncio.sleep(0.05)
    finally:
        await admin.close()
    raise ServiceError(f"topic {topic} has no leader", mend="look at the brokers")


async def _create(admin: AIOKafkaAdminClient, topic: str) -> None:
    wanted = NewTopic(topic, REPLY_PARTITIONS, -1, topic_configs={"retention.ms": str(REPLY_RETENTION_MS)})
    answer = await admin.create_topics([wanted])
    for name, code, *detail in answer.topic_errors:
        error = for_code(code)
        if code and error is not TopicAlreadyExistsError:
            raise ServiceError(
                f"reply topic {name} could not be made: {error.__name__} {detail[0] if detail else ''}",
                mend="make it by hand, or give this client the right to; its name must be on the workers' allow-list",
            )


async def replies_from_now(options: dict[str, Any], topic: str, partitions: Sequence[int], **more: Any) -> AIOKafkaConsumer:
    """A consumer of these partitions, without a group, whose positions are resolved: nothing appended from now on is missed."""
    consumer = AIOKafkaConsumer(**options, group_id=None, enable_auto_commit=False, auto_offset_reset="latest", **more)
    await consumer.start()
    try:
        assigned = [TopicPartition(topic, partition) for partition in partitions]
        consumer.assign(assigned)
        await consumer.seek_to_end(*assigned)
        for partition in assigned:
            await consumer.position(partition)
    except BaseException:
        await consumer.stop()
        raise
    return consumer
