"""Rows on their way: the newest is what is folded next, each micro-batch keeps its own, and the disk has what was said."""

from pathlib import Path

import numpy as np
import pytest

from assay.tables.profile import ROW_BYTES, new_row
from assay.tables.store import RowStore
from assay.tables.working_rows import UserKey, WorkingRows

A, B = UserKey(0, b"a"), UserKey(1, b"b")


@pytest.fixture
def store(tmp_path: Path):
    store = RowStore(tmp_path, ROW_BYTES)
    yield store
    store.close()


def attempt(rows: WorkingRows, *users: UserKey):
    """Gather, count one attempt for each user, and take note."""
    gathered = rows.gather(users)
    for slot in gathered.slots:
        gathered.rows[slot]["attempts"] += 1
        gathered.rows[slot]["last_offset"] += 1
    return rows.folded(gathered, np.ones(len(users), bool))


def attempts(rows: WorkingRows, user: UserKey) -> int:
    return int(rows.gather([user]).rows[0]["attempts"])


def test_a_user_never_seen_has_a_new_row(store):
    assert WorkingRows(store).gather([A]).rows[0].tobytes() == new_row().tobytes()


def test_the_next_micro_batch_sees_rows_that_are_not_durable_yet(store):
    rows = WorkingRows(store)
    attempt(rows, A, A, B)
    assert (attempts(rows, A), attempts(rows, B)) == (2, 1)


def test_i3_a_row_never_carries_folds_of_a_later_micro_batch(store):
    rows = WorkingRows(store)
    first = attempt(rows, A)
    attempt(rows, A)
    store.write(0, {b"a": first[0][b"a"].row}, 7)
    rows.durable([first])
    rows.clear()
    assert attempts(rows, A) == 1


def test_rows_in_flight_are_never_forgotten_for_want_of_room(store):
    rows = WorkingRows(store, max_rows=1)
    first = attempt(rows, A)
    second = attempt(rows, B)
    rows.durable([second])
    assert attempts(rows, A) == 1, "A is not on disk: it must still be here"
    store.write(0, {b"a": first[0][b"a"].row}, 0)
    store.write(1, {b"b": second[1][b"b"].row}, 0)
    rows.durable([first])
    assert (attempts(rows, A), attempts(rows, B)) == (1, 1)


def test_only_folded_rows_are_to_be_written(store):
    rows = WorkingRows(store)
    gathered = rows.gather([A, B])
    assert rows.folded(gathered, np.array([False, True])).keys() == {1}
