"""What keeps overlapping micro-batches in order, and what may be committed."""

import asyncio

import pytest

from assay.agents.flow import Acknowledgements, Continuity, Turns
from assay.schemas.errors import ContinuityError
from assay.tables.partition_state import Earlier

EARLIER = Earlier(offset=3, appended_ms=0)


class Record:
    def __init__(self, offset: int) -> None:
        self.offset = offset


def fetch(*offsets: int) -> list[Record]:
    return [Record(offset) for offset in offsets]


async def test_i3_turns_come_in_the_order_of_their_numbers_whoever_asks_first():
    turns, order = Turns(), []

    async def ask(number: int, delay: float) -> None:
        await asyncio.sleep(delay)
        async with turns.turn(number):
            await asyncio.sleep(0.001)
            order.append(number)

    await asyncio.gather(ask(2, 0), ask(0, 0.01), ask(1, 0.002), ask(3, 0.03))
    assert order == [0, 1, 2, 3]


async def test_i3_nothing_follows_a_turn_that_failed():
    turns = Turns()

    async def take(number: int, error: Exception | None = None) -> None:
        async with turns.turn(number):
            if error:
                raise error

    with pytest.raises(OSError, match="broken"):
        await take(0, OSError("broken"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(take(1), 0.02)


def test_i1_an_open_record_holds_back_what_may_be_committed():
    acknowledgements = Acknowledgements()
    acknowledgements.begin({0: 5})
    acknowledgements.open(0, 7, EARLIER)
    acknowledgements.open(0, 9, EARLIER)
    assert acknowledgements.reached(0, 20) == 7
    assert acknowledgements.close(0, 7) == 9
    assert acknowledgements.reached(0, 25) == 9
    assert acknowledgements.close(0, 9) == 25


def test_i1_a_record_answered_before_its_micro_batch_is_durable_commits_nothing_new():
    acknowledgements = Acknowledgements()
    acknowledgements.begin({0: 5})
    acknowledgements.open(0, 7, EARLIER)
    assert acknowledgements.close(0, 7) == 5


def test_i1_what_was_open_is_forgotten_when_partitions_change_hands():
    acknowledgements = Acknowledgements()
    acknowledgements.begin({0: 5})
    acknowledgements.open(0, 7, EARLIER)
    acknowledgements.begin({0: 6})
    assert acknowledgements.reached(0, 9) == 9


async def nothing_there(partition: int, first: int, end: int) -> bool:
    return False


async def records_there(partition: int, first: int, end: int) -> bool:
    return True


async def test_batches_that_follow_each_other_pass_the_check_of_continuity():
    continuity = Continuity(records_there)
    continuity.begin({0: 5, 1: 0})
    await continuity.check(0, fetch(5, 6))
    await continuity.check(1, fetch(0))
    await continuity.check(0, fetch(7))


async def test_offsets_without_records_are_no_loss():
    continuity = Continuity(nothing_there)
    continuity.begin({0: 5})
    await continuity.check(0, fetch(5, 6))
    await continuity.check(0, fetch(8))


async def test_i1_missing_records_are_an_error():
    continuity = Continuity(records_there)
    continuity.begin({0: 5})
    await continuity.check(0, fetch(5, 6))
    with pytest.raises(ContinuityError, match="offset 7"):
        await continuity.check(0, fetch(8))


async def test_i1_records_that_come_twice_are_an_error():
    continuity = Continuity(nothing_there)
    continuity.begin({0: 5})
    await continuity.check(0, fetch(5, 6))
    with pytest.raises(ContinuityError, match="offset 7"):
        await continuity.check(0, fetch(6))


async def test_i1_a_partition_that_is_not_ours_is_an_error():
    with pytest.raises(ContinuityError, match="not ours"):
        await Continuity(nothing_there).check(3, fetch(0))
