"""A table in the order of a column of times, on disk: a history may be larger than the memory."""

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import numpy as np
import numpy.typing as npt
import polars as pl

WINDOW = 65_536  # rows in memory at once
SORTED_AT_ONCE = 524_288  # rows, of a table that is in another order
_FIRST = np.iinfo(np.int64).min  # what has no time stands before all that has one


class SortedRows:
    """The rows of a table by their time, ties in the table's own order.

    Args:
        table: read once, in pieces.
        time: its column of epoch milliseconds, Int64; null where there is none.
    """

    def __init__(self, table: pl.LazyFrame, time: str) -> None:
        self._folder = TemporaryDirectory(prefix="assay-history-")  # goes when the last who reads it does
        whole = Path(self._folder.name) / "whole.arrow"
        table.sink_ipc(whole, compression="uncompressed")
        self._rows = pl.scan_ipc(whole)
        key = pl.col(time).fill_null(_FIRST)
        times = self._rows.select(key).collect()[time]
        if not times.is_sorted():
            self._rows = self._sorted(key, np.sort(times.to_numpy()))
            whole.unlink()
        self._places: npt.NDArray[np.int64] | None = None
        self._count = len(times)
        self._begin, self._window = 0, pl.DataFrame()

    def _sorted(self, key: pl.Expr, times: npt.NDArray[np.int64]) -> pl.LazyFrame:
        """Part by part, each of about as many rows, between two times."""
        bounds = np.unique(times[::SORTED_AT_ONCE]).tolist()
        parts = []
        for number, (low, high) in enumerate(pairwise([*bounds, int(times[-1]) + 1])):
            parts.append(Path(self._folder.name) / f"part-{number:06d}.arrow")
            part = self._rows.filter(key.is_between(low, high, closed="left")).collect().sort(key, maintain_order=True)
            part.write_ipc(parts[-1], compression="uncompressed")
        return pl.scan_ipc(parts)

    def __len__(self) -> int:
        return self._count

    def part(self, start: int, stop: int) -> pl.DataFrame:
        """Rows start to stop; those before and after are cheap to read next."""
        if self._places is None:
            return self._read(start, min(stop, self._count))
        places = self._places[start:stop]
        if not len(places):
            return self._read(0, 0)
        low = int(places[0])
        return self._read(low, int(places[-1]) + 1)[places - low]

    def columns(self, *columns: str | pl.Expr) -> pl.DataFrame:
        """Some columns of all rows."""
        frame = self._rows.select(*columns).collect(engine="streaming")
        return frame if self._places is None else frame[self._places]

    def only(self, kept: npt.NDArray[np.bool_]) -> Self:
        """The same without some of the rows, bool (n,)."""
        less = object.__new__(type(self))
        less.__dict__ |= self.__dict__
        less._places = np.flatnonzero(kept) if self._places is None else self._places[kept]
        less._count = len(less._places)
        return less

    def _read(self, start: int, stop: int) -> pl.DataFrame:
        if start < self._begin or stop > self._begin + self._window.height or not self._window.width:
            self._window = self._rows.slice(start, max(WINDOW, stop - start)).collect()
            self._begin = start
        return self._window[start - self._begin : stop - self._begin]
