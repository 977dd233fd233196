"""The order in which Redis counted observations, from what evidence says; and that what can't have been is told."""

from collections.abc import Sequence

import numpy as np
import pytest

from assay.agents.observation_order import UNKNOWN, Order, logged_order
from assay.tables.entity_layout import KEPT_S


def order_of(numbers: list[int], partitions: Sequence[int] | None = None, unseen_before: int = -1) -> Order:
    """Of one entity, by append time; each of a partition of its own, unless told otherwise.

    unseen_before: a place before which it was not seen for so long that Redis forgets it.
    """
    n = len(numbers)
    appended_ms = np.arange(n)
    if unseen_before >= 0:
        appended_ms[unseen_before:] += KEPT_S * 1000
    return logged_order(
        np.full(n, 7, np.uint64), np.array(numbers), appended_ms, np.arange(n) if partitions is None else np.array(partitions)
    )


def miscounts(numbers: list[int], unseen_before: int = -1) -> list[tuple[int, int, int]]:
    found = order_of(numbers, unseen_before=unseen_before).miscounts
    return [(each.position, each.number, each.expected) for each in found]


def test_numbers_that_begin_again_are_another_life_of_the_entity() -> None:
    order = order_of([2, 1, 1, 3, 2], unseen_before=2)
    assert (order.positions.tolist(), order.miscounts) == ([1, 0, 2, 4, 3], [])


def test_what_has_no_number_takes_the_one_that_nobody_has() -> None:
    order = order_of([1, 3, UNKNOWN])
    assert (order.positions.tolist(), order.miscounts) == ([0, 2, 1], [])


def test_i4_a_number_that_nobody_can_have_is_a_miscount() -> None:
    assert miscounts([1, 4, UNKNOWN]) == [(1, 4, 3)]


def test_i4_each_number_that_nobody_can_have_is_told_once() -> None:
    assert miscounts([1, 3, 4, 6, 7]) == [(1, 3, 2), (3, 6, 5)]


def test_i4_a_number_that_is_counted_again_is_a_miscount() -> None:
    assert miscounts([1, 2, 3, 3, 4]) == [(3, 3, 4)]


def test_i4_a_row_that_went_back_is_a_miscount() -> None:
    assert miscounts([1, 2, 3, 4, 2, 3, 4]) == [(4, 2, 5)]


def test_an_entity_that_is_older_than_the_run_is_none() -> None:
    assert miscounts([1001, 1002, UNKNOWN, 1004]) == []


def test_i4_a_miscount_of_an_older_entity_is_told() -> None:
    assert miscounts([1001, 1002, 1004]) == [(2, 1004, 1003)]


def test_an_older_entity_whose_row_was_made_anew_from_the_topic_goes_on_in_order() -> None:
    order = order_of([1001, 1002, 1003, 4, 5])
    assert (order.positions.tolist(), order.miscounts) == ([0, 1, 2, 3, 4], [])


@pytest.mark.parametrize("numbers", [[1, 2, 3, 4, 5, 1, 2, 8, 9], [1, 2, 3, 1, UNKNOWN, 6]])
def test_what_was_made_anew_from_the_topic_after_a_loss_is_no_second_one(numbers: list[int]) -> None:
    [(_, number, _)] = miscounts(numbers)
    assert number == 1


def test_an_entity_that_was_forgotten_is_none() -> None:
    assert miscounts([1001, 1002, 1003, 1, 2], unseen_before=3) == []
    assert miscounts([1, 2, 3, 1, 2], unseen_before=3) == []


def test_what_redis_may_never_have_heard_of_keeps_no_entity_from_being_forgotten() -> None:
    days = np.array([0, 1, 25, 45]) * 86_400_000
    order = logged_order(np.full(4, 7, np.uint64), np.array([1, 2, UNKNOWN, 1]), days, np.arange(4))
    assert order.miscounts == []


