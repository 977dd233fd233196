"""What is learnt, on a real Redis: a crash before or after any command counts nothing twice and loses nothing."""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import orjson
import pytest
import pytest_asyncio
from faust.types import TP
from redis.asyncio import Redis, RedisCluster

from assay.agents.decided import DecidedBatch
from assay.agents.learn import Learner
from assay.deploy.redis_cluster import local_cluster
from assay.schemas.decision import Action, Tier
from assay.schemas.limits import OUTCOME_PATIENCE_S
from assay.streams.metrics import Metrics
from assay.tables.changes import CHANGED_KINDS
from assay.tables.digests import OFFLINE
from assay.tables.keyspace import Keyspace
from assay.tables.learned_rows import MARKED_S, LearnedRows
from assay.tables.learning import own_verdicts
from assay.tables.outcomes import effect
from assay.tables.redis_link import Command, RedisLink
from assay.tables.risk_call import risk_library
from assay.tables.transaction_index import ACTIONS, DECIDED, VERSION, Kept, index_library, place_of
from tests.unit.learner_stand import GENERATION, fetched

from .own_redis import OwnRedis

pytestmark = [pytest.mark.services, pytest.mark.asyncio]
EXPIRE_S, SHARDS = 3_600, 3
PATIENCE_S = 30.0
TIME_MS = 1_767_225_600_000
KINDS = dict(zip("uibmda", CHANGED_KINDS, strict=True))
COURSE = [
    ("issuer_declined", {}),
    ("disputed", {}),
    ("fraud", {"amount": "30"}),
    ("fraud", {"amount": "20"}),
    ("fraud", {"amount": "50", "supersedes": "o-3"}),
    ("dispute_reversed", {"supersedes": "o-1"}),
]
OUTCOMES = [
    orjson.dumps(
        {"outcome_id": f"o-{n}", "user_id": f"u-{u}", "transaction_id": "t", "status": status, "known_at": n} | changes
    )
    for n, (status, changes) in enumerate(COURSE)
    for u in range(3)
]


class Killed(BaseException):
    """The process ends here."""


class FragileLink(RedisLink):
    """A connection whose process is killed at one exchange: before the commands leave, or after Redis has taken them."""

    def __init__(self, url: str) -> None:
        super().__init__(url, (risk_library(), index_library()))
        self.killed_at, self.late, self.exchanges = -1, False, 0

    async def exchange(self, commands: Sequence[Command], until: float) -> list[object]:
        self.exchanges += 1
        if self.exchanges == self.killed_at and not self.late:
            raise Killed
        replies = await super().exchange(commands, until)
        if self.exchanges == self.killed_at:
            raise Killed
        return replies


class Silent:
    def offer_outcomes(self, *_: object) -> None: ...
    def offer_verdicts(self, *_: object) -> None: ...
    async def keep(self, *_: object) -> set[int]:
        return set()

    def forget(self) -> None: ...
    async def close(self) -> None: ...


class Life:
    """One process with a learner."""

    patience = OUTCOME_PATIENCE_S

    def __init__(self, url: str, prefix: str) -> None:
        self.link = FragileLink(url)
        self.keyspace = Keyspace(prefix, "transactions-id", SHARDS)
        self.rows = LearnedRows(self.link, self.keyspace, Keyspace(prefix, "outcomes-id", SHARDS), OFFLINE, EXPIRE_S)
        self.finished = 0
        self.learner = Learner(
            self.rows, Silent(), Silent(), Metrics(),
            generation=lambda: GENERATION, finished=self._finish, rest=0.01, patience=self.patience,
        )  # fmt: skip

    def _finish(self, tp: TP, offset: int) -> None:
        self.finished = offset

    def decide(self, users: Sequence[int] = (0, 1, 2)) -> None:
        """The transactions of some users, declined in the tier full."""
        rows = np.zeros(3, DECIDED)
        for n, row in enumerate(rows):
            identity = place_of(self.keyspace, OFFLINE, f"u-{n}", "t").key[-16:]
            row["user"], row["id"], row["offset"] = OFFLINE.of64(f"u-{n}"), np.frombuffer(identity, "<u8"), n
        entry = rows["entry"]
        entry["version"], entry["action"], entry["tier"] = VERSION, ACTIONS.index(Action.DECLINE), Tier.FULL.rank
        entry["time_ms"], entry["whole"], entry["base"] = TIME_MS, 100_000, 80_000
        entry["merchant"], entry["instrument"], entry["device"] = 11, [21, 22, 23], 31
        self.learner.keep([DecidedBatch(rows[list(users)])])

    def hear(self, first: int, end: int) -> None:
        self.learner.take(fetched(OUTCOMES[first:end], first=first))

    async def live(self, committed: int, at_once: int) -> None:
        """From a committed offset to the end, so many outcomes at once; raises Killed."""
        try:
            for first in range(committed, len(OUTCOMES), at_once):
                self.hear(first, first + at_once)
                await self.learner._turn()
        finally:
            await self.link.disconnect()


