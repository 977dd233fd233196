"""Rows of risk on a real Redis: the bits of the offline fold, whatever the batches and shards, and nothing counted twice."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from assay.schemas.limits import MAX_RISK_ROW_BYTES
from assay.tables.changes import CHANGED_KINDS, Changes
from assay.tables.events import Events
from assay.tables.features import FEATURE_COUNT, PROFILE_FEATURES
from assay.tables.keyspace import Keyspace
from assay.tables.lookups import look_ups
from assay.tables.redis_link import RedisLink
from assay.tables.risk_call import EXPIRE_S, read_sequences, risk_calls, risk_library
from assay.tables.risk_family import RiskFamily
from assay.tables.risk_layout import HEADER_BYTES, TILE_S, TILES_BACK, read_rows
from tests.unit.risk_history import BLOCK, COLUMNS, START_MS, History, change, events_at, histories, replayed, windows_of

pytestmark = pytest.mark.services

UNHURRIED_S = 30.0


class Rows(RiskFamily):
    """The family with the columns of the tests; windows come from them, too."""

    def read(self, rows: Sequence[bytes | None], index: Any, events: Events, windows: Any, out: Any) -> None:  # type: ignore[override]
        read_rows(rows, index, events, COLUMNS, windows[:, : len(BLOCK)], out)

    columns = slice(len(BLOCK), len(BLOCK) + len(COLUMNS))


class Store:
    """Rows of a prefix that nobody else has."""

    def __init__(self, link: RedisLink, shards: int, source: str = "s") -> None:
        self.link, self.keyspace = link, Keyspace(uuid.uuid4().hex[:12], source, shards)

    async def learn(self, changes: Changes, stream: str = "outcomes") -> list[list[int]]:
        """Apply changes; by change and kind, the number of the row's changes."""
        calls = risk_calls(changes, self.keyspace, stream)
        replies = await self.link.exchange(calls, asyncio.get_running_loop().time() + UNHURRIED_S)
        sequences = read_sequences(calls, replies, len(changes))
        assert sequences is not None
        return sequences.tolist()

    async def read(self, events: Events, windows: np.ndarray) -> np.ndarray:
        asked = look_ups(events, (Rows(),), self.keyspace)
        replies = await self.link.exchange(asked.commands, asyncio.get_running_loop().time() + UNHURRIED_S)
        block = np.concatenate([windows, np.zeros((len(events), len(COLUMNS)), np.float32)], axis=1)
        asked.read(replies, block)
        return block[:, len(BLOCK) :]


@asynccontextmanager
async def store(url: str, shards: int = 1) -> AsyncIterator[Store]:
    link = RedisLink(url, (risk_library(),))
    await link.connect()
    try:
        yield Store(link, shards)
    finally:
        await link.disconnect()


def one(**values: int) -> Changes:
    return change(**({"merchant": 7} | values))


@settings(max_examples=60, deadline=None)
@given(histories, st.sampled_from([1, 2, 5]), st.booleans())
def test_redis_and_the_offline_fold_give_the_same_bits(redis_url: str, drawn: History, shards: int, again: bool) -> None:
    """Event by event; what is sent again changes nothing."""
    events, changes, known_before = drawn
    changes["offset"], changes["partition"] = np.arange(len(changes)), np.arange(len(changes)) % 3

    async def run() -> list[bytes]:
        async with store(redis_url, shards) as rows:
            got, windows = [], windows_of(len(events))
            for i in range(len(events)):
                learnt = changes[known_before <= i if again else known_before == i]
                if len(learnt):
                    await rows.learn(learnt)
                got.append((await rows.read(events[i : i + 1], windows[i : i + 1])).tobytes())
            return got

    assert b"".join(asyncio.run(run())) == replayed(events, changes, known_before).tobytes()


async def test_a_change_that_was_applied_is_answered_with_the_number_as_it_stands(redis_url: str) -> None:
    changes = np.concatenate([one(offset=offset, frauds=1) for offset in range(3)])
    async with store(redis_url) as rows:
        merchant = CHANGED_KINDS.index("merchant")
        assert [row[merchant] for row in await rows.learn(changes[:2])] == [1, 2]
        assert [row[merchant] for row in await rows.learn(changes)] == [2, 2, 3]
        assert [row[merchant] for row in await rows.learn(one(offset=1, partition=1))] == [4]
        assert [row[merchant] for row in await rows.learn(one(offset=1), "verdicts")] == [5]


