"""One more than each limit of batch features (invariant I5)."""

import asyncio
import uuid
from collections.abc import Sequence

import numpy as np
import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from assay.schemas.errors import ServiceError
from assay.schemas.limits import (
    BATCH_COMMANDS_AT_ONCE,
    BATCH_ROWS_AT_ONCE,
    LOOK_UPS_REST_S,
    MAX_BATCH_VALUE_AGE_S,
    MAX_BATCH_VALUES_PER_ENTITY,
)
from assay.tables import batch_load
from assay.tables.batch_history import BatchValues
from assay.tables.batch_load import load
from assay.tables.batch_rows import VALUE, BatchRows, pack_row, pack_value
from assay.tables.entities import Entities
from assay.tables.events import EVENT
from assay.tables.keyspace import Keyspace
from assay.tables.lookups import row_key
from assay.tables.redis_link import Command

from .batch_features import NEVER, NOW_MS, read, row

AS_OF_MS = 4_000_000_000_000  # far ahead: rows expire by the clock on the wall


def values(count: int) -> BatchValues:
    """Of one feature, each of another entity."""
    digests = np.arange(1, count + 1).astype(np.uint64)
    return BatchValues(np.zeros(count, np.int64), digests, np.ones(count, np.float32), np.full(count, AS_OF_MS))


def test_i5_max_batch_value_age_s_an_older_one_is_as_if_never_loaded() -> None:
    oldest_ms = NOW_MS - int(MAX_BATCH_VALUE_AGE_S * 1000)
    at, beyond = (read([row(rate=(1.0, as_of_ms))], [[0, -1]])[0][0, 0] for as_of_ms in (oldest_ms, oldest_ms - 1))
    assert np.isnan(at)
    assert beyond == NEVER


@pytest.mark.services
async def test_i5_max_batch_values_per_entity_one_more_takes_the_place_of_the_oldest(redis_url: str) -> None:
    keyspace, client = Keyspace(uuid.uuid4().hex[:12], "", 1), Redis.from_url(redis_url)
    _, key = row_key(keyspace, b"b", "merchant", 1)
    others = [pack_value(1_000 + place, 1.0, AS_OF_MS - 1 - place) for place in range(MAX_BATCH_VALUES_PER_ENTITY)]
    await client.set(key, pack_row(others))
    await load(values(1), redis_url, keyspace)
    held = np.frombuffer((await client.get(key))[8:], VALUE)
    await client.aclose()
    assert len(held) == MAX_BATCH_VALUES_PER_ENTITY
    assert set(held["name"].tolist()).isdisjoint({1_000 + MAX_BATCH_VALUES_PER_ENTITY - 1})
    assert held["as_of_ms"].max() == AS_OF_MS


def test_i5_batch_rows_at_once_one_more_goes_into_another_command() -> None:
    for count, commands in ((BATCH_ROWS_AT_ONCE, 1), (BATCH_ROWS_AT_ONCE + 1, 2)):
        newest = batch_load.newest_states(values(count))
        assert len(list(batch_load._calls(newest, Keyspace("x", "", 1)))) == commands


def test_i5_batch_commands_at_once_one_more_goes_into_another_exchange() -> None:
    calls = list(batch_load._calls(batch_load.newest_states(values(1)), Keyspace("x", "", 1)))
    for count, exchanges in ((BATCH_COMMANDS_AT_ONCE, 1), (BATCH_COMMANDS_AT_ONCE + 1, 2)):
        assert len(list(batch_load._some(iter(calls * count)))) == exchanges


class Silent:
    """A Redis that takes everything and answers nothing."""

    address = "nowhere"

    def __init__(self, *_: object) -> None:
        pass

    async def connect(self) -> None:
        pass

    async def exchange(self, commands: object, until: float) -> list[object]:
        async with asyncio.timeout_at(until):
            await asyncio.Event().wait()
        return []

    async def disconnect(self) -> None:
        pass


async def test_i5_batch_load_s_later_a_load_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_load, "BATCH_LOAD_S", 0.01)
    monkeypatch.setattr(batch_load, "KeyedLink", Silent)
    with pytest.raises(ServiceError, match="0 of 1 are written"):
        await load(values(1), "redis://nowhere", Keyspace("x", "", 1))


class Forbidding:
    """A Redis that answers windows, and refuses to read rows."""

    connected = True

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def exchange(self, commands: Sequence[Command], until: float) -> list[object]:
        looked_up = sum(b"MGET" in bytes(command.parts[0]) for command in commands)
        self.asked.append(looked_up)
        if looked_up:
            raise NoPermissionError("no")
        return [None for _ in commands]

    async def connect(self) -> None:
        pass


async def test_i5_look_ups_rest_s_later_they_are_tried_again() -> None:
    now, link = [0.0], Forbidding()
    entities = Entities("redis://127.0.0.1:1/0", prefix="x", deadline=30, families=(BatchRows(),), clock=lambda: now[0])
    entities._link = link  # type: ignore[assignment]
    events = np.zeros(1, EVENT)
    events["merchant"] = 7
    for now[0] in (0.0, LOOK_UPS_REST_S - 0.1, LOOK_UPS_REST_S):
        events["offset"] += 1
        await entities.observe(events, [0])
        if entities._recovery is not None:
            await asyncio.wait({entities._recovery})
    assert [looked_up for looked_up in link.asked if looked_up] == [1, 1]
    assert link.asked[-1] == 0  # what was refused with the look-ups is sent again without
