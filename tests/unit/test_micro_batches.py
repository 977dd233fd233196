"""`take`: merged across partitions, bounded in records, bytes and age, in order."""

import asyncio
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.streams.micro_batches import MicroBatch, Release, WaitingRecords, take


@dataclass
class Record:
    partition: int
    offset: int
    value: bytes = b"0123456789"
    key: bytes | None = None
    topic: str = "transactions"
    timestamp: int = 0
    headers: tuple = ()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def fetch(partition: int, first: int, count: int, value: bytes = b"0123456789") -> list[Record]:
    return [Record(partition, first + i, value) for i in range(count)]


@pytest.fixture
def waiting() -> WaitingRecords:
    records = WaitingRecords(Clock())
    records.open()
    return records


async def first(waiting: WaitingRecords, **how) -> MicroBatch:
    batches = take(
        waiting, **{"max_records": 256, "max_bytes": 1 << 20, "within": 0.01, "idle": lambda: True, "numbers": count()} | how
    )
    async with asyncio.timeout(1):
        return await anext(batches)


async def test_fetches_of_several_partitions_are_merged_into_one_micro_batch(waiting):
    waiting.add(0, fetch(0, 5, 3))
    waiting.add(1, fetch(1, 9, 2))
    batch = await first(waiting)
    assert {p: [r.offset for r in part] for p, part in batch.parts.items()} == {0: [5, 6, 7], 1: [9, 10]}
    assert batch.release is Release.IDLE


async def test_a_full_micro_batch_is_released_by_size_and_leaves_the_rest(waiting):
    waiting.add(0, fetch(0, 0, 10))
    batch = await first(waiting, max_records=4, idle=lambda: False)
    assert [r.offset for r in batch.records] == [0, 1, 2, 3]
    assert batch.release is Release.SIZE
    assert waiting.count == 6


async def test_bytes_bound_a_micro_batch(waiting):
    waiting.add(0, fetch(0, 0, 10, b"x" * 100))
    batch = await first(waiting, max_bytes=250)
    assert len(batch.records) == 2
    assert batch.release is Release.BYTES


async def test_a_record_larger_than_the_bound_is_taken_alone(waiting):
    waiting.add(0, [Record(0, 0, b"x" * 1000), Record(0, 1)])
    assert [r.offset for r in (await first(waiting, max_bytes=250)).records] == [0]
    assert [r.offset for r in (await first(waiting, max_bytes=250)).records] == [1]


async def test_age_releases_while_the_worker_is_busy(waiting):
    waiting.add(0, fetch(0, 0, 1))
    waiting.clock.now += 0.02
    assert (await first(waiting, idle=lambda: False)).release is Release.AGE


async def test_nothing_is_released_while_no_further_micro_batch_may_begin(waiting):
    waiting.add(0, fetch(0, 0, 300))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(
                take(waiting, max_records=9, max_bytes=99, within=0, idle=lambda: True, ready=lambda: False, numbers=count())
            )


async def test_closed_it_forgets_all_and_takes_nothing_until_it_is_opened(waiting):
    waiting.add(0, fetch(0, 0, 3))
    waiting.close()
    waiting.add(0, fetch(0, 3, 3))
    assert (waiting.count, waiting.bytes, waiting.oldest) == (0, 0, None)
    waiting.open()
    waiting.add(0, fetch(0, 0, 1))
    assert waiting.count == 1


def test_it_is_full_by_records_or_by_bytes(waiting):
    small = WaitingRecords(max_records=3, max_bytes=1000)
    small.open()
    small.add(0, fetch(0, 0, 2))
    assert not small.full
    small.add(0, fetch(0, 2, 1))
    assert small.full
    small.take(10, 1000)
    small.add(0, [Record(0, 3, b"x" * 1000)])
    assert small.full


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(0, 60)), max_size=12),
    st.integers(1, 50),
    st.integers(1, 500),
)
def test_every_record_comes_out_once_and_in_the_order_of_its_partition(fetches, most, size):
    waiting = WaitingRecords(Clock())
    waiting.open()
    following = dict.fromkeys(range(4), 0)
    for partition, number, width in fetches:
        waiting.add(partition, fetch(partition, following[partition], number, b"x" * width))
        following[partition] += number
    seen: dict[int, list[int]] = {p: [] for p in following}
    while waiting.count:
        parts, _ = waiting.take(most, size)
        assert 0 < sum(map(len, parts.values())) <= most
        for partition, records in parts.items():
            seen[partition] += [r.offset for r in records]
    assert seen == {p: list(range(n)) for p, n in following.items()}
    assert (waiting.bytes, waiting.oldest) == (0, None)


def test_i5_a_fetch_counts_from_when_it_is_handed_over():
    waiting = WaitingRecords(max_records=3)
    waiting.open()
    waiting.expect(0, fetch(0, 0, 2))
    assert not waiting.full
    waiting.expect(1, fetch(1, 0, 1))
    assert waiting.full
    waiting.add(0, fetch(0, 0, 2))
    assert waiting.full
    waiting.close()
    waiting.open()
    assert not waiting.full


def test_i5_headers_count_as_what_waits(waiting):
    waiting.add(0, [Record(0, 0, headers=(("a" * 100, b"b" * 1000), ("null", None)))])
    assert waiting.bytes == 10 + 1100 + 4
