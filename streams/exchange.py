"""The client's side of Kafka: send a transaction, hear replies. No consumer group: a partition assigned by hand.

A group would rebalance while callers wait, and commit offsets that nobody needs: a reply is for one process, once.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from assay.schemas.errors import ServiceError
from assay.schemas.source import SourceRecord
from assay.streams.reading import REPLY_TOPIC, assigned, begin, partitions_of, stop


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
        await partitions_of(self._options, self._transactions)
        partitions = await partitions_of(self._options, self._replies, create=REPLY_TOPIC if self._create else None)
        partition = random.randrange(partitions) if self._partition is None else self._partition
        self._consumer = await assigned(self._options, self._replies, [partition])
        # Linger 0: one transaction waits for nobody. Those of other callers that come meanwhile share the next request.
        self._producer = AIOKafkaProducer(**self._options, acks="all", linger_ms=0)
        await begin(self._producer, self._options)
        await self._producer.partitions_for(self._transactions)  # or the first call would pay for the metadata
        self._address = [("reply-to", self._replies.encode()), ("reply-partition", b"%d" % partition)]

    async def send(self, key: bytes, value: bytes, headers: list[tuple[str, bytes]]) -> "asyncio.Future[Any]":
        assert self._producer is not None, "start() comes first"
        # aiokafka's default partitioner is murmur2 over the key, as the Java clients' is and as the contract wants
        try:
            future: asyncio.Future[Any] = await self._producer.send(
                self._transactions, key=key, value=value, headers=[*headers, *self._address]
            )
        except KafkaError as error:
            raise ServiceError(f"the transaction could not be sent: {error!r}") from error
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
            await stop(self._consumer)
