"""Calls of Redis that overlap: whoever has the connection sends what waits, and each gets its own answer."""

import asyncio

import numpy as np
import pytest

from assay.tables.entities import Entities
from assay.tables.entity_call import NEW_ROW
from assay.tables.events import EVENT


class Link:
    """A Redis whose connection comes when the test says so, and that answers every call with a row never seen."""

    connected = False

    def __init__(self) -> None:
        self.let_connect = asyncio.Event()

    async def connect(self) -> None:
        await self.let_connect.wait()
        self.connected = True

    async def exchange(self, commands, until) -> list[object]:
        await asyncio.sleep(0)
        return [NEW_ROW for _ in commands]

    async def disconnect(self) -> None:
        pass


def event(offset: int) -> np.ndarray:
    events = np.zeros(1, EVENT)
    events["instrument"], events["offset"] = 7, offset
    return events


async def test_a_call_that_another_has_sent_has_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    entities, link = Entities("redis://127.0.0.1:1/0", prefix="test", deadline=10), Link()
    monkeypatch.setattr(entities, "_link", link)
    first = asyncio.ensure_future(entities.observe(event(1), [0]))
    await asyncio.sleep(0)
    link.let_connect.set()
    while not link.connected:
        await asyncio.sleep(0)
    second = asyncio.ensure_future(entities.observe(event(2), [0]))  # before the first wakes up
    assert [answer.available for answer in await asyncio.gather(first, second)] == [True, True]


async def test_nothing_is_sent_while_our_partitions_may_be_others() -> None:
    entities = Entities("redis://127.0.0.1:1/0", prefix="test", deadline=10, may_write=lambda: False)
    answer = await entities.observe(event(1), [0])
    assert (answer.available, answer.reason) == (False, "not_a_member")
    assert entities.waiting == 1
