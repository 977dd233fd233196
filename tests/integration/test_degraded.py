"""Redis that is not there, comes, dies and comes back (invariant I6): the tier follows, and every payment has its verdict."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from assay.schemas.decision import Decision, Tier

from .own_redis import OwnRedis
from .topics import PATIENCE_S, Topics, transaction
from .worker_process import WorkerProcess

pytestmark = pytest.mark.services


class Payer:
    """Pays again and again."""

    def __init__(self, topics: Topics) -> None:
        self._topics, self.paid = topics, 0

    async def pay(self) -> Decision:
        """One payment, and its decision, which must come whatever is wrong with Redis."""
        self.paid += 1
        source = await self._topics.send(transaction(self.paid, "payer"))
        return Decision.model_validate_json((await self._topics.first(source, "decisions")).value)

    async def pay_until(self, tier: Tier) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (decision := await self.pay()).tier != tier:
                assert decision.tier in (Tier.FULL, Tier.NO_ENTITIES)
                await asyncio.sleep(0.05)


@pytest_asyncio.fixture
async def own_worker(environment: dict[str, str], own_redis: OwnRedis, tmp_path: Path) -> AsyncIterator[WorkerProcess]:
    """A worker whose Redis is not there yet."""
    await asyncio.to_thread(own_redis.stop)
    process = WorkerProcess("worker", tmp_path, environment | {"ASSAY_REDIS_URL": own_redis.url})
    process.start()
    yield process
    await asyncio.to_thread(process.stop)


async def test_i6_without_redis_the_tier_falls_and_rises_and_no_payment_is_left_without_a_verdict(
    environment: dict[str, str], own_redis: OwnRedis, own_worker: WorkerProcess
) -> None:
    await asyncio.to_thread(own_worker.wait_until_ready)
    async with Topics(environment["ASSAY_BOOTSTRAP_SERVERS"], environment["ASSAY_TOPIC_PREFIX"]) as topics:
        payer = Payer(topics)
        at_start = await payer.pay()
        assert at_start.tier == Tier.NO_ENTITIES
        assert at_start.fraud_score is not None
        for _ in range(2):
            await asyncio.to_thread(own_redis.start)
            await payer.pay_until(Tier.FULL)
            await asyncio.to_thread(own_redis.stop)
            await payer.pay_until(Tier.NO_ENTITIES)
        await topics.settled()
        assert len(topics.seen["decisions"]) == payer.paid
        assert not topics.seen["dead-letters"]
    assert await asyncio.to_thread(own_worker.get, "/readyz") == (200, "ok\n")
    counted = own_worker.metrics()
    without = sum(value for (name, _), value in counted.items() if name == "assay_entities_unavailable_total")
    assert without == sum(b'"no_entities"' in record.value for record in topics.seen["decisions"])
    assert own_worker.metric("assay_entity_observations_dropped") == 0
