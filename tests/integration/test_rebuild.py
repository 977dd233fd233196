"""`assay rebuild` on a real Kafka: the same rows as the stream's (I4), and the way out of every changelog that does not fit."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from assay.deploy import rebuild_run
from assay.deploy.progress_bars import Report
from assay.deploy.rebuild_log import Until
from assay.schemas.errors import ServiceError
from assay.streams.settings import Settings
from assay.streams.simulator import simulate
from assay.tables.profile import LAYOUT_VERSION, new_rows

from .conftest import START_MS, Run
from .deployment import ENDS_WITHIN_S, Deployment
from .topics import PARTITIONS, Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
PAYMENTS, USERS, AGAIN = 600, 40, 60
END = -1  # in Kafka's protocol: the end of what is acknowledged


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(topics: Topics, worker: WorkerProcess, environment: dict[str, str]) -> AsyncIterator[Deployment]:
    """A worker that has scored payments, some of them again and some that are none, and that still runs."""
    payments = [each.transaction for each in simulate(seed=4, transactions=PAYMENTS, start_ms=START_MS, users=USERS)]
    await topics.send_all([*payments, *payments[-AGAIN:]])
    await topics.send(b"no payment", key=b"user-1")
    await topics.send(None, key=b"user-2")
    await topics.settled()
    admin = AIOKafkaAdminClient(bootstrap_servers=environment["ASSAY_BOOTSTRAP_SERVERS"])
    await admin.start()
    yield Deployment(environment["ASSAY_BOOTSTRAP_SERVERS"], topics, worker, admin)
    await admin.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stopped(running: Deployment) -> Deployment:
    """The same, with the worker stopped in good order."""
    if running.worker.running:
        assert await asyncio.to_thread(running.worker.stop) == 0
    return running


@pytest.fixture
def run(assay: Run, tmp_path: Path) -> Run:
    return partial(assay, "rebuild", ASSAY_DATA_DIR=str(tmp_path))


@pytest.fixture
def settings(environment: dict[str, str], tmp_path: Path) -> Settings:
    """Those of the deployment, for a rebuild in this process."""
    return Settings.load(
        bootstrap_servers=environment["ASSAY_BOOTSTRAP_SERVERS"],
        topic_prefix=environment["ASSAY_TOPIC_PREFIX"],
        partitions=PARTITIONS,
        data_dir=tmp_path,
    )


def silent(stage: str, done: int, total: int) -> None:
    """A report to nobody."""


async def rebuild(settings: Settings, report: Report = silent, *, dry_run: bool = False) -> bool:
    """Whether it changed, or would change, any row. It waits until the group has given up a worker that ended."""
    async with asyncio.timeout(ENDS_WITHIN_S):
        while True:
            try:
                found = await rebuild_run.rebuild(settings, Until.COMMIT, dry_run=dry_run, report=report)
            except ServiceError as error:
                if "members" not in error.what:
                    raise
                await asyncio.sleep(0.2)
            else:
                return any(one.difference for one in found)


class Interrupted(Exception):
    """Stands for Ctrl-C, which would end the tests."""


def summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


async def test_it_refuses_to_work_beside_a_worker(running: Deployment, run: Run) -> None:
    done = await asyncio.to_thread(run)
    assert done.returncode == 2
    assert "has 1 members" in done.stderr
    assert "stop all workers" in done.stderr


async def test_i4_its_rows_are_those_of_the_stream_bit_for_bit(stopped: Deployment, run: Run) -> None:
    done = await asyncio.to_thread(run, "--dry-run", "--json")
    found = summary(done)
    assert (done.returncode, found["changes"]) == (0, False), done.stdout + done.stderr
    assert found["equal"] == len({record.key for record in stopped.topics.seen["decisions"]})
    assert (found["transactions"], found["refused"]) == (PAYMENTS + AGAIN, 1)


async def test_a_disk_from_before_a_rebuild_goes_on_with_its_rows(stopped: Deployment, run: Run) -> None:
    topics, worker = stopped.topics, stopped.worker
    decided = next(record for record in reversed(topics.seen["decisions"]) if record.key is not None and record.value)
    assert (await asyncio.to_thread(run)).returncode == 0
    worker.start()
    await asyncio.to_thread(worker.wait_until_ready)
    first = orjson.loads(decided.value)
    sent = transaction("x", first["user_id"], transaction_id=first["transaction_id"])
    again = await topics.first(await topics.send(sent), "decisions")
    assert again.value == decided.value
    assert await asyncio.to_thread(worker.stop) == 0


async def rows_of_a_newer_layout(deployment: Deployment, settings: Settings) -> None:
    row = new_rows(1)
    row["layout"] = LAYOUT_VERSION + 1
    producer = AIOKafkaProducer(bootstrap_servers=deployment.bootstrap)
    await producer.start()
    await producer.send_and_wait(settings.changelog, row.tobytes(), key=b"user-of-tomorrow", partition=0)
    await producer.stop()


async def a_beginning_that_was_removed(deployment: Deployment, settings: Settings) -> None:
    """As a clean-up policy that deletes would."""
    where = TopicPartition(settings.changelog, 0)
    for policy in ("delete", "compact"):
        await deployment.admin.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, settings.changelog, {"cleanup.policy": policy})]
        )
        if policy == "delete":
            await deployment.admin.delete_records({where: RecordsToDelete(END)})


async def a_rebuild_that_was_stopped_in_the_middle(deployment: Deployment, settings: Settings) -> None:
    def stop(stage: str, done: int, total: int) -> None:
        if stage == "publishing":
            raise Interrupted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rebuild_run, "PUBLISHED_AT_ONCE", 3)
        with pytest.raises(Interrupted):
            await rebuild(settings, stop)


async def a_changelog_that_was_deleted(deployment: Deployment, settings: Settings) -> None:
    await deployment.admin.delete_topics([settings.changelog])
    async with asyncio.timeout(ENDS_WITHIN_S):
        while settings.changelog in await deployment.admin.list_topics():
            await asyncio.sleep(0.05)


DAMAGE: dict[Callable[[Deployment, Settings], Awaitable[None]], str] = {
    rows_of_a_newer_layout: f"layout {LAYOUT_VERSION + 1}",
    a_beginning_that_was_removed: "beginning was removed",
    a_rebuild_that_was_stopped_in_the_middle: "stopped in the middle",
    a_changelog_that_was_deleted: "deleted and made anew",
}


@pytest.mark.parametrize(("damage", "why"), DAMAGE.items(), ids=[damage.__name__ for damage in DAMAGE])
async def test_i1_it_is_the_way_out_of(
    stopped: Deployment, settings: Settings, damage: Callable[[Deployment, Settings], Awaitable[None]], why: str
) -> None:
    await damage(stopped, settings)
    refusal = await stopped.refusal()
    assert why in refusal
    assert "`assay rebuild`" in refusal
    await rebuild(settings)
    assert not await rebuild(settings, dry_run=True)
    if damage is a_changelog_that_was_deleted:  # what the refusal told to do
        shutil.rmtree(stopped.worker.data_dir)
    stopped.worker.start()
    await asyncio.to_thread(stopped.worker.wait_until_ready)
    assert await asyncio.to_thread(stopped.worker.stop) == 0
