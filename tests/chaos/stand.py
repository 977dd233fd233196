"""The stand: a broker of our own, Redis, a fleet behind links, traffic, and the checker that reads it all."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from assay.deploy.services import Running
from assay.deploy.worker_process import worker_environment
from assay.tables.rates import SHIPPED_RATES, Rates
from tests.integration.small_bundle import train_small_bundle

from .broker import Broker
from .checker import Checker
from .fleet import Fleet
from .links import Link
from .traffic import Traffic
from .whole_log import REPLIES, WholeLog

PARTITIONS = 6  # two for each of three workers; four share them unequally
WORKERS, MOST_WORKERS = 3, 4
START_MS = 1_767_225_600_000
SETTLE_TIMEOUT_S = 120.0
SESSION_S = 6.0  # the broker's least


@dataclass
class Stand:
    """All parts, running."""

    seed: int
    random: Random
    folder: Path
    prefix: str
    broker: Broker
    links: list[Link]
    fleet: Fleet
    traffic: Traffic
    log: WholeLog

    @property
    def changelog(self) -> str:
        """Full name of the changelog of the profiles."""
        return f"{self.prefix}assay-profiles-changelog"

    async def settle(self) -> None:
        """Stop the traffic, and return once all of it has been committed. Raises Unsettled."""
        await self.traffic.pause()
        await self.log.settled(SETTLE_TIMEOUT_S)

    def fresh_checker(self) -> Checker:
        """One that has been told nothing."""
        return Checker(Rates.load(SHIPPED_RATES))


@asynccontextmanager
async def stand(folder: Path, redis_url: str, *, seed: int, rate: float) -> AsyncIterator[Stand]:
    """Everything up and scoring, traffic included; all of it ends with the block. Raises ServiceError.

    Args:
        rate: transactions a second.
    """
    train_small_bundle(folder / "bundle", START_MS)
    prefix, random = f"chaos-{uuid.uuid4().hex[:8]}-", Random(seed)
    links = [Link() for _ in range(MOST_WORKERS)]
    broker = Broker(folder / "kafka", [link.port for link in links])
    await asyncio.to_thread(broker.prepare)
    for link, port in zip(links, broker.link_ports, strict=True):
        link.target = port

    def environment(port: int) -> Mapping[str, str]:
        running = Running(f"127.0.0.1:{port}", redis_url)
        return worker_environment(running, folder / "bundle", prefix) | {"ASSAY_PARTITIONS": str(PARTITIONS)}

    async with AsyncExitStack() as stack:
        stack.push_async_callback(broker.stop)
        await broker.start()
        for link in links:
            await stack.enter_async_context(link)
        await _make_topic(broker.bootstrap, f"{prefix}{REPLIES}")
        fleet = await stack.enter_async_context(Fleet(folder, links, environment, random))
        await fleet.scale(WORKERS)
        await fleet.ready()
        traffic = Traffic(broker.bootstrap, prefix, seed=seed, rate=rate, start_ms=START_MS)
        log = WholeLog(broker.bootstrap, prefix, PARTITIONS)
        await stack.enter_async_context(traffic)
        await stack.enter_async_context(log)
        traffic.resume()
        yield Stand(seed, random, folder, prefix, broker, links, fleet, traffic, log)


async def _make_topic(bootstrap: str, name: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, PARTITIONS, 1)])
    finally:
        await admin.close()
