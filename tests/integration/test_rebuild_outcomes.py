"""`assay rebuild outcomes` on a real Kafka and Redis: the very rows that the stream had, and nothing else touched."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
import pytest_asyncio
from redis import Redis

from assay.deploy.rebuild_outcomes import RebuiltOutcomes, rebuild_outcomes
from assay.schemas.errors import ServiceError
from assay.streams.settings import Settings
from assay.streams.simulator import simulate

from .conftest import START_MS
from .deployment import ENDS_WITHIN_S
from .test_rebuild import silent
from .topics import Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
PAYMENTS, DECLINED = 400, 9  # of one user within a minute: the last ones are declined

Rows = dict[bytes, bytes]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def learnt(topics: Topics, worker: WorkerProcess) -> WorkerProcess:
    """A worker that has scored payments, some of them again, and learnt what became of them, and that still runs."""
    payments = list(simulate(seed=5, transactions=PAYMENTS, start_ms=START_MS, users=30, fraud_share=0.1))
    await topics.send_all([payment.transaction for payment in payments])
    await topics.send_all([payment.transaction for payment in payments[-20:]])
    await topics.send_all([transaction(number, "hasty") for number in range(DECLINED)])
    await topics.settled()
    outcomes = [outcome for payment in payments for _, outcome in payment.outcomes]
    await topics.tell(*outcomes, *outcomes[:30], b"no outcome", outcomes[0] | {"outcome_id": "o", "transaction_id": "unknown"})
    await topics.learnt()
    return worker


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stopped(learnt: WorkerProcess) -> WorkerProcess:
    assert await asyncio.to_thread(learnt.stop) == 0
    return learnt


async def rebuilt(settings: Settings, *, dry_run: bool = False) -> RebuiltOutcomes:
    """Waits until the group has given up a worker that ended."""
    async with asyncio.timeout(ENDS_WITHIN_S):
        while True:
            try:
                return await rebuild_outcomes(settings, dry_run=dry_run, report=silent)
            except ServiceError as error:
                if "members" not in error.what:
                    raise
                await asyncio.sleep(0.2)


def rows(redis: Redis, settings: Settings) -> Rows:
    """All that lies in Redis under the prefix, but for how far partitions are, and which outcomes were unknown until there."""
    keys = redis.scan_iter(f"{{{settings.entity_prefix}:*}}:*", count=1_000)
    return {key: redis.get(key) for key in keys if redis.type(key) == b"string" and b"}:learnt:" not in key}


def of_outcomes(key: bytes) -> bool:
    return key.split(b"}:", 1)[1][:1] in b"rt"


async def test_it_refuses_to_work_beside_a_worker(learnt: WorkerProcess, settings: Settings) -> None:
    with pytest.raises(ServiceError, match="has 1 members"):
        await rebuild_outcomes(settings, dry_run=False, report=silent)


async def test_a_dry_run_counts_and_changes_nothing(stopped: WorkerProcess, settings: Settings, redis: Redis) -> None:
    before = rows(redis, settings)
    found = await rebuilt(settings, dry_run=True)
    assert rows(redis, settings) == before
    assert (found.kept, found.invalid) == (PAYMENTS + DECLINED, 1)
    assert found.keys >= sum(map(of_outcomes, before))


async def test_rows_that_redis_lost_are_those_of_the_stream_again(
    stopped: WorkerProcess, settings: Settings, redis: Redis
) -> None:
    before = rows(redis, settings)
    assert sum(key.split(b"}:", 1)[1][:1] == b"r" for key in before) > 50
    redis.delete(*(key for key in before if of_outcomes(key)))
    found = await rebuilt(settings)
    assert (found.kept, found.unknown, found.invalid) == (PAYMENTS + DECLINED, 1, 1)
    assert rows(redis, settings) == before
    assert not list(redis.scan_iter(f"{{{settings.entity_prefix}:*}}:learnt:unknown:*", count=1_000))


async def test_rebuilt_twice_nothing_counts_twice(stopped: WorkerProcess, settings: Settings, redis: Redis) -> None:
    before = rows(redis, settings)
    await rebuilt(settings)
    assert rows(redis, settings) == before


async def test_the_command_ends_in_one_line_for_a_machine(stopped: WorkerProcess, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "assay.deploy.cli", "rebuild", "outcomes", "--dry-run", "--json"]
    done = await asyncio.to_thread(
        subprocess.run, command, env=os.environ | environment, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["dry_run"], found["kept"], found["invalid"]) == (True, PAYMENTS + DECLINED, 1)
