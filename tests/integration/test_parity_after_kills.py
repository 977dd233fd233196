"""Parity of a run whose workers were killed: what was counted and not yet decided is asked for again, and is no difference."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice

import pytest

from assay.streams.simulator import simulate

from .conftest import START_MS
from .topics import Topics
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
KILLS, AT_ONCE, EVERY_S, MOST = 3, 30, 0.05, 20_000


@pytest.fixture(scope="module")
def worker(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    process = WorkerProcess("one", tmp_path_factory.mktemp("killed"), environment)
    process.start()
    process.wait_until_ready()
    yield process
    process.stop()


async def kill_again_and_again(topics: Topics, worker: WorkerProcess) -> None:
    """Each time in the middle of micro-batches: as soon as more has been decided."""
    for _ in range(KILLS):
        decided = len(topics.seen["decisions"])
        await topics.until(lambda more=decided: len(topics.seen["decisions"]) > more, "decisions")
        worker.signal(signal.SIGKILL)
        while worker.running:
            await asyncio.sleep(EVERY_S)
        await asyncio.to_thread(worker.restart)


async def test_i4_what_is_asked_for_again_after_a_kill_is_no_difference(
    topics: Topics, worker: WorkerProcess, environment: dict[str, str]
) -> None:
    payments = (payment.transaction for payment in simulate(seed=8, transactions=MOST, start_ms=START_MS, users=100))
    killing = asyncio.create_task(kill_again_and_again(topics, worker))
    while not killing.done():
        await topics.send_all(list(islice(payments, AT_ONCE)))
        await asyncio.sleep(EVERY_S)
    await killing
    await topics.settled()
    command = [sys.executable, "-m", "assay.deploy.cli", "parity", "--json"]
    ended = await asyncio.to_thread(
        subprocess.run, command, env=os.environ | environment, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["entity_features_differ"] == found["entity_observations_miscounted"] == 0
    assert found["entity_windows_compared"] > 0
