"""Workers as Kubernetes keeps them: whichever ends is started again at once, on its own disk."""

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from tests.integration.worker_process import WorkerProcess

from .links import Link

POLL_S = 0.05
READY_TIMEOUT_S = 120.0
TAIL_BYTES = 20_000
MEANT = (0, -signal.SIGKILL, -signal.SIGTERM)  # the last: before it could have listened to it
LAST_WORDS, MOST_SAID = ("assay: worker ends", "error:"), 600


@dataclass(slots=True)
class Place:
    """One member of the fleet, and its way to the broker."""

    worker: WorkerProcess
    link: Link
    wanted: bool = False  # it is to run
    held: bool = False  # it is not to be started again yet
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class Ending:
    """A worker that ended without having been told to: how, and the last thing that it said of it."""

    name: str
    at: str
    status: int
    said: str


@dataclass
class Fleet:
    """Use it as an async context manager; `scale` starts and stops workers.

    Args:
        links: one for each worker that there may be.
        environment: of a link's port, the settings of the worker behind it.

    Attributes:
        starts: how often a worker was started.
        endings: workers that ended by themselves.
    """

    folder: Path
    links: list[Link]
    environment: Callable[[int], Mapping[str, str]]
    random: Random
    starts: int = 0
    endings: list[Ending] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._places = [
            Place(WorkerProcess(f"worker-{number}", self.folder, self.environment(link.port)), link)
            for number, link in enumerate(self.links, 1)
        ]
        self._supervising: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._supervising = asyncio.ensure_future(self._supervise())
        return self

    async def __aexit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        assert self._supervising is not None
        self._supervising.cancel()
        await asyncio.wait([self._supervising])
        for place in self._places:
            place.wanted = False
            place.worker.signal(signal.SIGCONT)
            place.worker.signal(signal.SIGKILL)
            with contextlib.suppress(AssertionError):
                await asyncio.to_thread(place.worker.stop)

    @property
    def wanted(self) -> list[Place]:
        """Those that are to run."""
        return [place for place in self._places if place.wanted]

    def any(self) -> Place:
        """One of them, whichever."""
        return self.random.choice(self.wanted)

    async def scale(self, count: int) -> None:
        """So many are to run from now on: start the next ones, stop the last ones in good order. Does not wait for starts."""
        for place in self._places[:count]:
            place.wanted = True
        leaving = [place for place in self._places[count:] if place.wanted]
        for place in leaving:
            place.wanted = False
        await asyncio.gather(*map(self._stop, leaving))

    async def ready(self) -> None:
        """Return once all that are to run score. Raises AssertionError with the end of a log."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        for place in self.wanted:
            while not await asyncio.to_thread(_scores, place.worker):
                said = f"{place.worker.name} does not score; its log ends:\n{_tail(place.worker)[-3000:]}"
                assert time.monotonic() < deadline, said
                await asyncio.sleep(POLL_S)

    async def kill(self, place: Place) -> None:
        """SIGKILL; then it is started again."""
        async with self._down(place):
            await self._kill(place)

    async def lose_disk(self, place: Place) -> None:
        """SIGKILL, and its profiles are gone when it is started again."""
        async with self._down(place):
            await self._kill(place)
            await asyncio.to_thread(shutil.rmtree, place.worker.data_dir, True)

    async def restart(self, place: Place) -> None:
        """SIGTERM, as a rolling update does; then it is started again."""
        async with self._down(place):
            await self._stop(place)

    def pause(self, place: Place) -> None:
        """SIGSTOP: alive, and deaf."""
        place.worker.signal(signal.SIGSTOP)

    def wake(self, place: Place) -> None:
        """SIGCONT."""
        place.worker.signal(signal.SIGCONT)

    @asynccontextmanager
    async def _down(self, place: Place) -> AsyncIterator[None]:
        """It is not started again meanwhile, whoever else kills it."""
        async with place.turn:
            place.held = True
            yield
            place.held = False

    async def _kill(self, place: Place) -> None:
        place.worker.signal(signal.SIGKILL)
        while place.worker.running:
            await asyncio.sleep(POLL_S)

    async def _supervise(self) -> None:
        while True:
            for place in self.wanted:
                if not place.worker.running and not place.held:
                    if place.worker.status not in (None, *MEANT):
                        self._note(place, place.worker.status or 0)
                    place.worker.start()
                    self.starts += 1
            await asyncio.sleep(POLL_S)

    async def _stop(self, place: Place) -> None:
        status = await asyncio.to_thread(place.worker.stop)
        if status not in MEANT:
            self._note(place, status)

    def _note(self, place: Place, status: int) -> None:
        self.endings.append(Ending(place.worker.name, time.strftime("%H:%M:%S"), status, _last_word(place.worker)))


def _scores(worker: WorkerProcess) -> bool:
    try:
        return worker.get("/readyz")[0] == 200
    except OSError:
        return False


def _tail(worker: WorkerProcess) -> str:
    with worker.log_file.open("rb") as log:
        log.seek(max(0, worker.log_file.stat().st_size - TAIL_BYTES))
        return log.read().decode(errors="replace")


def _last_word(worker: WorkerProcess) -> str:
    """Why it ended, as it said itself; else the last line of its log, cut."""
    lines = _tail(worker).splitlines()
    reasons = [line for line in lines if line.startswith(LAST_WORDS)]
    return (reasons or lines or ["nothing in its log"])[-1][:MOST_SAID]
