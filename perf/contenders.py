"""Who is measured, and how each is started: as a process of its own, on topics of its own."""

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from peers.job import Job
from processes import Watched, running

from assay.deploy.ports import free_port
from assay.deploy.services import Running
from assay.deploy.worker_process import worker_command, worker_environment
from assay.streams.settings import Settings

PEERS = Path(__file__).parent / "peers"
READY_TIMEOUT_S = 90.0
PARTITIONS = 4

Name = Literal["assay", "floor", "stock_faust"]


@dataclass(frozen=True)
class Stand:
    """What all contenders find: services, a bundle, a folder for what they keep."""

    running: Running
    bundle: Path
    folder: Path

    def settings(self, prefix: str) -> Settings:
        """Of a run: the address, the models, and topics of its own."""
        return Settings.load(
            bootstrap_servers=self.running.bootstrap_servers,
            redis_url=self.running.redis_url,
            topic_prefix=prefix,
            partitions=PARTITIONS,
            bundle=self.bundle,
        )


class AssayWorker:
    """A running `assay worker`."""

    def __init__(self, process: Watched, port: int) -> None:
        self.process, self._port = process, port

    async def ready(self) -> None:
        """Return once it scores. Raises ServiceError."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while await asyncio.to_thread(self._get, "/readyz") is None:
                    self.process.must_run()
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise self.process.failure("does not become ready") from None

    async def metrics(self) -> str:
        """Prometheus' text; empty when it does not answer."""
        return await asyncio.to_thread(self._get, "/metrics") or ""

    def _get(self, path: str) -> str | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return None


@contextmanager
def assay_workers(
    stand: Stand, prefix: str, count: int = 1, settings: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Sequence[AssayWorker]]:
    """So many workers of one group, as `assay worker` starts them, with everything on. `settings`: ASSAY_* besides."""
    environment = worker_environment(stand.running, stand.bundle, prefix) | dict(settings)
    with ExitStack() as stack:
        workers = []
        for number in range(1, count + 1):
            name, port = f"{prefix}worker-{number}", free_port()
            command = worker_command(name, stand.folder / name, port)
            process = stack.enter_context(running(name, command, stand.folder, environment))
            workers.append(AssayWorker(process, port))
        yield workers


@contextmanager
def peer(stand: Stand, settings: Settings, name: Name) -> Iterator[Watched]:
    """One of the programs in `peers/`."""
    job = Job(
        bootstrap_servers=settings.bootstrap_servers,
        source=settings.transactions,
        decisions=settings.decisions,
        group=settings.topic(name),
        partitions=settings.partitions,
        bundle=str(stand.bundle),
        data_dir=str(stand.folder / f"{settings.topic_prefix}data"),
    )
    command = [sys.executable, str(PEERS / f"{name}.py"), json.dumps(asdict(job))]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with running(settings.topic(name), command, stand.folder, environment) as process:
        yield process
