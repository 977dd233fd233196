"""The order in which Redis counted observations, from what evidence says; and that what can't have been is told."""

import numpy as np
import pytest

from assay.agents.observation_order import UNKNOWN, Order, logged_order


def order_of(numbers: list[int]) -> Order:
    """Of one entity, by append time."""
    return logged_order(np.full(len(numbers), 7, np.uint64), np.array(numbers), np.arange(len(numbers)))


def miscounts(numbers: list[int]) -> list[tuple[int, int, int]]:
    return [(each.position, each.number, each.expected) for each in order_of(numbers).miscounts]


def test_numbers_that_begin_again_are_another_life_of_the_entity() -> None:
    order = order_of([2, 1, 1, 3, 2])
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


def test_an_older_entity_that_was_forgotten_is_none() -> None:
    assert miscounts([1001, 1002, 1003, 1, 2]) == []


def test_a_forgotten_entity_of_which_redis_learnt_later_is_none() -> None:
    assert miscounts([1, 2, 3, 4, UNKNOWN, UNKNOWN, 3, 4]) == []


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


def ended_and_asked_again(generator: np.random.Generator) -> list[int]:
    """Numbers by append time where workers end and ask again, numbers are lost, and partitions are not in step."""
    numbers: list[int] = []
    counted = 0
    while len(numbers) < 40:
        batch = int(generator.integers(1, 5))
        own = list(range(counted + 1, counted + batch + 1))
        counted += batch
        if generator.random() < 0.3:  # all was counted when the worker ended; it asks again, some at a time
            others = int(generator.integers(0, 3))
            numbers += [counted + others] * batch
            numbers += range(counted + 1, counted + others + 1)
            counted += others
        else:
            numbers += [UNKNOWN if generator.random() < 0.1 else number for number in own]
    for i in range(0, len(numbers) - 3, 3):
        numbers[i : i + 3] = [numbers[i + int(each)] for each in generator.permutation(3)]
    return numbers


@pytest.mark.parametrize("seed", range(100))
def test_what_a_correct_redis_may_tell_is_no_miscount(seed: int) -> None:
    numbers = ended_and_asked_again(np.random.default_rng(seed))
    order = order_of(numbers)
    assert (sorted(order.positions.tolist()), order.miscounts) == (list(range(len(numbers))), []), numbers
