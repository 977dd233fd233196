"""How long a killed worker's partitions wait for their next verdict, beside a worker that holds warm copies of their profiles.

The group takes its session timeout to notice a kill. What counts is the time from then, when the survivor hears that partitions
are assigned anew, to the first decision of a partition that was the other's, by the broker's clock (LogAppendTime).
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from contenders import Stand, assay_workers
from kafka_log import topics_of
from processes import Watched
from recovery_rate import Contender, fill

from assay.schemas.errors import ServiceError
from assay.streams.kafka import client_options
from assay.streams.load import prepare
from assay.streams.reading import assigned, connect, stop
from assay.streams.settings import Settings
from assay.streams.simulator import simulate
from assay.tables.profile import ROW_BYTES

RATE, USERS, PAYMENTS = 200, 2_000, 30_000
WARM_UP_S, PATIENCE_S = 8.0, 60.0
DAY_MS = 86_400_000
DRAINED = "drained and committed in "  # the survivor's line when it hears of the rebalance; it says how long that took

Tell = Callable[[str], None]
Found = TypeVar("Found")


@dataclass(frozen=True)
class TakeOver:
    """One kill, once: seconds from the kill until the group had noticed, and from then to the first verdict."""

    noticed_s: float
    takeover_s: float


async def take_over_all(stand: Stand, rows: int, repeat: int, prefix: str, tell: Tell) -> list[TakeOver]:
    """Kill a worker, so many times, each time one of a fresh pair that has `rows` profiles. Raises ServiceError."""
    found = []
    for turn in range(1, repeat + 1):
        one = await take_over(stand, rows, f"{prefix}kill-{turn}-")
        tell(f"take-over {turn} of {repeat}: noticed after {one.noticed_s:.1f} s, first verdict {one.takeover_s:.2f} s later")
        found.append(one)
    return found


async def take_over(stand: Stand, rows: int, prefix: str) -> TakeOver:
    """One kill. Raises ServiceError."""
    settings = stand.settings(prefix)
    async with topics_of(settings):
        await fill(settings, Contender("assay", "", ROW_BYTES, rows))
        with assay_workers(stand, prefix, 2, {"ASSAY_STANDBY_REPLICAS": "1"}) as (survivor, victim):
            await asyncio.gather(survivor.ready(), victim.ready())
            load = asyncio.ensure_future(_light_load(settings))
            try:
                async with _decisions(settings) as decisions:
                    return await _kill(decisions, survivor.process, victim.process)
            finally:
                load.cancel()
                await asyncio.wait([load])


async def _kill(decisions: "Decisions", survivor: Watched, victim: Watched) -> TakeOver:
    workers = survivor.name, victim.name
    await asyncio.sleep(WARM_UP_S)  # standbys catch up
    theirs = await decisions.until(lambda: {p: w for p, w in decisions.last.items() if w == victim.name}, workers)
    killed_s = time.time()
    os.kill(victim.pid, signal.SIGKILL)
    mark = len(decisions.seen)
    [first_s] = await decisions.until(
        lambda: [s for p, w, s in decisions.seen[mark:] if w == survivor.name and p in theirs and s > killed_s][:1], workers
    )
    noticed_s = noticed_at(survivor.log_lines(), killed_s)
    return TakeOver(noticed_s - killed_s, first_s - noticed_s)


def noticed_at(log: Sequence[str], killed_s: float) -> float:
    """When the survivor heard of the rebalance (epoch, s): it drains then, and says how long that took."""
    for line in log:
        if DRAINED in line:
            entry = orjson.loads(line)
            at_s = datetime.fromisoformat(entry["timestamp"]).timestamp()
            if at_s > killed_s:
                return at_s - float(entry["event"].removeprefix(DRAINED).split()[0])
    raise ServiceError("the survivor has not noticed that the other one was killed")


class Decisions:
    """The decisions topic as it grows.

    Attributes:
        seen: (partition, who decided, append time in epoch seconds) of each decision.
        last: by partition, who decided last.
    """

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self.seen: list[tuple[int, str, float]] = []
        self.last: dict[int, str] = {}

    async def until(self, condition: Callable[[], Found], waiting_for: object) -> Found:
        """What the condition says, once that is something. Raises ServiceError."""
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            for records in (await self._consumer.getmany(timeout_ms=50)).values():
                for record in records:
                    if record.value is not None:
                        who = orjson.loads(record.value)["decided_by"]["worker"]
                        self.seen.append((record.partition, who, record.timestamp / 1000))
                        self.last[record.partition] = who
            if found := condition():
                return found
        raise ServiceError(f"no decisions of {waiting_for} within {PATIENCE_S:.0f} s", got=str(self.last))


@asynccontextmanager
async def _decisions(settings: Settings) -> AsyncIterator[Decisions]:
    partitions = range(settings.partitions)
    consumer = await assigned(client_options(settings), settings.decisions, partitions, from_beginning=True)
    try:
        yield Decisions(consumer)
    finally:
        await stop(consumer)


async def _light_load(settings: Settings) -> None:
    """Payments of some weeks ago at a steady pace, until there are no more."""
    start_ms = time.time_ns() // 1_000_000 - 40 * DAY_MS
    payments = (payment.transaction for payment in simulate(seed=9, transactions=PAYMENTS, users=USERS, start_ms=start_ms))
    producer = AIOKafkaProducer(linger_ms=1, **client_options(settings))
    await connect(producer.start(), client_options(settings))
    try:
        for key, value, _ in prepare(payments, stamped=False):
            await producer.send(settings.transactions, value, key=key)
            await asyncio.sleep(1 / RATE)
    finally:
        await producer.stop()
