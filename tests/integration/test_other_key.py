"""Another ASSAY_HASH_KEY than what is stored is under: refused before anything is judged anew or taken for never seen."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient
from redis import Redis

from assay.streams.settings import Settings
from assay.streams.simulator import simulate
from assay.tables.digests import Digests
from assay.tables.keyspace import Part

from .conftest import START_MS
from .deployment import ENDS_WITHIN_S, Deployment
from .topics import Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
OTHER = {"ASSAY_HASH_KEY": "another"}
PAYMENTS = 200
FIRST = transaction("first", "somebody")
OUTCOME = {"outcome_id": "o", "user_id": "somebody", "transaction_id": "t-first", "status": "fraud", "known_at": START_MS}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scored(topics: Topics, worker: WorkerProcess) -> WorkerProcess:
    """A worker under the one key that has scored payments, and learnt of an outcome, and still runs."""
    await topics.send_all([FIRST, *(each.transaction for each in simulate(seed=4, transactions=PAYMENTS, start_ms=START_MS))])
    await topics.settled()
    await topics.tell(OUTCOME)
    await topics.learnt()
    return worker


@pytest.fixture(scope="module")
def other(worker: WorkerProcess, environment: dict[str, str]) -> WorkerProcess:
    """Another one, under the other key."""
    made = WorkerProcess("other", worker.log_file.parent, environment | OTHER)
    made.log_file.touch()
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(topics: Topics, other: WorkerProcess, environment: dict[str, str]) -> AsyncIterator[Deployment]:
    bootstrap = environment["ASSAY_BOOTSTRAP_SERVERS"]
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    yield Deployment(bootstrap, topics, other, admin)
    other.stop()
    await admin.close()


async def command(environment: dict[str, str], folder: Path, *arguments: str) -> str:
    """Run it under the other key, once the group has given up a worker that ended."""
    async with asyncio.timeout(ENDS_WITHIN_S):
        while True:
            done = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-m", "assay.deploy.cli", *arguments],
                env=os.environ | environment | OTHER | {"ASSAY_DATA_DIR": str(folder)}, capture_output=True, text=True,
            )  # fmt: skip
            if "members" not in done.stderr:
                assert done.returncode == 0, done.stderr
                return done.stdout
            await asyncio.sleep(0.2)


def decisions(topics: Topics, transaction_id: str) -> list[bytes]:
    return [each.value for each in topics.seen["decisions"] if orjson.loads(each.value)["transaction_id"] == transaction_id]


def windows(redis: Redis, settings: Settings) -> set[bytes]:
    """The names of what entities have seen, which end in their digests."""
    return set(redis.scan_iter(f"{{{settings.entity_prefix}:*}}:[0-9]:?????????"))


async def test_i1_a_second_worker_with_another_key_is_refused_when_it_takes_over(
    scored: WorkerProcess, deployment: Deployment, topics: Topics
) -> None:
    refusal = await deployment.refusal()
    assert "the profiles were written under another ASSAY_HASH_KEY" in refusal
    assert "assay rebuild" in refusal
    await topics.send(FIRST)
    await topics.settled()
    [first, again] = decisions(topics, "t-first")
    assert first == again
    assert scored.running


async def test_with_profiles_alone_under_the_new_key_redis_is_not_taken_for_empty(
    scored: WorkerProcess, other: WorkerProcess, topics: Topics, environment: dict[str, str], tmp_path: Path
) -> None:
    assert await asyncio.to_thread(scored.stop) == 0
    await command(environment, tmp_path, "rebuild")
    other.start()
    await asyncio.to_thread(other.wait_until_ready)
    await topics.send(transaction("degraded", "somebody"))
    await topics.settled()
    await topics.tell(OUTCOME | {"outcome_id": "later", "status": "genuine"})
    assert [orjson.loads(value)["tier"] for value in decisions(topics, "t-degraded")] == ["no_entities"]
    assert other.metric("assay_entities_under_other_key") == 1
    assert "windows and outcomes were written under another ASSAY_HASH_KEY" in other.log
    assert await asyncio.to_thread(other.stop) == 0


async def test_i1_rebuilt_under_the_new_key_it_goes_on_in_full_repeats_what_was_said_and_learns_what_waited(
    other: WorkerProcess, topics: Topics, environment: dict[str, str], settings: Settings, redis: Redis, tmp_path: Path
) -> None:
    before = windows(redis, settings)
    await command(environment, tmp_path, "rebuild", "entities")
    await command(environment, tmp_path, "rebuild", "outcomes")
    ours = Digests(OTHER["ASSAY_HASH_KEY"].encode()).fingerprint
    for part in Part:
        mark = redis.get(settings.keyspace().mark(0, part))
        assert mark == (None if part is Part.BATCH else ours.encode()), part
    after = windows(redis, settings)
    assert len(after) == len(before) > PAYMENTS // 10
    assert not after & before
    other.start()
    await asyncio.to_thread(other.wait_until_ready)
    await topics.send(FIRST)
    await topics.send(transaction("later", "somebody", timestamp=START_MS + 60_000))
    await topics.settled()
    assert len(said := decisions(topics, "t-first")) == 3
    assert len(set(said)) == 1
    assert [orjson.loads(value)["tier"] for value in decisions(topics, "t-later")] == ["full"]
    await topics.learnt()
    assert other.metric("assay_outcomes_total", status="genuine") == 1
    assert other.metric("assay_outcomes_total", status="unknown") == 0


async def test_batch_features_under_another_key_go_with_the_windows_and_that_is_said(
    other: WorkerProcess, environment: dict[str, str], settings: Settings, redis: Redis, tmp_path: Path
) -> None:
    assert await asyncio.to_thread(other.stop) == 0
    row, mark = (f"{{{settings.entity_prefix}:0}}:{name}" for name in ("bm12345678", "key:batch"))
    redis.set(row, "under the one key")
    redis.set(mark, settings.digests().fingerprint)
    said = await command(environment, tmp_path, "rebuild", "entities")
    assert "1 rows of batch features under another ASSAY_HASH_KEY deleted: load them again" in said
    assert redis.exists(row, mark) == 0
