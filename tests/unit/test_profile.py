"""Rows as they are stored."""

import numpy as np
import pytest

from assay.schemas.errors import ChangelogError
from assay.tables.profile import LAYOUT_VERSION, NO_SOURCE_OFFSET, ROW, ROW_BYTES, gather, new_row, new_rows


def test_rows_are_gathered_in_order_and_unknown_users_are_new() -> None:
    stored = new_rows(1)
    stored["attempts"] = 3
    rows = gather([None, stored.tobytes(), None])
    assert rows["attempts"].tolist() == [0, 3, 0]
    assert rows["layout"].tolist() == [LAYOUT_VERSION] * 3
    assert rows["last_offset"].tolist() == [NO_SOURCE_OFFSET] * 3
    assert rows.tobytes() == new_rows(1).tobytes() + stored.tobytes() + new_rows(1).tobytes()


def test_gathered_rows_are_a_copy_that_may_be_written() -> None:
    value = new_row().tobytes()
    gather([value])["attempts"] = 9
    assert value == new_row().tobytes()


def test_nothing_is_gathered_from_nothing() -> None:
    assert gather([]).shape == (0,)


def size_of_fields(kind: np.dtype) -> int:
    """Bytes that have a name, nested fields included."""
    if kind.fields is None:
        return kind.itemsize
    return sum(size_of_fields(field[0]) for field in kind.fields.values())


def test_every_field_is_aligned_and_every_byte_has_a_name() -> None:
    assert ROW.isalignedstruct
    assert size_of_fields(ROW) == ROW_BYTES


def test_a_row_of_another_size_or_layout_is_refused() -> None:
    with pytest.raises(ChangelogError, match=f"expected: {ROW_BYTES} bytes.*got: 12 bytes"):
        gather([None, b"123456789012"])
    other = new_rows(1)
    other["layout"] = LAYOUT_VERSION + 1
    with pytest.raises(ChangelogError, match=f"got: layout {LAYOUT_VERSION + 1}"):
        gather([other.tobytes()])
