"""Whatever Faust fails of ends the process with its reason, uncommitted: no traceback, no exit status of its own."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import NoReturn

import faust
import pytest
from aiokafka.errors import NodeNotReadyError

from assay.agents.faust_worker import FaustWorker
from assay.schemas.errors import ServiceError
from assay.streams.ending import instead
from assay.streams.settings import Settings


class Ended(Exception):
    """The process would have ended."""


@pytest.fixture
def worker() -> FaustWorker:
    made = FaustWorker.__new__(FaustWorker)
    made._worker = SimpleNamespace(settings=Settings(bootstrap_servers="broker:9092"))
    made.crash_reason = None
    return made


@pytest.fixture
def reasons() -> Iterator[list[BaseException | None]]:
    found: list[BaseException | None] = []

    def end(reason: str, error: BaseException | None) -> NoReturn:
        found.append(error)
        raise Ended

    token = instead.set(end)
    yield found
    instead.reset(token)


async def started(worker: FaustWorker, reasons: list[BaseException | None]) -> BaseException | None:
    with pytest.raises(Ended):
        await worker.start()
    return reasons[-1]


async def test_a_kafka_that_goes_away_while_faust_starts_is_named(worker, reasons, monkeypatch):
    async def start(self) -> None:
        raise NodeNotReadyError("node 1")

    monkeypatch.setattr(faust.Worker, "start", start)
    error = await started(worker, reasons)
    assert isinstance(error, ServiceError)
    assert "Kafka at broker:9092 went away" in str(error)


async def test_a_crash_while_it_runs_ends_the_process_too(worker, reasons, monkeypatch):
    async def start(self) -> None:
        self.crash_reason = KeyError("a bug")

    monkeypatch.setattr(faust.Worker, "start", start)
    assert isinstance(await started(worker, reasons), KeyError)