@pytest_asyncio.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


async def counts(redis: Redis, prefix: str) -> dict[tuple[str, int], tuple[float, ...]]:
    """(kind, digest) -> the sums of all day tiles of a row of risk."""
    found = {}
    async for key in redis.scan_iter(match=f"{{{prefix}:*}}:r*"):
        row = await redis.get(key)
        marked = key.split(b"}:r", 1)[1]
        found[KINDS[chr(marked[0])], int.from_bytes(marked[1:], "little")] = sums(row)
    return found


def sums(row: bytes) -> tuple[float, ...]:
    """Issuer declines, verdicts, disputes, frauds and thousandths of all days of a row."""
    tile = np.dtype([("number", "<u4"), ("counts", "<i4", (4,)), ("unused", "<u4"), ("thousandths", "<f8")])
    minutes, hours, days = row[16:19]
    tiles = np.frombuffer(row, tile, offset=24 + tile.itemsize * (minutes + hours))[:days]
    return (*tiles["counts"].sum(axis=0).tolist(), float(tiles["thousandths"].sum()))


ONE = (1, 1, 0, 1, 64_000.0)
EXPECTED = (
    {("merchant", 11): tuple(3 * part for part in ONE), ("device", 31): tuple(3 * part for part in ONE)}
    | {("instrument", digest): ONE for digest in (21, 22, 23)}
    | {("user", OFFLINE.of64(f"u-{n}")): ONE for n in range(3)}
)


@pytest.mark.parametrize("at_once", [1, 4, len(OUTCOMES)])
async def test_a_crash_at_any_command_counts_nothing_twice_and_loses_nothing(
    redis: Redis, redis_url: str, topic_prefix: str, at_once: int
) -> None:
    killed_at, late, lives = 0, False, 0
    while True:
        late = not late
        killed_at += late
        prefix = f"{topic_prefix}{killed_at}-{late}"
        first = Life(redis_url, prefix)
        first.link.killed_at, first.link.late = killed_at, late
        first.decide()
        try:
            await first.live(0, at_once)
        except Killed:
            second = Life(redis_url, prefix)
            second.decide()  # what was said after the commit is kept again
            await second.live(first.finished, len(OUTCOMES) if at_once == 1 else 5)
            assert second.finished == len(OUTCOMES)
            lives += 1
        assert await counts(redis, prefix) == EXPECTED, (killed_at, late)
        if first.finished == len(OUTCOMES):
            break
    assert lives >= 2 * 4  # before and after: keep, find, count, remember


async def known_frauds(redis: Redis, life: Life) -> dict[int, int]:
    """Digest of a user -> frauds that are known, by what is written with the transactions."""
    keys = [(n, place_of(life.keyspace, OFFLINE, f"u-{n}", "t").key) for n in range(3)]
    kept = {n: Kept.decode(value) for n, key in keys if (value := await redis.get(key)) is not None}
    return {OFFLINE.of64(f"u-{n}"): effect(each.known, each.paid).fraud for n, each in kept.items()}


async def test_one_that_was_unknown_stays_it_whatever_is_kept_before_it_is_read_again_after_a_crash(
    redis: Redis, redis_url: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Life, "patience", 0.0)
    lives = 0
    for killed_at, late in product(range(1, 7), (False, True)):
        prefix = f"{topic_prefix}{killed_at}-{late}"
        first, second = Life(redis_url, prefix), Life(redis_url, prefix)
        first.link.killed_at, first.link.late = killed_at, late
        first.decide([1, 2])
        with suppress(Killed):
            await first.live(0, len(OUTCOMES))
        second.decide()
        await second.live(first.finished, 5)
        lives += first.finished == 0
        rows = await counts(redis, prefix)
        for digest, known in (await known_frauds(redis, second)).items():
            assert rows.get(("user", digest), (0,) * 5)[3] == known, (killed_at, late)
    assert lives == 2 * 5  # before and after: keep, find, mark, count, remember


