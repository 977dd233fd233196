"""Outcomes while Redis hangs: they wait, also more of them than fit into memory, and hold up no payment (invariant I6)."""

import asyncio
import signal
from collections.abc import AsyncIterator
from itertools import count
from math import isnan
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from assay.schemas.decision import Decision
from assay.schemas.limits import MAX_WAITING_OUTCOMES

from .logged import feature
from .own_redis import OwnRedis
from .topics import Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.timeout(240)]
MANY = 12 * MAX_WAITING_OUTCOMES  # more than wait in the learner and in the stream before it


@pytest_asyncio.fixture
async def own_worker(environment: dict[str, str], own_redis: OwnRedis, tmp_path: Path) -> AsyncIterator[WorkerProcess]:
    """A worker with a Redis of its own."""
    process = WorkerProcess(
        "worker", tmp_path, environment | {"ASSAY_REDIS_URL": own_redis.url, "ASSAY_REDIS_TIMEOUT_S": "0.2"}
    )
    process.start()
    await asyncio.to_thread(process.wait_until_ready)
    yield process
    own_redis.signal(signal.SIGCONT)
    await asyncio.to_thread(process.stop)


def outcome(number: int) -> dict[str, Any]:
    """The last one that can be read says that the issuer declined."""
    status = "issuer_declined" if number == MANY - 1 else "authorised"
    plain = {"outcome_id": f"o-{number}", "user_id": "payer", "transaction_id": "t-1", "known_at": number + 1}
    return plain | {"status": status}


async def test_i6_more_outcomes_than_fit_while_redis_hangs_hold_up_no_payment_and_none_is_lost(
    environment: dict[str, str], own_redis: OwnRedis, own_worker: WorkerProcess
) -> None:
    async with Topics(environment["ASSAY_BOOTSTRAP_SERVERS"], environment["ASSAY_TOPIC_PREFIX"]) as topics:
        await topics.first(await topics.send(transaction(1, "payer")), "decisions")
        await topics.learnt()
        own_redis.signal(signal.SIGSTOP)
        await topics.tell(*(outcome(number) for number in range(MANY)))
        for number in range(2, 12):
            source = await topics.send(transaction(number, f"payer-{number}"))
            decision = Decision.model_validate_json((await topics.first(source, "decisions")).value)
            assert decision.tier == "no_entities"
        async with asyncio.timeout(60):
            while await asyncio.to_thread(own_worker.metric, "assay_outcomes_age_seconds") < 1:
                await asyncio.sleep(0.1)
        own_redis.signal(signal.SIGCONT)
        await topics.learnt()
        assert await asyncio.to_thread(own_worker.metric, "assay_outcomes_total", status="authorised") == MANY - 1
        async with asyncio.timeout(60):
            for number in count(1):  # until the worker asks its Redis again
                later = transaction(f"later-{number}", "payer", timestamp=1_767_225_600_000 + number)
                [found] = await feature(topics, await topics.send(later), "user_issuer_declines_24h")
                if not isnan(found):
                    break
        assert found == 1
