"""What becomes of a load's payments, onto the outcomes topic: as much later as in life, or sooner where time is compressed."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import orjson
from aiokafka import AIOKafkaProducer

from assay.streams.reading import begin
from assay.streams.simulator import Simulated

TICK_S = 0.05
LEAST_DELAY_S = 0.5  # an issuer answers once the checkout has its decision
STOP_TIMEOUT_S = 5.0

Due = tuple[float, bytes, bytes]
"""An outcome: seconds after the start of the load, key, value."""


def due_outcomes(payments: Sequence[Simulated], rate: float, hurry: float) -> list[Due]:
    """The outcomes of payments that are sent `rate` a second, in the order in which they are due.

    hurry: how many times sooner than in life they come.
    """
    due = [
        (number / rate + max(LEAST_DELAY_S, delay_ms / 1000 / hurry), outcome["user_id"].encode(), orjson.dumps(outcome))
        for number, payment in enumerate(payments)
        for delay_ms, outcome in payment.outcomes
    ]
    return sorted(due, key=lambda each: each[0])


async def tell(due: Sequence[Due], options: dict[str, Any], topic: str, started_s: Callable[[], float]) -> int:
    """Send them as they become due; returns how many there were. When it is cancelled, the rest is not sent.

    started_s: when the load began, in monotonic seconds; 0 before it has. Raises ServiceError where Kafka is not there.
    """
    producer = AIOKafkaProducer(**options, acks="all", linger_ms=5)
    await begin(producer, options)
    try:
        told = 0
        while told < len(due):
            elapsed = time.monotonic() - started_s() if started_s() else -1.0
            while told < len(due) and due[told][0] <= elapsed:
                _, key, value = due[told]
                await producer.send(topic, key=key, value=value)
                told += 1
            await asyncio.sleep(TICK_S)
        return told
    finally:
        await asyncio.wait([asyncio.create_task(producer.stop())], timeout=STOP_TIMEOUT_S)
