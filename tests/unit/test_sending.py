"""Records of one partition leave in batches that are made ahead."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio
from aiokafka.errors import KafkaConnectionError, MessageSizeTooLargeError

from assay.schemas.source import OutRecord
from assay.streams.sending import Sending

FITS = 3  # records of a batch


class Batch:
    def __init__(self) -> None:
        self.values: list[bytes] = []

    def append(self, *, timestamp: None, key: bytes, value: bytes, headers: Any) -> object:
        if len(self.values) == FITS:
            return None
        self.values.append(value)
        return object()

    def close(self) -> None: ...


class Producer:
    """Takes batches; `fails` fails one of them at once, `answers` are what the broker says of them later."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.fails: list[Exception] = []
        self.answers: list[asyncio.Future[None]] = []
        self.takes = asyncio.Event()
        self.takes.set()

    def create_batch(self) -> Batch:
        return Batch()

    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> "asyncio.Future[None]":
        await self.takes.wait()
        if self.fails:
            raise self.fails.pop(0)
        self.sent.append(batch.values)
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]


class Stand:
    def __init__(self) -> None:
        self.producer, self.left_out, self.no_records = Producer(), set[int](), set[int]()
        self.ended: list[tuple[Sequence[int], BaseException | None]] = []
        self.sending: Sending[int] = Sending(
            self.producer,  # type: ignore[arg-type]
            "transactions", 0, make=self._make, ended=lambda items, failure: self.ended.append((items, failure)),
        )  # fmt: skip

    def _make(self, item: int) -> OutRecord | None:
        if item in self.no_records:
            raise TypeError("no bytes")
        return None if item in self.left_out else (b"", b"%d" % item, [])

    async def put(self, *items: int) -> None:
        for item in items:
            self.sending.put(item)
        for _ in range(20):
            await asyncio.sleep(0)


@pytest_asyncio.fixture
async def stand() -> AsyncIterator[Stand]:
    stand = Stand()
    task = asyncio.create_task(stand.sending.run())
    yield stand
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.asyncio
async def test_one_leaves_at_once_and_what_comes_while_it_leaves_goes_together(stand: Stand) -> None:
    await stand.put(1)
    stand.producer.takes.clear()
    await stand.put(2)
    await stand.put(3, 4)
    stand.producer.takes.set()
    await stand.put()
    assert stand.producer.sent == [[b"1"], [b"2"], [b"3", b"4"]]


@pytest.mark.asyncio
async def test_what_does_not_fit_goes_with_the_next_batch_in_order(stand: Stand) -> None:
    await stand.put(*range(2 * FITS + 1))
    assert stand.producer.sent == [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6"]]


@pytest.mark.asyncio
async def test_what_is_of_no_use_any_more_is_left_out(stand: Stand) -> None:
    stand.producer.takes.clear()
    await stand.put(1)
    await stand.put(2, 3, 4)
    stand.left_out = {2, 3}
    stand.producer.takes.set()
    await stand.put(5)
    assert stand.producer.sent[1:] in ([[b"4", b"5"]], [[b"4"], [b"5"]])
    stand.left_out = {6}
    await stand.put(6)
    assert len(stand.sending.due) == 0


@pytest.mark.asyncio
async def test_what_is_no_record_costs_only_itself(stand: Stand) -> None:
    stand.no_records = {2}
    await stand.put(1)
    await stand.put(2, 3)
    await stand.put(4)
    assert [value for batch in stand.producer.sent for value in batch] == [b"1", b"3", b"4"]
    [(items, failure)] = stand.ended
    assert items == [2]
    assert isinstance(failure, TypeError)


@pytest.mark.asyncio
async def test_an_error_that_is_not_kafkas_ends_its_batch_and_no_other(stand: Stand) -> None:
    stand.producer.fails = [RuntimeError("closed")]
    await stand.put(1)
    await stand.put(2)
    assert stand.producer.sent == [[b"2"]]
    assert [items for items, failure in stand.ended if isinstance(failure, RuntimeError)] == [[1]]


@pytest.mark.asyncio
async def test_each_batch_is_told_how_it_ended(stand: Stand) -> None:
    refused, gone = MessageSizeTooLargeError(), KafkaConnectionError()
    await stand.put(1)
    await stand.put(2)
    stand.producer.fails = [gone]
    await stand.put(3)
    stand.producer.answers[0].set_result(None)
    stand.producer.answers[1].set_exception(refused)
    await stand.put(4)
    assert stand.ended == [([3], gone), ([1], None), ([2], refused)]
    assert stand.producer.sent[-1] == [b"4"]
