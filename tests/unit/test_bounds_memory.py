"""One more than what is remembered (invariant I5): the oldest makes room."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from aiokafka import TopicPartition

from assay.agents.recent import RecentDecisions, Remembered
from assay.schemas import limits
from assay.schemas.errors import TopologyError
from assay.schemas.source import SOURCE_HEADER, Source
from assay.streams.read_back import LogReader, ReadBack, Uncommitted
from assay.streams.waiters import Heard, Waiters
from assay.tables.events import EVENT
from assay.tables.features import FEATURE_COUNT
from assay.tables.fold import fold
from assay.tables.profile import new_rows
from assay.tables.recall import NEW, recall
from assay.tables.working_rows import Folded, UserKey, WorkingRows


def test_i5_decisions_remembered_per_user_one_more_pushes_the_oldest_out() -> None:
    rows, slots = new_rows(1), np.zeros(1, np.int32)

    def recalled(identity: int, offset: int) -> int:
        events, repeats = np.zeros(1, EVENT), np.empty(1, np.int64)
        events["id"][:, 0], events["offset"] = identity, offset
        recall(rows, slots, events, repeats)
        fold(rows, slots, events, repeats, np.zeros((1, FEATURE_COUNT), np.float32))
        return int(repeats[0])

    for number in range(limits.DECISIONS_REMEMBERED_PER_USER):
        assert recalled(identity=number, offset=number) == NEW
    assert recalled(identity=0, offset=100) == 0
    assert recalled(identity=999, offset=101) == NEW
    assert recalled(identity=1, offset=102) == 1
    assert recalled(identity=0, offset=103) == NEW


def test_i5_recent_decisions_one_more_pushes_the_oldest_out() -> None:
    recent = RecentDecisions()
    for number in range(limits.RECENT_DECISIONS + 1):
        recent.add(0, "user", str(number), Remembered(b"{}", Source("transactions", 0, number), 0))
    assert recent.get(0, "user", "0") is None
    assert recent.get(0, "user", "1") is not None
    assert len(recent._decisions) == limits.RECENT_DECISIONS


class EmptyStore:
    """Counts the users whose row was looked for."""

    def __init__(self) -> None:
        self.looked_for = 0

    def get(self, partition: int, keys: Sequence[bytes]) -> list[bytes | None]:
        self.looked_for += len(keys)
        return [None] * len(keys)


def folded(rows: WorkingRows, users: Sequence[UserKey]) -> Folded:
    return rows.folded(rows.gather(users), np.ones(len(users), bool))


def test_i5_recent_rows_one_more_pushes_the_oldest_out_once_it_is_durable() -> None:
    store = EmptyStore()
    rows = WorkingRows(store)
    users = [UserKey(0, b"%d" % number) for number in range(limits.RECENT_ROWS + 1)]
    in_flight = folded(rows, users)
    assert store.looked_for == len(users)
    rows.gather(users)
    assert store.looked_for == len(users), "what is in flight is held, however much it is"
    rows.durable([in_flight])
    rows.gather(users)
    assert store.looked_for == len(users) + 1
    assert len(rows._held) == limits.RECENT_ROWS


async def test_i5_calls_remembered_one_more_makes_the_oldest_a_stranger() -> None:
    waiters: Waiters[str] = Waiters(b"a-client")
    correlations = []
    for _ in range(limits.CALLS_REMEMBERED + 1):
        correlation, _ = waiters.register()
        waiters.give_up(correlation)
        correlations.append(correlation)
    assert waiters.answer(correlations[0], "late") is Heard.ORPHANED
    assert waiters.answer(correlations[1], "late") is Heard.LATE


class _Decisions:
    """A consumer of a decisions topic that was decided so many times, once for each source offset."""

    def __init__(self, count: int) -> None:
        self._count, self._position = count, 0

    def assign(self, partitions: list[TopicPartition]) -> None: ...
    def pause(self, *partitions: TopicPartition) -> None: ...
    def seek(self, where: TopicPartition, offset: int) -> None: ...

    async def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, SimpleNamespace]:
        return {where: SimpleNamespace(offset=0) for where in times}

    async def position(self, where: TopicPartition) -> int:
        return self._position

    async def getmany(self, *partitions: TopicPartition, timeout_ms: int) -> dict[TopicPartition, list[SimpleNamespace]]:
        [where] = [where for where in partitions if where.topic == "decisions"]
        self._position = self._count
        return {where: [self._decision(where, offset) for offset in range(self._count)]}

    def _decision(self, where: TopicPartition, offset: int) -> SimpleNamespace:
        headers = [(SOURCE_HEADER, Source("transactions", 0, offset).header())]
        return SimpleNamespace(topic=where.topic, partition=0, offset=offset, value=b"{}", headers=headers)


async def test_i5_max_read_back_decisions_one_more_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_READ_BACK_DECISIONS", 3)
    reader = LogReader({}, "transactions", "decisions", "dead-letters", 1.0)

    async def read(count: int) -> ReadBack:
        ends = {TopicPartition("decisions", 0): count, TopicPartition("dead-letters", 0): 0}
        found = {0: ReadBack()}
        await reader._read(_Decisions(count), ends, {0: Uncommitted(0, 0, count, 0)}, found)
        return found[0]

    assert len((await read(3)).decisions) == 3
    with pytest.raises(TopologyError, match=r"more was decided.*assay rebuild"):
        await read(4)
