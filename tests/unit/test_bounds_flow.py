"""One more than each limit of the flow (invariant I5): micro-batches, what waits for them, and what follows them."""

import asyncio
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from assay.agents.answers import Repeat
from assay.agents.flow import Acknowledgements, Continuity, Flow
from assay.agents.memory import Memory
from assay.agents.repeats import Repeats
from assay.agents.score import on_demand
from assay.models.reasons import Catalogue
from assay.schemas import limits
from assay.schemas.headers import read_headers
from assay.schemas.source import Source
from assay.streams.metrics import Metrics
from assay.streams.micro_batches import MicroBatch, Release, WaitingRecords, take
from assay.streams.settings import Settings
from assay.streams.transport import Consumer
from assay.tables.features import FEATURE_COUNT, MODEL_FEATURES
from assay.tables.partition_state import Earlier


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def fetch(records: int, value: bytes = b"x", first: int = 0) -> list[Any]:
    return [SimpleNamespace(offset=first + i, value=value, key=None, headers=()) for i in range(records)]


def test_i5_max_explained_on_demand_one_more_is_not_told() -> None:
    asked = np.ones(2 * limits.MAX_EXPLAINED_ON_DEMAND, np.bool_)
    asked[::2] = False
    assert on_demand(asked).tolist() == asked.tolist()
    asked[0] = True
    assert on_demand(asked).sum() == limits.MAX_EXPLAINED_ON_DEMAND
    assert not on_demand(asked)[-1]


@pytest.fixture
def waiting() -> WaitingRecords:
    records = WaitingRecords(Clock())
    records.open()
    return records


def batches(waiting: WaitingRecords, **how: Any) -> Any:
    """`take` as the worker calls it by default."""
    settings = Settings()
    given: dict[str, Any] = {
        "max_records": settings.batch_transactions,
        "max_bytes": settings.batch_bytes,
        "within": settings.batch_age_ms / 1000,
        "gather": settings.batch_gather_ms / 1000,
        "idle": lambda: False,
        "numbers": count(),
    }
    return take(waiting, **given | how)


async def soon(awaitable: Any) -> Any:
    async with asyncio.timeout(5):
        return await awaitable


async def stays_waiting(task: "asyncio.Task[Any]") -> bool:
    """Whether it waits for something that does not come by itself."""
    for _ in range(20):
        await asyncio.sleep(0)
    return not task.done()


@pytest.fixture
def begun() -> Iterator[list["asyncio.Task[Any]"]]:
    """Tasks to be cancelled at the end."""
    tasks: list[asyncio.Task[Any]] = []
    yield tasks
    for task in tasks:
        task.cancel()


# -- micro-batches


async def test_i5_max_batch_transactions_one_more_goes_into_the_next_micro_batch(waiting: WaitingRecords) -> None:
    waiting.add(0, fetch(limits.MAX_BATCH_TRANSACTIONS + 1))
    batch = await soon(anext(batches(waiting)))
    assert (len(batch.records), waiting.count, batch.release) == (limits.MAX_BATCH_TRANSACTIONS, 1, Release.SIZE)


