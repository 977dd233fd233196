"""The client's side of Kafka: send a transaction, hear replies. No consumer group: a partition assigned by hand.

A group would rebalance while callers wait, and commit offsets that nobody needs: a reply is for one process, once.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from assay.schemas.errors import ServiceError
from assay.schemas.limits import MAX_WAITING_CALLS
from assay.schemas.source import OutRecord, SourceRecord
from assay.streams.partitioning import partition_of
from assay.streams.reading import REPLY_TOPIC, assigned, begin, partitions_of, stop
from assay.streams.sending import Sending


class Exchange(Protocol):
    """What `DecisionClient` needs of the world."""

    async def start(self) -> None:
        """Return when replies to whatever is sent from now on will be heard."""

    async def send(self, key: bytes, value: bytes, headers: list[tuple[str, bytes]]) -> "asyncio.Future[Any]":
        """Hand a transaction over, with where to reply to; the future ends when it is acknowledged, or fails.

        One that is cancelled before it has left is not sent.
        """

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
        self._partitions = 0  # of the transactions
        self._sendings: dict[int, tuple[Sending[_Sent], asyncio.Task[None]]] = {}
        self._producer: AIOKafkaProducer | None = None
        self._consumer: AIOKafkaConsumer | None = None

    async def start(self) -> None:
        self._partitions = await partitions_of(self._options, self._transactions)
        partitions = await partitions_of(self._options, self._replies, create=REPLY_TOPIC if self._create else None)
        partition = random.randrange(partitions) if self._partition is None else self._partition
        self._consumer = await assigned(self._options, self._replies, [partition])
        # Linger 0: one transaction waits for nobody. Those of other callers that come meanwhile share the next batch, of at
        # most 16 KB (aiokafka's default): where one is refused for its size, few others are.
        self._producer = AIOKafkaProducer(**self._options, acks="all", linger_ms=0)
        await begin(self._producer, self._options)
        await self._producer.partitions_for(self._transactions)  # or the first call would pay for the metadata
        self._address = [("reply-to", self._replies.encode()), ("reply-partition", b"%d" % partition)]

    async def send(self, key: bytes, value: bytes, headers: list[tuple[str, bytes]]) -> "asyncio.Future[Any]":
        sending = self._sending_to(partition_of(key, self._partitions))
        if len(sending.due) >= MAX_WAITING_CALLS:  # Kafka takes nothing: let go of those whose callers have gone
            sending.due = [sent for sent in sending.due if not sent.delivery.done()]
        delivery = asyncio.get_running_loop().create_future()
        sending.put(_Sent((key, value, [*headers, *self._address]), delivery))
        return delivery

    def _sending_to(self, partition: int) -> "Sending[_Sent]":
        found = self._sendings.get(partition)
        if found is None:
            assert self._producer is not None, "start() comes first"
            sending = Sending(self._producer, self._transactions, partition, make=_unless_given_up, ended=_tell)
            found = self._sendings[partition] = sending, asyncio.create_task(sending.run(), name=f"transactions to {partition}")
        return found[0]

    async def receive(self) -> Sequence[SourceRecord]:
        assert self._consumer is not None, "start() comes first"
        try:
            batches = await self._consumer.getmany(timeout_ms=1_000)
        except KafkaError as error:
            raise ServiceError(f"replies can't be read any more: {error!r}", mend="open a new client") from error
        return [record for batch in batches.values() for record in batch]

    async def close(self) -> None:
        for _, task in self._sendings.values():
            task.cancel()
        self._sendings.clear()
        if self._producer is not None:
            await self._producer.stop()
        if self._consumer is not None:
            await stop(self._consumer)


class _Sent(NamedTuple):
    """A transaction on its way, and what tells its caller."""

    record: OutRecord
    delivery: "asyncio.Future[Any]"


def _unless_given_up(sent: _Sent) -> OutRecord | None:
    return None if sent.delivery.done() else sent.record


def _tell(batch: Sequence[_Sent], failure: BaseException | None) -> None:
    for sent in batch:
        if sent.delivery.done():  # its caller has gone
            continue
        if failure is None:
            sent.delivery.set_result(None)
        else:
            sent.delivery.set_exception(failure)
