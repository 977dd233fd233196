"""Rows of earlier layouts become rows of this one; what can't be read is refused with the way out."""

from pathlib import Path

import numpy as np
import pytest

from assay.schemas.errors import ChangelogError
from assay.tables.layouts import LAYOUTS, Layout, Layouts
from assay.tables.profile import LAYOUT_VERSION, ROW_BYTES, gather, new_row, new_rows
from assay.tables.store import RowStore

NARROW = np.dtype([("layout", "<i8"), ("last_offset", "<i8"), ("attempts", "<i8")])  # made up: no such layout was ever written


def widen(row: bytes) -> bytes:
    """From the made-up layout 0 to layout 1."""
    [old], new = np.frombuffer(row, NARROW), new_rows(1)
    new["last_offset"], new["attempts"] = old["last_offset"], old["attempts"]
    return new.tobytes()


def double(row: bytes) -> bytes:
    """From the made-up layout -1 to layout 0."""
    return row_of(0, last_offset=int.from_bytes(row[8:], "little"), attempts=0)


def row_of(layout: int, last_offset: int = 7, attempts: int = 3) -> bytes:
    return np.array([(layout, last_offset, attempts)], NARROW).tobytes()


WITH_EARLIER = Layouts({-1: Layout(16, double), 0: Layout(NARROW.itemsize, widen), 1: Layout(ROW_BYTES)})


def test_a_row_of_the_current_layout_is_left_as_it_is() -> None:
    row = new_row().tobytes()
    assert LAYOUTS.current(row) is row


def test_a_row_of_an_earlier_layout_migrates_forward() -> None:
    [row] = gather([WITH_EARLIER.current(row_of(0))])
    assert (row["layout"], row["last_offset"], row["attempts"]) == (1, 7, 3)


def test_a_row_that_is_several_layouts_behind_takes_every_step() -> None:
    oldest = (-1).to_bytes(8, "little", signed=True) + (41).to_bytes(8, "little")
    [row] = gather([WITH_EARLIER.current(oldest)])
    assert (row["layout"], row["last_offset"]) == (1, 41)


@pytest.mark.parametrize(
    ("row", "got"),
    [
        (row_of(2), "24 bytes of layout 2"),
        (new_rows(1).tobytes().replace(b"\1", b"\2", 1), f"{ROW_BYTES} bytes of layout {LAYOUT_VERSION + 1}"),
        (row_of(0) + b"x", "25 bytes of layout 0"),
        (new_row().tobytes()[:-1], f"{ROW_BYTES - 1} bytes of layout {LAYOUT_VERSION}"),
        (b"short", "5 bytes"),
        (b"", "0 bytes"),
    ],
    ids=["newer and foreign", "newer", "earlier but wider", "narrower", "no row", "empty"],
)
def test_a_newer_layout_or_a_foreign_width_is_refused_with_the_way_out(row: bytes, got: str) -> None:
    with pytest.raises(ChangelogError, match=f"expected: {ROW_BYTES} bytes of layout 1 or 24.*; got: {got}.*`assay rebuild`"):
        WITH_EARLIER.current(row)


def test_rows_of_an_earlier_layout_migrate_on_their_way_from_the_changelog(tmp_path: Path) -> None:
    store = RowStore(tmp_path, ROW_BYTES, WITH_EARLIER.current)
    store.apply(0, [(b"a", row_of(0, attempts=5))], 0)
    store.close()
    of_today = RowStore(tmp_path, ROW_BYTES, LAYOUTS.current)
    assert gather(of_today.get(0, [b"a"]))["attempts"] == 5
    of_today.close()


def test_rows_of_an_earlier_layout_migrate_on_their_way_from_disk(tmp_path: Path) -> None:
    of_yesterday = RowStore(tmp_path, NARROW.itemsize)
    of_yesterday.apply(0, [(b"a", row_of(0, attempts=5))], 0)
    of_yesterday.close()
    store = RowStore(tmp_path, ROW_BYTES, WITH_EARLIER.current)
    assert gather(store.get(0, [b"a"]))["attempts"] == 5
    store.close()


def test_an_upgrade_that_makes_no_row_of_the_next_layout_is_a_fault_of_ours() -> None:
    with pytest.raises(ValueError, match="the upgrade of layout 0 makes rows of layout 5"):
        Layouts({0: Layout(24, lambda row: row_of(5)), 1: Layout(24)}).current(row_of(0))
