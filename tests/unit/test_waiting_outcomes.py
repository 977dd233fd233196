"""Outcomes that wait: every partition has its turn."""

from collections.abc import Collection
from itertools import pairwise

from faust.types import TP

from assay.agents.waiting_outcomes import Waiting, WaitingOutcomes
from assay.schemas.limits import OUTCOME_PATIENCE_S

from .learner_stand import Clock, fetched

MOST = 4


def waiting(partitions: int, each: int) -> WaitingOutcomes:
    found = WaitingOutcomes(Clock(), Clock(), OUTCOME_PATIENCE_S)
    for partition in range(partitions):
        more(found, partition, each)
    return found


def more(found: WaitingOutcomes, partition: int, count: int, first: int = 0) -> None:
    message = fetched([None] * count, partition, first)
    found.add(message.tp, message.value)


def served(batch: list[Waiting]) -> set[int]:
    return {each.tp.partition for each in batch}


def batch_of(found: WaitingOutcomes, held: Collection[TP] = ()) -> list[Waiting]:
    batch = found.next(MOST, held)
    found.done(batch)
    return batch


def test_under_steady_overload_each_partition_has_its_turn() -> None:
    found = waiting(3, 2 * MOST)
    turns = []
    for turn in range(9):
        [partition] = served(batch_of(found))
        more(found, partition, MOST, first=(2 + turn) * MOST)
        turns.append(partition)
    assert turns == [0, 1, 2] * 3


def test_those_of_a_partition_stay_in_their_order() -> None:
    found = waiting(3, 3 * MOST)
    offsets: dict[int, list[int]] = {}
    while batch := batch_of(found):
        for each in batch:
            offsets.setdefault(each.tp.partition, []).append(each.offset)
    assert offsets == {partition: list(range(3 * MOST)) for partition in range(3)}


def test_a_partition_of_which_nothing_could_be_finished_stays_first() -> None:
    found = waiting(2, 2 * MOST)
    assert all(one == other for one, other in pairwise(found.next(MOST, ()) for _ in range(3)))


def test_a_partition_that_is_held_is_passed_over_and_keeps_its_turn() -> None:
    found = waiting(3, 2 * MOST)
    assert [served(batch_of(found, {TP("outcomes", 0)})) for _ in range(2)] == [{1}, {2}]
    assert served(batch_of(found)) == {0}
