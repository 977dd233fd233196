"""What a call of the Redis function says, and which of its answers can be read."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.tables.entity_call import EMPTY_ROW, NEW_ROW, observed
from assay.tables.entity_layout import BACK, CROWDS, MAX_RECORDS, PEOPLE, TAIL
from assay.tables.entity_rows import RINGS, TILE_BYTES
from assay.tables.entity_state import State
from assay.tables.events import EVENT, Events
from assay.tables.keyspace import Keyspace

BEFORE = bytes(8)  # the offset of one partition


def payments(count: int = 1) -> Events:
    events = np.zeros(count, EVENT)
    events["offset"], events["time_ms"], events["merchant"], events["user"] = np.arange(count) + 1, 1_760_000_000_000, 7, 1
    return events


def test_a_row_that_is_not_there_is_begun() -> None:
    answer = observed(payments(), np.zeros(1, np.int64), Keyspace("x", "", 1)).read([NEW_ROW])
    assert answer is not None
    assert answer[1].tolist() == [[0, 0, 1, 0, 0]]


def test_offsets_that_were_applied_before_are_read_and_not_folded_again() -> None:
    before = np.array([2.0]).tobytes()
    answer = observed(payments(3), np.zeros(3, np.int64), Keyspace("x", "", 1)).read([[before, [None], 0]])
    assert answer is not None
    assert answer[1][:, 2].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    "reply",
    [
        *(None, 7, b"", [], [BEFORE], [BEFORE, [None]], [BEFORE, b"", 0], [b"", [None], 0], [BEFORE, [], 0]),
        *([BEFORE, [None, None], 0], [BEFORE, [None], b""]),
    ],
)
def test_an_answer_that_is_none_is_not_read(reply: Any) -> None:
    assert observed(payments(), np.zeros(1, np.int64), Keyspace("x", "", 1)).read([reply]) is None


def test_a_row_that_is_none_is_emptied_and_costs_nobody_an_answer() -> None:
    batch = observed(payments(), np.zeros(1, np.int64), Keyspace("x", "", 1))
    answer = batch.read([[BEFORE, [b"not a row"], 0]])
    assert answer is not None
    assert answer[1].tolist() == [[0, 0, 1, 0, 0]]
    [call] = batch.calls
    assert call.unreadable == 1
    assert call.compaction is not None
    assert bytes(call.compaction.parts[1]).endswith(b"not a row" * 2 + EMPTY_ROW)


drawn_rows = st.tuples(
    st.binary(min_size=16, max_size=16),
    st.tuples(*[st.integers(0, 70)] * RINGS),
    st.tuples(*[st.integers(0, 300)] * len(CROWDS)),
    st.integers(0, 3),
    st.one_of(st.just(0), st.integers(-200, 200)),
    st.one_of(st.just(0), st.integers(-200, 200)),
)


def row_of(start: bytes, tiles: tuple[int, ...], people: tuple[int, ...], tail: int, more: int, claimed: int) -> bytes:
    """A row whose base says it has so many older tiles and people; with a tail; so many bytes longer, and claimed longer."""
    header = start + b"".join(np.array([9, 9, 9, older, 0, 0], "<u4").tobytes() for older in tiles)
    body = bytes(TILE_BYTES * sum(tiles) + 5 * sum(people))
    base = header + np.array([*people, 0], "<u2").tobytes() + body + bytes(-len(body) % 8)
    row = np.array([len(base) + claimed, 0]).astype("<u4").tobytes() + base + bytes(TAIL.itemsize * tail)
    return row + bytes(more) if more >= 0 else row[:more]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.none(), drawn_rows), min_size=1, max_size=4))
def test_whatever_a_row_says_of_itself_it_is_read_in_its_bounds_or_refused(drawn: list[Any]) -> None:
    state = State.of_rows([None if row is None else row_of(*row) for row in drawn], np.zeros(len(drawn), np.uint8))
    fits = [row is None or (max(row[2]) <= PEOPLE and (np.array(row[1]) <= BACK).all()) for row in drawn]
    if all(fits) and all(row is None or (row[4] == row[5] == 0) for row in drawn):
        assert state is not None
    if state is not None:
        assert (state.slots["tiles_at"] + state.slots["tiles_room"]).max() <= len(state._tiles)
        assert (state.slots["crowd_at"] + state.slots["crowd_room"]).max() <= len(state._people)


def test_more_than_a_call_takes_is_refused() -> None:
    with pytest.raises(ValueError, match=f"{MAX_RECORDS}"):
        observed(payments(MAX_RECORDS + 1), np.zeros(MAX_RECORDS + 1, np.int64), Keyspace("x", "", 1))
