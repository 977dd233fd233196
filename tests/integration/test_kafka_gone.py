"""A worker whose Kafka has gone: not ready, quiet, and stopped when it is told to."""

import asyncio
from pathlib import Path

import pytest

from assay.deploy.services import services

from .worker_process import WorkerProcess

pytestmark = pytest.mark.services
STOPS_WITHIN_S = 20.0


async def test_a_worker_whose_kafka_has_gone_says_so_and_can_be_stopped(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASSAY_BOOTSTRAP_SERVERS", raising=False)
    with services(redis=False) as running:
        worker = WorkerProcess("orphan", tmp_path, environment | {"ASSAY_BOOTSTRAP_SERVERS": running.bootstrap_servers})
        worker.start()
        worker.wait_until_ready()
    async with asyncio.timeout(STOPS_WITHIN_S):
        while worker.get("/readyz")[0] == 200:
            await asyncio.sleep(0.2)
    assert worker.get("/livez")[0] == 200, "another worker could do no more"
    lines = len(worker.log.splitlines())
    await asyncio.sleep(3)
    assert len(worker.log.splitlines()) - lines < 30, "the log must not be flooded"
    async with asyncio.timeout(STOPS_WITHIN_S):
        await asyncio.to_thread(worker.stop)
