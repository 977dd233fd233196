"""A scorer that scores nothing: it answers every transaction, so that what is around it can be tested on a real Kafka."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import ConsumerRecord

from assay.schemas.decision import Action, Tier, encode_decision, encode_digests
from assay.schemas.source import Source

PARTITIONS = 3
Answers = Callable[["Echo", ConsumerRecord], list[bytes]]


@dataclass
class Echo:
    """Its topics, what it has read, and how it answers: a list of replies to each record."""

    bootstrap: str
    transactions: str
    decisions: str
    answers: Answers
    seen: list[ConsumerRecord] = field(default_factory=list)

    async def run(self, ready: asyncio.Event) -> None:
        consumer = AIOKafkaConsumer(self.transactions, bootstrap_servers=self.bootstrap, fetch_max_wait_ms=10)
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap)
        await consumer.start()
        await producer.start()
        try:
            await consumer.seek_to_end()
            ready.set()
            async for record in consumer:
                self.seen.append(record)
                headers = dict(record.headers)
                echoed = [("correlation-id", headers.get("correlation-id", b""))]
                for number, value in enumerate(self.answers(self, record)):
                    if number == 0:
                        await producer.send(
                            self.decisions, value=value, key=record.key, partition=record.partition, headers=echoed
                        )
                    if "reply-to" in headers:
                        where = headers.get("reply-partition")
                        await producer.send(
                            headers["reply-to"].decode(),
                            value=value,
                            key=record.key,
                            partition=None if where is None else int(where),
                            headers=echoed,
                        )
        finally:
            await consumer.stop()
            await producer.stop()


def decision(record: ConsumerRecord, action: Action = Action.APPROVE) -> bytes:
    """A decision about the transaction in that record; the same for the same record."""
    transaction = orjson.loads(record.value)
    return encode_decision(
        transaction_id=transaction["transaction_id"],
        user_id=transaction["user_id"],
        fraud_score=0.25,
        action=action,
        reasons=[("amount", "the amount", 0.5)],
        rules=[],
        model=None,
        digests=encode_digests(None, None, None, None, None),
        tier=Tier.FULL,
        late_event=False,
        deadline_missed=False,
        decided_ms=record.timestamp + 5,
        appended_ms=record.timestamp,
        worker="echo",
        generation=1,
        source=Source(record.topic, record.partition, record.offset),
    )


def approves(echo: Echo, record: ConsumerRecord) -> list[bytes]:
    """One approval."""
    return [decision(record)]


@pytest.fixture
async def echo(kafka: str, topic_prefix: str) -> AsyncIterator[Echo]:
    """A running echo with topics of its own. Set `answers` to make it behave otherwise."""
    scorer = Echo(kafka, topic_prefix + "transactions", topic_prefix + "decisions", approves)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    stamped = {"message.timestamp.type": "LogAppendTime"}
    await admin.create_topics(
        [NewTopic(name, PARTITIONS, 1, topic_configs=stamped) for name in (scorer.transactions, scorer.decisions)]
    )
    await admin.close()
    ready = asyncio.Event()
    task = asyncio.create_task(scorer.run(ready))
    await asyncio.wait([task, asyncio.ensure_future(ready.wait())], return_when=asyncio.FIRST_COMPLETED)
    yield scorer
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