async def test_i5_max_batch_bytes_one_more_goes_into_the_next_micro_batch(waiting: WaitingRecords) -> None:
    waiting.add(0, [*fetch(2, b"x" * (limits.MAX_BATCH_BYTES // 2)), *fetch(1, first=2)])
    batch = await soon(anext(batches(waiting)))
    assert (len(batch.records), waiting.count, batch.release) == (2, 1, Release.BYTES)


async def test_i5_max_batch_bytes_a_record_beyond_it_is_taken_alone(waiting: WaitingRecords) -> None:
    waiting.add(0, fetch(2, b"x" * (limits.MAX_BATCH_BYTES + 1)))
    assert len((await soon(anext(batches(waiting)))).records) == 1


async def test_i5_max_batch_age_ms_is_as_long_as_a_busy_worker_waits(waiting: WaitingRecords) -> None:
    waiting.add(0, fetch(1))
    waiting.clock.now = limits.MAX_BATCH_AGE_MS / 1000  # type: ignore[attr-defined]
    assert (await soon(anext(batches(waiting)))).release is Release.AGE


async def test_i5_batch_gather_ms_is_as_long_as_an_idle_worker_waits(waiting: WaitingRecords) -> None:
    waiting.add(0, fetch(1))
    waiting.clock.now = limits.BATCH_GATHER_MS / 1000  # type: ignore[attr-defined]
    assert (await soon(anext(batches(waiting, idle=lambda: True)))).release is Release.IDLE


class Stream:
    """Of one record batch."""

    def __init__(self, records: list[Any]) -> None:
        self._records = records

    async def events(self) -> Any:
        yield SimpleNamespace(message=SimpleNamespace(generation_id=1, partition=0, value=self._records))
        await asyncio.Event().wait()


async def test_i5_max_batches_in_flight_one_more_waits_until_one_has_ended(
    waiting: WaitingRecords, begun: list["asyncio.Task[Any]"]
) -> None:
    scored: list[asyncio.Event] = []

    async def score(batch: MicroBatch) -> None:
        scored.append(asyncio.Event())
        await scored[-1].wait()

    async def no_holes(*_: int) -> bool:
        return False

    continuity = Continuity(no_holes)
    continuity.begin({0: 0})
    flow = Flow(score, waiting, continuity, Settings(), Metrics())
    full = limits.MAX_BATCH_TRANSACTIONS
    begun.append(asyncio.ensure_future(flow.run(Stream(fetch(full * (limits.MAX_BATCHES_IN_FLIGHT + 1))), lambda: 1)))
    assert await stays_waiting(begun[0])
    assert (len(scored), waiting.count) == (limits.MAX_BATCHES_IN_FLIGHT, full)
    scored[0].set()
    assert await stays_waiting(begun[0])
    assert (len(scored), waiting.count) == (limits.MAX_BATCHES_IN_FLIGHT + 1, 0)
    for each in scored:
        each.set()


# -- what waits for them


async def has_room(waiting: WaitingRecords, begun: list["asyncio.Task[Any]"]) -> bool:
    """Whether the fetcher goes on to hand over what it has."""
    consumer: Any = SimpleNamespace(
        app=SimpleNamespace(waiting=waiting, tables=SimpleNamespace(changelog_topics=set())), flow_active=True
    )
    begun.append(asyncio.ensure_future(Consumer._wait_for_room(consumer, SimpleNamespace(topic="transactions"))))
    return not await stays_waiting(begun[-1])


async def test_i5_max_waiting_records_one_more_waits_in_the_fetcher(
    waiting: WaitingRecords, begun: list["asyncio.Task[Any]"]
) -> None:
    waiting.add(0, fetch(limits.MAX_WAITING_RECORDS - 1))
    assert await has_room(waiting, begun)
    waiting.add(0, fetch(1, first=limits.MAX_WAITING_RECORDS))
    assert not await has_room(waiting, begun)
    waiting.take(1, limits.MAX_BATCH_BYTES)
    await soon(begun[-1])


async def test_i5_max_waiting_bytes_one_more_waits_in_the_fetcher(
    waiting: WaitingRecords, begun: list["asyncio.Task[Any]"]
) -> None:
    waiting.add(0, fetch(1, b"x" * (limits.MAX_WAITING_BYTES - 1)))
    assert await has_room(waiting, begun)
    waiting.add(0, fetch(1, first=1))
    assert not await has_room(waiting, begun)
    waiting.take(1, limits.MAX_BATCH_BYTES)
    await soon(begun[-1])


# -- what follows them


class Stuck:
    """Profiles that can't be made durable, for now."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def remember(self, *_: Any) -> None:
        await self.go.wait()


async def test_i5_max_unremembered_batches_one_more_waits(begun: list["asyncio.Task[Any]"]) -> None:
    """As many wait as are being made durable, so the bound holds for each."""
    profiles, acknowledged = Stuck(), []
    memory = Memory(profiles, acknowledged.append, Metrics())  # type: ignore[arg-type]
    memory.start()
    put = 0

    async def put_all() -> None:
        nonlocal put
        while True:
            await memory.put(MicroBatch(put, {0: fetch(1, first=put)}, Release.IDLE), {})
            put += 1

    begun.append(asyncio.ensure_future(put_all()))
    async with asyncio.timeout(5):
        while memory._published.qsize() < limits.MAX_UNREMEMBERED_BATCHES:
            await asyncio.sleep(0.001)
    assert await stays_waiting(begun[0])
    assert limits.MAX_UNREMEMBERED_BATCHES <= put <= 2 * limits.MAX_UNREMEMBERED_BATCHES + 1
    assert acknowledged == []
    begun.pop().cancel()
    profiles.go.set()
    await soon(memory.join())
    assert [batch.number for batch in acknowledged] == list(range(put))
    memory.close()


class Unanswered:
    """A decisions topic that does not answer."""

    async def read(self, *_: Any) -> Any:
        await asyncio.Event().wait()


def repeat(offset: int) -> Repeat:
    request: Any = SimpleNamespace(source=Source("transactions", 0, offset))
    return Repeat(request, Earlier(0, 0))


async def test_i5_max_waiting_repeats_one_more_waits(begun: list["asyncio.Task[Any]"]) -> None:
    acknowledgements = Acknowledgements()
    acknowledgements.begin({0: 0})
    repeats = Repeats(Unanswered(), None, acknowledgements, lambda *_: None, lambda _: b"")  # type: ignore[arg-type]
    await soon(repeats.look_up([repeat(offset) for offset in range(limits.MAX_WAITING_REPEATS)]))
    begun.append(asyncio.ensure_future(repeats.look_up([repeat(limits.MAX_WAITING_REPEATS)])))
    assert await stays_waiting(begun[0])
    await soon(repeats.abandon())
    await soon(begun[0])


# -- an answer


def test_i5_default_deadline_ms_one_more_is_too_late() -> None:
    assert read_headers((), 1_000).deadline_ms == 1_000 + limits.DEFAULT_DEADLINE_MS
    assert read_headers((("x", b""),), 1_000).deadline_ms == 1_000 + limits.DEFAULT_DEADLINE_MS


def test_i5_max_reasons_one_more_is_left_out() -> None:
    contributions = np.zeros((1, MODEL_FEATURES), np.float32)
    contributions[0, : limits.MAX_REASONS + 1] = 5.0 - np.arange(limits.MAX_REASONS + 1)
    features = np.ones((1, FEATURE_COUNT), np.float32)
    [reasons] = Catalogue({}).reasons(contributions, features)
    assert [reason.weight for reason in reasons] == [5.0 - place for place in range(limits.MAX_REASONS)]
