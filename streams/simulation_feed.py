"""Simulated payments onto Kafka: transactions at a given rate, and what became of them on the outcomes topic, later."""

import asyncio
import heapq
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from aiokafka import AIOKafkaProducer

from assay.streams.reading import begin, partitions_of
from assay.streams.simulator import Simulated

TICK_S = 0.01
MAX_UNACKNOWLEDGED = 10_000
FLUSH_TIMEOUT_S = 10.0


@dataclass
class Fed:
    """What has been sent. `waiting`: outcomes whose time had not come when the feed ended."""

    transactions: int = 0
    outcomes: int = 0
    waiting: int = 0


async def feed(
    payments: Iterator[Simulated],
    *,
    options: dict[str, Any],
    transactions_topic: str,
    outcomes_topic: str,
    rate: float,
    hurry: float = 1.0,
    progress: Callable[[Fed], None] = lambda fed: None,
) -> Fed:
    """Send them all, `rate` a second, each outcome as long after its transaction as in life, divided by `hurry`.

    Timestamps are sent as they are: simulate with the same rate, from now on. Ends with the last transaction and does
    not wait for outcomes that are still to come. Raises ServiceError where Kafka is not there.
    """
    for topic in (transactions_topic, outcomes_topic):
        await partitions_of(options, topic)  # which says what to do where there is none
    producer = AIOKafkaProducer(**options, acks="all", linger_ms=5)
    await begin(producer, options)
    fed, pending, number = Fed(), list[tuple[float, int, bytes, bytes]](), 0
    sent: list[asyncio.Future[Any]] = []
    start = time.monotonic()
    try:
        for payment in payments:
            due = start + fed.transactions / rate
            while (now := time.monotonic()) < due:
                await asyncio.sleep(max(TICK_S, due - now))
            key = payment.transaction["user_id"].encode()
            sent.append(await producer.send(transactions_topic, key=key, value=orjson.dumps(payment.transaction)))
            fed.transactions += 1
            for delay_ms, outcome in payment.outcomes:
                number += 1
                heapq.heappush(pending, (due + delay_ms / 1000 / hurry, number, key, orjson.dumps(outcome)))
            while pending and pending[0][0] <= now:
                _, _, user, value = heapq.heappop(pending)
                sent.append(await producer.send(outcomes_topic, key=user, value=value))
                fed.outcomes += 1
            fed.waiting = len(pending)
            if len(sent) >= MAX_UNACKNOWLEDGED:
                await _acknowledged(sent)
            progress(fed)
        await _acknowledged(sent)
    finally:
        await asyncio.wait([asyncio.create_task(producer.stop())], timeout=FLUSH_TIMEOUT_S)
    return fed


async def _acknowledged(sent: list["asyncio.Future[Any]"]) -> None:
    """Wait for all of them; raises what one of them failed with."""
    await asyncio.gather(*sent)
    sent.clear()
