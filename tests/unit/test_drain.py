"""Giving partitions up: drained and committed within the deadline, or the process ends; Faust would log it and go on."""

import asyncio
from types import SimpleNamespace

import pytest
from faust.types import TP

from assay.schemas.errors import DrainError
from assay.streams import transport
from assay.streams.transport import Consumer


class Ended(Exception):
    """The process would have ended."""


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    errors: list[BaseException] = []

    def end_process(reason: str, error: BaseException) -> None:
        errors.append(error)
        raise Ended

    monkeypatch.setattr(transport, "end_process", end_process)
    return errors


def consumer(drain, member: bool = True) -> SimpleNamespace:
    return SimpleNamespace(
        app=SimpleNamespace(waiting=SimpleNamespace(close=lambda: None), tables={}),
        drain_timeout_s=0.02,
        acknowledged={},
        finished={},
        is_member=lambda: member,
        _drain_and_commit=drain,
    )


async def test_a_drained_flow_goes_on(ended):
    async def drained() -> None:
        pass

    await Consumer.wait_empty(consumer(drained))
    assert ended == []


async def test_a_drain_that_takes_too_long_ends_the_process(ended):
    with pytest.raises(Ended):
        await Consumer.wait_empty(consumer(lambda: asyncio.sleep(3600)))
    assert isinstance(ended[0], DrainError)


async def test_a_drain_that_fails_ends_the_process_at_shutdown_too(ended):
    async def broken() -> None:
        raise OSError("no broker")

    with pytest.raises(Ended):
        await Consumer.wait_empty(consumer(broken))
    assert isinstance(ended[0], OSError)


async def test_who_slept_past_its_session_is_not_told_to_change_a_timeout(ended):
    with pytest.raises(Ended):
        await Consumer.wait_empty(consumer(lambda: asyncio.sleep(3600), member=False))
    assert "start it again" in ended[0].mend
    assert "ASSAY_DRAIN_TIMEOUT_S" not in ended[0].mend


async def test_who_is_no_member_gives_up_without_a_commit_and_goes_on(ended):
    async def commit() -> None:
        raise AssertionError("a commit of a former member counts for nothing")

    dropped = SimpleNamespace(
        drain=None, acknowledged={}, finished={TP("transactions", 0): 7}, is_member=lambda: False, commit=commit
    )
    await Consumer._drain_and_commit(dropped)
    assert ended == []
