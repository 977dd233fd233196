"""Rows on disk: what grows with a history does not fill the memory."""

from tempfile import TemporaryFile
from typing import Any

import numpy as np
import numpy.typing as npt

BLOCK = 8_192  # rows read at a time

Rows = npt.NDArray[Any]


class Spilled:
    """Rows of one type, added at the end and read by number, in a file that has no name and goes when this does.

    What is read is a copy. As of an array: `rows[3:5]`, `rows[numbers]` with int64 (m,), and `rows["name"]`, a whole column.

    >>> rows = Spilled(np.dtype([("a", "<i4"), ("b", "<f4")]))
    >>> rows.append(np.array([(1, 0.5), (2, 1.5), (3, 2.5)], rows.dtype))
    >>> len(rows), rows[1:3]["a"].tolist(), rows[np.array([2, 0])]["b"].tolist(), rows["a"].tolist()
    (3, [2, 3], [2.5, 0.5], [1, 2, 3])
    """

    def __init__(self, dtype: np.dtype[Any], width: int | None = None) -> None:
        """width: of rows that are arrays of so many values; None: each row is one value."""
        self.dtype, self._shape = dtype, () if width is None else (width,)
        self._values = width or 1  # of a row
        self._file = TemporaryFile(prefix="assay-", buffering=0)  # noqa: SIM115  # it lives as long as this
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, rows: Rows) -> None:
        """Add rows (m,) or (m, width) of the type."""
        self._file.seek(0, 2)
        np.ascontiguousarray(rows, self.dtype).tofile(self._file)
        self._count += len(rows)

    def __getitem__(self, which: slice | Rows | str) -> Rows:
        if isinstance(which, str):
            return self._column(which)
        if isinstance(which, slice):
            start, stop, _ = which.indices(self._count)
            return self._read(start, stop)
        return self._pick(which)

    def _read(self, start: int, stop: int) -> Rows:
        size = self.dtype.itemsize * self._values
        self._file.seek(start * size)
        count = max(0, stop - start) * self._values
        return np.fromfile(self._file, self.dtype, count).reshape(-1, *self._shape)

    def _column(self, name: str) -> Rows:
        column = np.empty(self._count, self.dtype[name])
        for start in range(0, self._count, BLOCK):
            column[start : start + BLOCK] = self._read(start, min(start + BLOCK, self._count))[name]
        return column

    def _pick(self, numbers: Rows) -> Rows:
        picked = np.empty((len(numbers), *self._shape), self.dtype)
        blocks = numbers // BLOCK
        order = np.argsort(blocks, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(blocks[order])) + 1):
            if len(places):  # those that lie in one block
                low, high = int(numbers[places].min()), int(numbers[places].max())
                picked[places] = self._read(low, high + 1)[numbers[places] - low]
        return picked
