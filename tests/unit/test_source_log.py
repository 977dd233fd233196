"""What the source partitions say besides their records."""

from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from assay.streams import source_log
from assay.streams.publisher import FENCE
from assay.streams.source_log import SourceLog

WHERE = TopicPartition("transactions-by-user", 0)
MS = 1_772_362_800_000
AHEAD_MS = 60_000  # the clock of whoever wrote the fence


def fence(offset: int) -> ConsumerRecord[bytes, bytes]:
    key, value, headers = FENCE
    return ConsumerRecord(*WHERE, offset, MS + AHEAD_MS, 0, key, value, None, 0, 0, tuple(headers))


def payment(offset: int, value: bytes | None = b"{}") -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord(*WHERE, offset, MS + offset, 0, b"u", value, None, 0, 0, ())


class Reader:
    """Two records at a time."""

    def __init__(self, *records: ConsumerRecord[bytes, bytes]) -> None:
        self._records, self._at = records, 0

    def assign(self, _: list[TopicPartition]) -> None: ...

    def seek(self, _: TopicPartition, offset: int) -> None:
        self._at = offset

    async def position(self, _: TopicPartition) -> int:
        return self._at

    async def getmany(self, where: TopicPartition, *, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        found = [record for record in self._records if record.offset >= self._at][:2]
        self._at = found[-1].offset + 1
        return {where: found}


@pytest.fixture
def log_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(*records: ConsumerRecord[bytes, bytes]) -> SourceLog:
        async def reader(*_: Any, **__: Any) -> Reader:
            return Reader(*records)

        monkeypatch.setattr(source_log, "reader", reader)
        return SourceLog(None, {}, WHERE.topic, 1.0)

    return make


async def test_i1_a_fence_among_copies_does_not_say_when_the_first_of_them_was_appended(log_of: Any) -> None:
    log = log_of(fence(0), fence(1), fence(2), payment(3), payment(4))
    assert await log.first_append(0, 0, 5) == MS + 3


async def test_a_tombstone_was_appended_like_any_record(log_of: Any) -> None:
    assert await log_of(fence(0), payment(1, None)).first_append(0, 0, 2) == MS + 1


async def test_where_there_are_fences_alone_nothing_was_appended_and_the_log_has_no_hole(log_of: Any) -> None:
    log = log_of(fence(0), fence(1), fence(2), payment(3))
    assert await log.first_append(0, 0, 3) is None
    assert await log.holds_records(0, 0, 3)
