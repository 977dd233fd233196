"""Rows on disk: with the changelog offset that they reflect, whatever happens in between."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.schemas.errors import ChangelogError
from assay.tables.changelog import REBUILD_BEGUN_KEY, REBUILD_DONE_KEY, OnDisk
from assay.tables.store import RowStore

A, B = b"user a", b"user b"
ROW, OTHER, FOREIGN = b"row1", b"row2", b"a row of another width"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RowStore]:
    store = RowStore(tmp_path, row_bytes=4)
    yield store
    store.close()


def reopened(store: RowStore, folder: Path) -> RowStore:
    store.close()
    return RowStore(folder, row_bytes=4)


def test_rows_and_their_changelog_offset_survive_together(store: RowStore, tmp_path: Path) -> None:
    store.write(3, {A: ROW}, 41)
    again = reopened(store, tmp_path)
    assert (again.offset(3), again.get(3, [B, A])) == (41, [None, ROW])
    again.close()


def test_a_changelog_is_applied_with_its_deletions(store: RowStore) -> None:
    store.apply(0, [(A, ROW), (B, ROW), (A, None)], 2)
    assert (store.get(0, [A, B]), store.offset(0)) == ([None, ROW], 2)


def test_bookkeeping_is_of_any_width(store: RowStore) -> None:
    store.apply(0, [(b"\0assay-later", b"what a later version may keep")], 0)
    store.check(0)


def test_a_row_that_cannot_be_read_is_refused_with_the_way_out(store: RowStore) -> None:
    store.apply(0, [(A, FOREIGN), (B, ROW)], 9)
    with pytest.raises(ChangelogError, match=r"partition 0.*expected: 4 bytes; got: 22 bytes.*offset 10\).*`assay rebuild`"):
        store.check(0)


def test_a_row_that_cannot_be_read_is_come_back_to_by_whatever_version_runs_next(store: RowStore, tmp_path: Path) -> None:
    store.apply(0, [(B, ROW)], 3)
    store.apply(0, [(A, FOREIGN)], 9)
    store.apply(0, [(B, OTHER)], 12)
    assert store.offset(0) == 12, "what comes late is told by what was applied"
    again = reopened(store, tmp_path)
    assert again.offset(0) == 3
    again.close()


def test_a_rebuild_throws_away_what_came_before_it(store: RowStore, tmp_path: Path) -> None:
    store.apply(0, [(A, ROW), (B, ROW)], 1)
    store.apply(0, [(A, OTHER), (REBUILD_BEGUN_KEY, b"2 x"), (B, OTHER), (REBUILD_DONE_KEY, b"2 x")], 5)
    again = reopened(store, tmp_path)
    assert again.get(0, [A, B]) == [None, OTHER]
    assert again.on_disk(0) == OnDisk(offset=5, begun=b"2 x", done=b"2 x")
    again.close()


def test_a_rebuild_may_be_the_first_thing_that_is_read(store: RowStore) -> None:
    store.apply(0, [(REBUILD_BEGUN_KEY, b"0 x"), (A, ROW), (REBUILD_DONE_KEY, b"0 x")], 2)
    assert store.get(0, [A]) == [ROW]


def test_a_rebuild_is_the_way_out_of_a_row_that_cannot_be_read(store: RowStore) -> None:
    store.apply(0, [(A, FOREIGN)], 0)
    store.apply(0, [(REBUILD_BEGUN_KEY, b"1 x"), (A, ROW), (REBUILD_DONE_KEY, b"1 x")], 3)
    store.check(0)
    assert (store.get(0, [A]), store.offset(0)) == ([ROW], 3)


def test_the_topic_that_the_rows_are_from_is_kept_beside_them(store: RowStore, tmp_path: Path) -> None:
    assert store.on_disk(0) == OnDisk()
    store.belongs_to(0, "an id")
    store.apply(0, [(A, ROW)], 7)
    again = reopened(store, tmp_path)
    assert again.on_disk(0) == OnDisk(offset=7, changelog_id="an id")
    again.close()


def test_partitions_are_apart(store: RowStore) -> None:
    store.apply(0, [(A, ROW)], 1)
    store.apply(1, [(REBUILD_BEGUN_KEY, b"0 x")], 0)
    assert (store.get(0, [A]), store.get(1, [A])) == ([ROW], [None])
