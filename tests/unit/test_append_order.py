"""Events of several partitions, merged in append order however they were read."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from assay.agents.append_order import AppendOrder
from assay.tables.events import EVENT, Events

Log = list[list[int]]  # by partition: append times in the order of the offsets

logs = st.lists(st.lists(st.integers(0, 20), max_size=30), min_size=1, max_size=4)


def events_of(times: list[int], first: int) -> Events:
    events = np.zeros(len(times), EVENT)
    events["offset"], events["appended_ms"] = np.arange(first, first + len(times)), times
    return events


def merged(log: Log, at_once: int) -> list[tuple[int, int]]:
    """(partition, offset) in the order in which they come."""
    order, read, out = AppendOrder(range(len(log))), [0] * len(log), []
    while not order.ended:
        partition = order.behind
        first = read[partition]
        times = log[partition][first : first + at_once]
        if times:
            order.give(partition, events_of(times, first), max(times))
            read[partition] += len(times)
        else:
            order.end(partition)
        events, partitions = order.take()
        out += zip(partitions.tolist(), events["offset"].tolist(), strict=True)
    return out


@given(logs, st.integers(1, 7))
def test_each_event_comes_once_and_a_partition_keeps_the_order_of_its_offsets(log: Log, at_once: int) -> None:
    out = merged(log, at_once)
    for partition, times in enumerate(log):
        assert [offset for number, offset in out if number == partition] == list(range(len(times)))


@given(logs, st.integers(1, 7))
def test_how_much_is_read_at_once_changes_nothing(log: Log, at_once: int) -> None:
    assert merged(log, at_once) == merged(log, 1_000)


@given(st.lists(st.lists(st.integers(0, 20), max_size=30).map(sorted), min_size=1, max_size=4), st.integers(1, 7))
def test_across_partitions_append_times_ascend(log: Log, at_once: int) -> None:
    times = [log[partition][offset] for partition, offset in merged(log, at_once)]
    assert times == sorted(times)


def test_nothing_comes_before_all_partitions_are_known_to_be_beyond_it() -> None:
    order = AppendOrder([0, 1])
    order.give(0, events_of([1, 5, 9], 0), 9)
    assert len(order.take()[0]) == 0
    order.give(1, events_of([2], 0), 5)
    assert order.take()[0]["appended_ms"].tolist() == [1, 2]
    order.end(1)
    assert order.take()[0]["appended_ms"].tolist() == [5]
    order.end(0)
    assert order.take()[0]["appended_ms"].tolist() == [9]
