"""One more than each limit of the entities (invariant I5): what Redis is not asked for, and what it will never learn."""

import asyncio
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from redis.exceptions import MovedError, ResponseError

from assay.schemas import limits
from assay.tables import entities as module
from assay.tables import entity_call, redis_link
from assay.tables.entities import Entities
from assay.tables.entity_answer import EntityAnswer
from assay.tables.entity_layout import BACK, TAIL
from assay.tables.entity_rows import PREFIX_BYTES
from assay.tables.entity_state import State
from assay.tables.events import EVENT, Events
from assay.tables.redis_link import OUTAGES, Command, RedisLink
from assay.tables.redis_topology import Topology, seeds

UNHURRIED_S = 30.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Link:
    """A Redis that does as it is told: refuses, hangs, or takes everything."""

    def __init__(self) -> None:
        self.connected, self.connects, self.sent = True, 0, 0
        self.refuses: Exception | None = ConnectionError("gone")
        self.hangs = False

    async def connect(self) -> None:
        self.connects += 1

    async def exchange(self, commands: Any, until: float) -> list[object]:
        self.sent += 1
        if self.hangs:
            async with asyncio.timeout_at(until):
                await asyncio.Event().wait()
        if self.refuses is not None:
            raise self.refuses
        return [None for _ in commands]

    async def disconnect(self) -> None:
        pass


class Stand:
    """Entities over such a Redis, and payments for them."""

    def __init__(self) -> None:
        self.link, self.clock, self._offset = Link(), Clock(), 0
        self.entities = Entities("redis://127.0.0.1:1/0", prefix="x", deadline=UNHURRIED_S, clock=self.clock)
        self.entities._link = self.link  # type: ignore[assignment]

    def payments(self, count: int) -> Events:
        events = np.zeros(count, EVENT)
        events["offset"] = np.arange(self._offset, self._offset + count)
        events["merchant"] = 7
        self._offset += count
        return events

    async def observe(self, count: int = 1) -> EntityAnswer:
        return await self.entities.observe(self.payments(count), np.zeros(count, np.int64))

    async def recovered(self) -> None:
        """Return once what was begun behind the answers has ended."""
        if self.entities._recovery is not None:
            await asyncio.wait({self.entities._recovery}, timeout=UNHURRIED_S)

    async def rest(self) -> None:
        """Let it fail until Redis is left alone."""
        while not self.entities.resting:
            await self.observe()
            await self.recovered()


@pytest.fixture
async def stand() -> Stand:
    return Stand()


async def test_i5_failures_to_rest_the_last_one_leaves_redis_alone(stand: Stand) -> None:
    for _ in range(limits.FAILURES_TO_REST - 1):
        stand.entities._failed()
    assert not stand.entities.resting
    stand.entities._failed()
    assert (await stand.observe()).reason == "resting"
    assert stand.link.sent == 0


async def test_i5_redis_rest_s_is_how_long_it_is_left_alone(stand: Stand) -> None:
    await stand.rest()
    before = stand.link.sent
    await stand.observe()
    assert stand.link.sent == before
    stand.clock.now = limits.REDIS_REST_S
    await stand.observe()
    await stand.recovered()
    assert stand.link.sent == before + 1


