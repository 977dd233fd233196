"""A process that asks and waits, open loop: through our client, or past it, to a topic of its own that it reads itself.

python perf/ask_process.py PLAN      a `Plan` as JSON; prints one line of JSON: `Asked`
"""

import asyncio
import gc
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np
import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from assay.schemas.errors import DecisionTimeout, ServiceError
from assay.streams.client import DecisionClient
from assay.streams.kafka import client_options
from assay.streams.settings import Settings
from assay.streams.simulator import simulate

TIMEOUT_S = 5.0  # far above the targets: what takes longer is told as that long, not left out
BARE_PARTITIONS = 4
DAY_MS = 86_400_000

Ask = Callable[[dict[str, Any]], Awaitable[float | None]]
"""Ask about one transaction; returns the milliseconds from its append to the decision, if that is known."""


@dataclass(frozen=True)
class Plan:
    """How it is to be asked."""

    how: Literal["client", "bare"]
    bootstrap_servers: str
    topic_prefix: str
    rate: float
    seconds: float
    warmup_s: float
    users: int
    seed: int


@dataclass(frozen=True)
class Asked:
    """What came of it: milliseconds, from when a call was due to its answer, after the warm-up."""

    calls: int
    unanswered: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    decided_p99_ms: float | None  # from the append to the decision, as the decisions say
    cpu_us: float  # of this process for each call, warm-up included


async def run(plan: Plan) -> Asked:
    """Ask at that rate for so long."""
    settings = Settings.load(bootstrap_servers=plan.bootstrap_servers, topic_prefix=plan.topic_prefix)
    count = int(plan.rate * (plan.warmup_s + plan.seconds))
    start_ms = time.time_ns() // 1_000_000 - 2 * DAY_MS
    payments = simulate(seed=plan.seed, transactions=count, users=plan.users, days=count / plan.users, start_ms=start_ms)
    bodies = [payment.transaction for payment in islice(payments, count)]
    due_s = np.cumsum(np.random.default_rng(plan.seed).exponential(1 / plan.rate, count)).tolist()
    gc.collect()
    gc.freeze()
    if plan.how == "client":
        async with DecisionClient.of(settings) as client:

            async def ask(body: dict[str, Any]) -> float:
                return float((await client.decide(body, TIMEOUT_S)).latency_ms)

            return await _paced(plan, bodies, due_s, ask)
    async with _Bare(settings) as bare:
        return await _paced(plan, bodies, due_s, bare.ask)


async def _paced(plan: Plan, bodies: Sequence[dict[str, Any]], due_s: Sequence[float], ask: Ask) -> Asked:
    loop, waiting = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    took_ms, decided_ms = np.full(len(bodies), np.nan), np.full(len(bodies), np.nan)
    began, cpu = loop.time() + 0.2, time.process_time()

    async def one(number: int) -> None:
        body = bodies[number] | {"timestamp": time.time_ns() // 1_000_000}
        try:
            said = await ask(body)
        except (DecisionTimeout, TimeoutError, ServiceError):  # the last: more calls wait than a client lets wait
            return
        took_ms[number] = 1_000 * (loop.time() - began - due_s[number])
        decided_ms[number] = np.nan if said is None else said

    for number, due in enumerate(due_s):
        if (wait := began + due - loop.time()) > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(one(number))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
    await asyncio.gather(*waiting)
    cpu_us = 1e6 * (time.process_time() - cpu) / len(bodies)
    counted = np.array(due_s) >= plan.warmup_s
    took_ms, decided_ms = took_ms[counted], decided_ms[counted]
    answered = ~np.isnan(took_ms)
    p50, p99, p999 = np.percentile(np.where(answered, took_ms, 1_000 * TIMEOUT_S), (50, 99, 99.9)).round(2).tolist()
    told = decided_ms[~np.isnan(decided_ms)]
    decided = round(float(np.percentile(told, 99)), 2) if told.size else None
    return Asked(int(counted.sum()), int((~answered).sum()), p50, p99, p999, decided, round(cpu_us, 1))


class _Bare:
    """Produces to a topic and consumes it: what a round trip costs where nobody is asked anything."""

    def __init__(self, settings: Settings) -> None:
        self._topic, options = settings.topic("bare"), client_options(settings)
        self._producer = AIOKafkaProducer(**options, acks="all", linger_ms=0)
        self._consumer = AIOKafkaConsumer(**options)
        self._waiting: dict[bytes, asyncio.Future[None]] = {}

    async def __aenter__(self) -> "_Bare":
        await self._producer.start()
        await self._consumer.start()
        self._consumer.assign([TopicPartition(self._topic, partition) for partition in range(BARE_PARTITIONS)])
        await self._consumer.seek_to_end()
        for partition in self._consumer.assignment():
            await self._consumer.position(partition)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])
        await self._producer.stop()
        await self._consumer.stop()

    async def ask(self, body: dict[str, Any]) -> None:
        name = random.randbytes(16)
        self._waiting[name] = future = asyncio.get_running_loop().create_future()
        await self._producer.send(self._topic, orjson.dumps(body), key=name)
        await asyncio.wait_for(future, TIMEOUT_S)

    async def _read(self) -> None:
        while True:
            for records in (await self._consumer.getmany(timeout_ms=1_000)).values():
                for record in records:
                    if (future := self._waiting.pop(record.key, None)) is not None and not future.done():
                        future.set_result(None)


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(run(Plan(**json.loads(sys.argv[1])))))))