@pytest.mark.parametrize("numbers", [[1001, 1002, 1003, 1, 2], [1, 2, 3, 1, 2], [1, 2, UNKNOWN, 1]])
def test_i4_one_that_begins_again_before_it_could_be_forgotten_is_lost(numbers: list[int]) -> None:
    [(position, number, expected)] = miscounts(numbers)
    assert (numbers[position], number, expected) == (1, 1, 4)


def test_a_forgotten_entity_of_which_redis_learnt_later_is_none() -> None:
    assert miscounts([1, 2, 3, 4, UNKNOWN, UNKNOWN, 3, 4], unseen_before=4) == []


def test_what_is_asked_for_again_reads_what_the_owner_of_its_number_does() -> None:
    """The second and the third were counted, and then a worker ended; its successor asked again, and read both as counted."""
    order = order_of([1, 3, 3, 4])
    assert (order.positions.tolist(), order.read_at.tolist(), order.miscounts) == ([0, 1, 2, 3], [0, 2, 2, 3], [])


def test_what_is_asked_for_again_at_the_beginning_is_no_miscount() -> None:
    assert miscounts([2, 2, 3]) == []


def test_what_is_asked_for_again_after_others_is_no_miscount() -> None:
    assert miscounts([1, 5, 5, 4, 5]) == []


def test_what_redis_never_learnt_of_is_no_miscount() -> None:
    assert miscounts([1, UNKNOWN, 2, 4, 4]) == []


def test_of_two_without_numbers_nobody_knows_which_was_counted_first() -> None:
    assert order_of([1, UNKNOWN, UNKNOWN, 3, 5, 6]).certain.tolist() == [True, False, False, False, True, True]


def test_what_a_partition_has_before_another_was_counted_before_it() -> None:
    order = order_of([1, UNKNOWN, 3, UNKNOWN, 5], [0, 1, 1, 0, 0])
    assert order.certain.tolist() == [True, False, True, False, True]


class Course:
    """What a correct Redis may tell of one entity: workers end and ask again, numbers are lost, partitions are not in step.

    Of each observation, in the order in which Redis counted them: which number it read; its own is its place, from 1.
    """

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.numbers: list[int] = []
        self.partitions: list[int] = []
        while len(self.numbers) < 40:
            batch, others = self.generator.integers((1, 0), (5, 3)).tolist()
            ended = self.generator.random() < 0.3  # when all was counted; it asks again after others were counted
            counted = len(self.numbers)
            read = [counted + batch + others if ended else counted + i + 1 for i in range(batch)]
            self._count([number if self.generator.random() < 0.9 else UNKNOWN for number in read], [0, 1])
            if ended:
                self._count([counted + batch + i + 1 for i in range(others)], [2])

    def _count(self, numbers: list[int], partitions: list[int]) -> None:
        self.numbers += numbers
        self.partitions += self.generator.choice(partitions, len(numbers)).tolist()

    def by_append_time(self) -> list[int]:
        """Which observations, as partitions were appended to: a little ahead of each other, and each in its order."""
        ahead = 6 * self.generator.random(3)
        times = [i + ahead[partition] for i, partition in enumerate(self.partitions)]
        return [int(i) for i in np.argsort(times, kind="stable")]


@pytest.mark.parametrize("seed", range(200))
def test_what_a_correct_redis_may_tell_is_no_miscount_and_what_is_certain_is_so(seed: int) -> None:
    course = Course(seed)
    own = course.by_append_time()
    numbers = [course.numbers[i] for i in own]
    order = order_of(numbers, [course.partitions[i] for i in own])
    assert (sorted(order.positions.tolist()), order.miscounts) == (list(range(len(own))), [])
    for position, at, certain in zip(order.positions.tolist(), order.read_at.tolist(), order.certain.tolist(), strict=True):
        if certain:
            counted = {own[each] for each in order.positions[: at + 1].tolist()}
            assert counted == set(range(numbers[position]))