async def test_i5_max_waiting_observations_one_more_drops_and_counts_the_oldest(stand: Stand) -> None:
    await stand.rest()
    first = stand.entities.waiting
    await stand.observe(10_000 - first)
    for _ in range(limits.MAX_WAITING_OBSERVATIONS // 10_000 - 1):
        await stand.observe(10_000)
    assert (stand.entities.waiting, stand.entities.dropped) == (limits.MAX_WAITING_OBSERVATIONS, 0)
    await stand.observe(1)
    assert (stand.entities.waiting, stand.entities.dropped) == (limits.MAX_WAITING_OBSERVATIONS, 1)


async def test_what_is_dropped_makes_nothing_younger_that_waits(stand: Stand) -> None:
    await stand.rest()
    for _ in range(2 * limits.MAX_WAITING_OBSERVATIONS // 10_000):
        stand.clock.now += 20.0
        await stand.observe(10_000)
    assert stand.entities.dropped > 0
    assert stand.entities.behind_s == stand.clock.now


async def test_i5_max_caught_up_at_once_one_more_is_sent_behind_the_answer(stand: Stand) -> None:
    stand.link.refuses, stand.link.hangs = None, True
    stand.entities._deadline = 0.0
    await stand.observe(limits.MAX_CAUGHT_UP_AT_ONCE + 1)
    stand.link.hangs = False
    stand.entities._deadline = UNHURRIED_S
    assert (await stand.observe()).reason == "behind"
    await stand.recovered()
    assert stand.entities.waiting == 0


async def test_i5_max_refusals_one_more_is_not_asked_for(stand: Stand) -> None:
    stand.link.refuses = ResponseError("script: cannot be run")
    await stand.observe()
    for _ in range(limits.MAX_REFUSALS):
        stand.entities._recover()
        await stand.recovered()
    assert (stand.link.sent, stand.entities.waiting, stand.entities.dropped) == (limits.MAX_REFUSALS, 0, 1)


def row_with(people: int) -> bytes:
    """A compacted row with every tile of every ring, 256 users and instruments, and so many devices."""
    header = struct.pack("<2d", 5_000.0, 1.7e12)
    for back in BACK:
        header += struct.pack("<4Id", 1000, 9, 0, back, 1.0)
    crowds = (256, 256, people)
    header += struct.pack("<4H", *crowds, 0)
    tiles = b"".join(struct.pack("<4Id", 1000 - age, 9, 0, 0, 1.0) for back in BACK for age in range(back, 0, -1))
    row = header + tiles + struct.pack("<I", 900) * sum(crowds) + bytes(range(256)) * 2 + bytes(people)
    row += bytes(-len(row) % 8)
    return struct.pack("<2I", len(row), 0) + row


def test_i5_max_entity_base_bytes_one_person_more_is_not_read() -> None:
    merchant = np.ones(1, np.uint8)
    assert len(row_with(256)) == PREFIX_BYTES + limits.MAX_ENTITY_BASE_BYTES
    assert State.of_rows([row_with(256)], merchant) is not None
    assert State.of_rows([row_with(257)], merchant) is None


def test_i5_max_entity_row_bytes_is_the_bound_that_the_function_has() -> None:
    code = Path(entity_call.__file__).with_name("entity_windows.lua").read_text()
    assert f"local MOST_BYTES = {limits.MAX_ENTITY_ROW_BYTES}" in code
    assert PREFIX_BYTES + limits.MAX_ENTITY_BASE_BYTES + 4_096 * TAIL.itemsize == limits.MAX_ENTITY_ROW_BYTES


async def test_i5_redis_catch_up_s_later_what_waits_goes_on_waiting(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REDIS_CATCH_UP_S", 0.01)
    stand.link.hangs = True
    stand.entities._deadline = 0.0
    await stand.observe()
    stand.entities._recover()
    await stand.recovered()
    assert (stand.entities.waiting, stand.entities.dropped) == (1, 0)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def test_i5_redis_connect_s_later_it_counts_as_an_outage(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_link, "REDIS_CONNECT_S", 0.05)
    link = RedisLink(f"redis://127.0.0.1:{silent_port}/0")
    async with asyncio.timeout(UNHURRIED_S):
        with pytest.raises(OUTAGES):
            await link.connect()
    assert not link.connected


class Elsewhere:
    """A node of a cluster that has all slots, and says that they are elsewhere."""

    def __init__(self) -> None:
        self.sent = 0

    async def ask(self, *_words: str) -> object:
        return [[0, 16_383, [b"127.0.0.1", 1, b"id"]]]

    async def load(self) -> None:
        pass

    async def send(self, _parts: Any, _until: float) -> None:
        self.sent += 1

    async def reply(self, _until: float) -> object:
        return MovedError("0 127.0.0.1:1")

    async def close(self) -> None:
        pass


async def test_i5_max_redirects_one_more_and_the_exchange_has_failed() -> None:
    link, node = RedisLink("redis://127.0.0.1:1", tags=[b"{x:0}"]), Elsewhere()
    link._nodes[("127.0.0.1", 1)] = node  # type: ignore[assignment]
    link._complete, link._topology = True, Topology(((0, 16_383, ("127.0.0.1", 1)),), ())
    with pytest.raises(ConnectionError, match="node to node"):
        await link.exchange([Command(b"{x:0}", [b""])], asyncio.get_running_loop().time() + UNHURRIED_S)
    assert node.sent == 1 + limits.MAX_REDIRECTS
    assert not link.connected


def test_i5_max_redis_seeds_one_more_is_not_asked() -> None:
    met = tuple(("node", port) for port in range(limits.MAX_REDIS_SEEDS))
    assert seeds((("given", 0),), Topology((), met)) == (("given", 0), *met[:-1])