async def test_a_change_has_a_number_for_each_of_its_entities_and_none_for_those_it_lacks(redis_url: str) -> None:
    change = one(user=1, instrument=2, bin=0, merchant=3, device=0, address=4)
    async with store(redis_url, shards=3) as rows:
        assert await rows.learn(change) == [[1, 1, 0, 1, 0, 1]]


async def test_offsets_of_another_source_are_not_compared(redis_url: str) -> None:
    async with store(redis_url) as rows:
        before = await rows.learn(one(offset=5))
        rows.keyspace = Keyspace(rows.keyspace.prefix, "recreated", 1)
        after = await rows.learn(one(offset=0))
    assert (before[0][3], after[0][3]) == (1, 2)


async def test_every_key_expires_and_the_marks_outlive_the_rows(redis_url: str) -> None:
    async with store(redis_url, shards=2) as rows:
        await rows.learn(one(user=1, instrument=2, bin=3, device=4, address=5))
        client = Redis.from_url(redis_url)
        keys = [key async for key in client.scan_iter(f"{{{rows.keyspace.prefix}:*", count=10_000)]
        lives = {key: await client.ttl(key) for key in keys}
        await client.aclose()
    marks = [life for key, life in lives.items() if b"learnt:" in key]
    assert len(lives) == 8
    assert all(EXPIRE_S - 60 < life <= EXPIRE_S for key, life in lives.items() if b"learnt:" not in key)
    assert all(life > EXPIRE_S for life in marks)


async def test_i5_max_risk_row_bytes_hold_one_change_more_than_there_are_tiles(redis_url: str) -> None:
    times = [size * 1000 * back for size, most in zip(TILE_S, TILES_BACK, strict=True) for back in range(most + 2)]
    changes = np.concatenate([one(offset=i, time_ms=START_MS - back) for i, back in enumerate(sorted(times, reverse=True))])
    async with store(redis_url) as rows:
        await rows.learn(changes)
        client = Redis.from_url(redis_url)
        (key,) = [key async for key in client.scan_iter(f"{{{rows.keyspace.prefix}:0}}:rm*", count=10_000)]
        row = await client.get(key)
        await client.aclose()
    assert list(row[16:19]) == [most + 1 for most in TILES_BACK]
    assert len(row) == MAX_RISK_ROW_BYTES


async def test_what_was_read_says_how_many_changes_each_row_had_seen(redis_url: str) -> None:
    async with store(redis_url, shards=2) as rows:
        await rows.learn(np.concatenate([one(offset=offset, user=1) for offset in range(3)]))
        await rows.learn(one(offset=3, device=5))
        events = events_at(0, 0, digest=7)
        events["user"], events["device"], events["address"] = [1, 0], [5, 6], 9
        asked = look_ups(events, (RiskFamily(),), rows.keyspace)
        replies = await rows.link.exchange(asked.commands, asyncio.get_running_loop().time() + UNHURRIED_S)
        found = asked.read(replies, np.zeros((2, FEATURE_COUNT - PROFILE_FEATURES), np.float32))
    assert found.sequences["risk"].tolist() == [[3, 0, 0, 4, 1, 0], [0, 0, 0, 4, 0, 0]]


@pytest.mark.parametrize("broken", [b"", b"x", bytes(HEADER_BYTES + 1), b"\xff" * 56])
async def test_a_row_that_cannot_be_read_is_unavailable_and_begins_anew(redis_url: str, broken: bytes) -> None:
    events = events_at(0, digest=7)
    async with store(redis_url) as rows:
        await rows.learn(one(frauds=1))
        client = Redis.from_url(redis_url)
        (key,) = [key async for key in client.scan_iter(f"{{{rows.keyspace.prefix}:0}}:rm*", count=10_000)]
        await client.set(key, broken)
        unavailable = await rows.read(events, windows_of(1))
        anew = await rows.learn(one(offset=1, disputes=1))
        again = await rows.read(events, windows_of(1))
        await client.aclose()
    assert np.isnan(unavailable).sum() == len(COLUMNS) // 2  # the merchant's
    assert anew[0][3] == 1
    assert not np.isnan(again).any()
