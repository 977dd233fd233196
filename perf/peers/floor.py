"""The floor: what a Python process on Kafka could do if a decision needed the models and nothing else.

It does: read in batches with bare aiokafka, decode the JSON, score a whole batch with the same models from the same bundle,
publish a short decision with the correlation header in prepared batches, wait for `acks=all`, commit every second, after
that. So it loses nothing.

It does not: validate, keep any state (its feature matrix is the amount, over and over), ask Redis, evaluate rules, give
reasons, recognise repeats, publish evidence or a changelog, answer callers, or give a partition up in good order. No
scorer can be this cheap; the distance to it is what all of that costs.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from job import CORRELATION, Job, Scores, end_with_parent

BATCH = 500
COMMIT_S = 1.0


async def drain(job: Job, scores: Scores) -> None:
    """Score what comes, for ever."""
    producer = AIOKafkaProducer(bootstrap_servers=job.bootstrap_servers, acks="all", linger_ms=0, max_batch_size=1 << 20)
    consumer = AIOKafkaConsumer(
        job.source,
        bootstrap_servers=job.bootstrap_servers,
        group_id=job.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=10,
    )
    await producer.start()
    await consumer.start()
    committed = time.monotonic()
    while True:
        fetched = await consumer.getmany(timeout_ms=200, max_records=BATCH)
        if fetched:
            records = [record for batch in fetched.values() for record in batch]
            await publish(producer, job.decisions, records, scores)
        if time.monotonic() - committed > COMMIT_S:
            committed = time.monotonic()
            await consumer.commit()


async def publish(producer: AIOKafkaProducer, topic: str, records: Sequence[Any], scores: Scores) -> None:
    """One decision for each record, in one prepared batch for each partition; returns when all are acknowledged."""
    transactions = [orjson.loads(record.value) for record in records]
    amounts = np.array([transaction["amount"] for transaction in transactions], np.float32)
    features = np.repeat(amounts[:, np.newaxis], scores.features, axis=1)
    batches: dict[int, Any] = {}
    for record, transaction, score in zip(records, transactions, scores.of(features), strict=True):
        if record.partition not in batches:
            batches[record.partition] = producer.create_batch()
        decision = scores.decision(transaction["transaction_id"], transaction["user_id"], transaction["amount"], score)
        correlation = [header for header in record.headers if header[0] == CORRELATION]
        batches[record.partition].append(key=record.key, value=orjson.dumps(decision), timestamp=None, headers=correlation)
    acknowledged = [await producer.send_batch(batch, topic, partition=partition) for partition, batch in batches.items()]
    await asyncio.gather(*acknowledged)


if __name__ == "__main__":
    given = Job.from_command_line()
    end_with_parent()
    asyncio.run(drain(given, Scores(given.bundle)))