async def test_marks_of_unknown_outcomes_go_by_themselves(
    redis: Redis, redis_url: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Life, "patience", 0.0)
    life = Life(redis_url, topic_prefix)
    life.decide([1, 2])
    await life.live(0, len(OUTCOMES))
    marks = [key async for key in redis.scan_iter(match=f"{{{topic_prefix}:*}}:learnt:unknown:*")]
    assert len(marks) == len(COURSE)
    for mark in marks:
        assert 0 < await redis.ttl(mark) <= MARKED_S


async def test_what_was_heard_is_kept_as_long_as_the_transaction(redis: Redis, redis_url: str, topic_prefix: str) -> None:
    life = Life(redis_url, topic_prefix)
    life.decide()
    await life.live(0, len(OUTCOMES))
    for n in range(3):
        key = place_of(life.keyspace, OFFLINE, f"u-{n}", "t").key
        value = await redis.get(key)
        assert len(Kept.decode(value).known) == len(COURSE)
        assert 0 < await redis.ttl(key) <= EXPIRE_S


async def test_a_transaction_is_kept_for_less_where_that_is_said(redis: Redis, redis_url: str, topic_prefix: str) -> None:
    life = Life(redis_url, topic_prefix)
    row = np.zeros(1, DECIDED)
    row["user"] = OFFLINE.of64("u-0")
    await life.rows.connect()
    await life.rows.keep(row, own_verdicts(row), 60)
    [key] = [key async for key in redis.scan_iter(match=f"{{{topic_prefix}:*}}:t:*")]
    assert 0 < await redis.ttl(key) <= 60
    await life.link.disconnect()


async def test_a_transaction_that_is_decided_again_keeps_what_was_heard_of_it(
    redis: Redis, redis_url: str, topic_prefix: str
) -> None:
    life = Life(redis_url, topic_prefix)
    life.decide()
    await life.live(0, len(OUTCOMES))
    life.decide()
    await life.live(len(OUTCOMES) - 1, 1)
    assert len(Kept.decode(await redis.get(place_of(life.keyspace, OFFLINE, "u-1", "t").key)).known) == len(COURSE)
    assert await counts(redis, topic_prefix) == EXPECTED


async def test_who_was_overtaken_takes_nothing_back(redis_url: str, topic_prefix: str) -> None:
    life = Life(redis_url, topic_prefix)
    life.decide()
    await life.live(len(OUTCOMES), 1)
    await life.rows.connect()
    await life.learner._turn()
    place = place_of(life.keyspace, OFFLINE, "u-1", "t")
    before = (await life.rows.find([place]))[place]
    assert await life.rows.remember({place: (before, b"newer")})
    assert not await life.rows.remember({place: (before, b"stale")})
    assert await life.rows.find([place]) == {place: b"newer"}
    await life.link.disconnect()


async def test_on_a_cluster_of_three_nodes_a_crash_counts_nothing_twice_either(tmp_path: Path) -> None:
    with local_cluster(tmp_path) as cluster:
        for killed_at in (2, 3, 4):
            prefix = f"prefix-{killed_at}"
            first, second = Life(cluster.url, prefix), Life(cluster.url, prefix)
            first.link.killed_at, first.link.late = killed_at, True
            first.decide()
            with pytest.raises(Killed):
                await first.live(0, len(OUTCOMES))
            second.decide()
            await second.live(first.finished, len(OUTCOMES))
            async with RedisCluster.from_url(f"redis://127.0.0.1:{cluster.ports[0]}") as redis:
                assert {owner: sums(await redis.get(row_key(prefix, *owner))) for owner in EXPECTED} == EXPECTED


def row_key(prefix: str, kind: str, digest: int) -> bytes:
    letter = {kind: letter for letter, kind in KINDS.items()}[kind]
    return f"{{{prefix}:{digest % SHARDS}}}:r{letter}".encode() + digest.to_bytes(8, "little")


async def test_outcomes_wait_for_a_redis_that_hangs_and_are_counted_once_it_goes_on(own_redis: OwnRedis) -> None:
    life = Life(own_redis.url, "prefix")
    life.decide()
    await life.live(len(OUTCOMES), 1)
    await life.learner._turn()
    own_redis.signal(signal.SIGSTOP)
    life.learner.start()
    life.hear(0, len(OUTCOMES))
    async with asyncio.timeout(PATIENCE_S):
        while not life.learner._failing:
            await asyncio.sleep(0.01)
        assert life.finished == 0
        assert life.learner.age_s() > 0
        own_redis.signal(signal.SIGCONT)
        while life.finished < len(OUTCOMES):
            await asyncio.sleep(0.01)
    async with Redis.from_url(own_redis.url) as redis:
        assert await counts(redis, "prefix") == EXPECTED
    await life.learner.close()
