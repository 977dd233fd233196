"""`assay rebuild entities` on a real Kafka and Redis: the windows that the stream had, and nothing else touched."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import pytest_asyncio
from redis import Redis

from assay.deploy import rebuild_entities as module
from assay.deploy.rebuild_entities import RebuiltEntities, rebuild_entities
from assay.schemas.errors import ServiceError
from assay.streams.settings import Settings
from assay.streams.simulator import simulate
from assay.tables.entities import Entities
from assay.tables.entity_answer import EntityAnswer
from assay.tables.events import Events

from .conftest import START_MS
from .deployment import ENDS_WITHIN_S
from .entity_payments import UNHURRIED_S
from .test_rebuild import silent
from .topics import Topics
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
PAYMENTS, AGAIN = 600, 60

Rows = dict[bytes, bytes]


class Recorded(Entities):
    """Entities that note what they are let see, and of which source."""

    seen: ClassVar[list[tuple[Events, np.ndarray]]] = []
    source: ClassVar[str] = ""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        type(self).source = options["source"]

    async def observe(self, events: Events, partitions: Any) -> EntityAnswer:
        self.seen.append((events, partitions))
        return await super().observe(events, partitions)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scored(topics: Topics, worker: WorkerProcess) -> AsyncIterator[WorkerProcess]:
    """A worker that has scored payments, some of them again and some that are none, and that still runs."""
    payments = [each.transaction for each in simulate(seed=4, transactions=PAYMENTS, start_ms=START_MS, users=40)]
    await topics.send_all([*payments, *payments[-AGAIN:]])
    await topics.send(b"no payment", key=b"user-1")
    await topics.settled()
    yield worker


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stopped(scored: WorkerProcess) -> WorkerProcess:
    assert await asyncio.to_thread(scored.stop) == 0
    return scored


async def once_nobody_works(run: Callable[[], Awaitable[RebuiltEntities]]) -> RebuiltEntities:
    """It waits until the group has given up a worker that ended."""
    async with asyncio.timeout(ENDS_WITHIN_S):
        while True:
            try:
                return await run()
            except ServiceError as error:
                if "members" not in error.what:
                    raise
                await asyncio.sleep(0.2)


async def rebuilt(settings: Settings, *, dry_run: bool = False) -> RebuiltEntities:
    return await once_nobody_works(lambda: rebuild_entities(settings, dry_run=dry_run, report=silent))


def rows(redis: Redis, settings: Settings) -> Rows:
    """All that is kept of entities, as Redis dumps it, but for how far each partition is, which is a hash in no order."""
    found = {}
    for key in redis.scan_iter(f"{{{settings.entity_prefix}:*}}:*", count=1_000):
        found[key] = repr(sorted(redis.hgetall(key).items())).encode() if redis.type(key) == b"hash" else redis.get(key)
    return found


async def windows(settings: Settings, seen: list[tuple[Events, np.ndarray]], source: str) -> EntityAnswer:
    """As they stand: what has been observed before is answered and changes nothing."""
    entities = Entities(
        settings.redis_url.get_secret_value(), prefix=settings.entity_prefix, deadline=UNHURRIED_S, source=source
    )
    answers = [await entities.observe(events, partitions) for events, partitions in seen]
    await entities.close()
    assert all(answer.available for answer in answers)
    values, sequences = (np.concatenate([getattr(answer, name) for answer in answers]) for name in ("values", "sequences"))
    return EntityAnswer(values, sequences, available=True)


async def test_it_refuses_to_work_beside_a_worker(scored: WorkerProcess, settings: Settings) -> None:
    with pytest.raises(ServiceError, match="has 1 members"):
        await rebuild_entities(settings, dry_run=False, report=silent)


async def test_a_dry_run_counts_and_changes_nothing(stopped: WorkerProcess, settings: Settings, redis: Redis) -> None:
    before = rows(redis, settings)
    found = await rebuilt(settings, dry_run=True)
    assert rows(redis, settings) == before
    assert (found.observed, found.counts.transactions, found.counts.refused) == (PAYMENTS, PAYMENTS + AGAIN, 1)
    assert found.keys > 0


async def test_windows_that_redis_lost_are_those_of_the_stream_again(
    stopped: WorkerProcess, settings: Settings, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Entities", Recorded)
    live = {key: redis.dump(key) for key in redis.scan_iter(f"{{{settings.entity_prefix}:*}}:*", count=1_000)}
    live_rows = rows(redis, settings)
    redis.delete(*live)
    found = await rebuilt(settings)
    assert (found.keys, found.observed) == (0, PAYMENTS)
    again = rows(redis, settings)
    assert again.keys() <= live_rows.keys()
    after = await windows(settings, Recorded.seen, Recorded.source)
    for key, dump in live.items():
        redis.restore(key, 0, dump, replace=True)
    before = await windows(settings, Recorded.seen, Recorded.source)
    assert after.sequences.tobytes() == before.sequences.tobytes()
    assert after.values.tobytes() == before.values.tobytes()


async def test_rebuilt_twice_rows_are_the_same_bytes_and_what_is_no_window_stays(
    stopped: WorkerProcess, settings: Settings, redis: Redis
) -> None:
    await rebuilt(settings)
    once = rows(redis, settings)
    loaded = f"{{{settings.entity_prefix}:0}}:bm12345678".encode()
    redis.set(loaded, "loaded by somebody")
    found = await rebuilt(settings)
    twice = rows(redis, settings)
    assert twice.pop(loaded) == b"loaded by somebody"
    redis.delete(loaded)
    assert twice == once
    assert found.keys > 0


async def test_the_command_ends_in_one_line_for_a_machine(stopped: WorkerProcess, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "assay.deploy.cli", "rebuild", "entities", "--dry-run", "--json"]
    done = await asyncio.to_thread(
        subprocess.run, command, env=os.environ | environment, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["dry_run"], found["observed"], found["transactions"], found["refused"]) == (True, PAYMENTS, 660, 1)
