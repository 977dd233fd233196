"""Who waits for which reply: the first one wins, and every other is told apart."""

import asyncio

import pytest

from assay.schemas.errors import ServiceError
from assay.streams.waiters import Heard, Waiters

CLIENT = b"client-1"


async def test_the_first_reply_wakes_its_caller_and_the_second_is_a_duplicate() -> None:
    waiters: Waiters[str] = Waiters(CLIENT)
    correlation, future = waiters.register()
    assert waiters.answer(correlation, "one") is Heard.FIRST
    assert waiters.answer(correlation, "two") is Heard.DUPLICATE
    assert await future == "one"
    assert waiters.counts.as_dict() == {"first": 1, "duplicate": 1, "late": 0, "orphaned": 0}


async def test_a_reply_after_the_caller_gave_up_is_late() -> None:
    waiters: Waiters[str] = Waiters(CLIENT)
    correlation, _ = waiters.register()
    waiters.give_up(correlation)
    assert waiters.answer(correlation, "one") is Heard.LATE
    assert len(waiters) == 0


async def test_a_reply_between_timeout_and_giving_up_is_late_and_wakes_nobody() -> None:
    waiters: Waiters[str] = Waiters(CLIENT)
    correlation, future = waiters.register()
    future.cancel()
    assert waiters.answer(correlation, "one") is Heard.LATE


@pytest.mark.parametrize("correlation", [None, b"", b"client-2" + bytes(8), CLIENT + b"\xff" * 8, b"x" * 300])
async def test_a_reply_to_nobody_here_is_orphaned(correlation: bytes | None) -> None:
    waiters: Waiters[str] = Waiters(CLIENT)
    waiters.register()
    assert waiters.answer(correlation, "one") is Heard.ORPHANED
    assert len(waiters) == 1


async def test_correlation_ids_are_16_bytes_and_never_the_same() -> None:
    waiters: Waiters[str] = Waiters(CLIENT)
    ids = {waiters.register()[0] for _ in range(1_000)}
    assert len(ids) == 1_000
    assert {len(correlation) for correlation in ids} == {16}


async def test_what_is_remembered_of_ended_calls_is_bounded() -> None:
    waiters: Waiters[str] = Waiters(CLIENT, remembered=2)
    ended = []
    for _ in range(3):
        correlation, _ = waiters.register()
        waiters.answer(correlation, "one")
        ended.append(correlation)
    assert [waiters.answer(correlation, "again") for correlation in ended] == [
        Heard.ORPHANED,
        Heard.DUPLICATE,
        Heard.DUPLICATE,
    ]


async def test_more_calls_than_the_bound_are_refused() -> None:
    waiters: Waiters[str] = Waiters(CLIENT, limit=2)
    waiters.register()
    correlation, _ = waiters.register()
    with pytest.raises(ServiceError, match="too many"):
        waiters.register()
    waiters.answer(correlation, "one")
    waiters.register()


async def test_all_callers_hear_of_a_failure() -> None:
    waiters: Waiters[str] = Waiters(CLIENT)
    futures = [waiters.register()[1] for _ in range(3)]
    waiters.fail_all(ServiceError("gone"))
    heard = await asyncio.gather(*futures, return_exceptions=True)
    assert all(isinstance(error, ServiceError) for error in heard)
    assert len(waiters) == 0
