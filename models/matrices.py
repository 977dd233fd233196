"""What XGBoost grows trees on, made from pieces: binned, two bytes a value, and on disk where that is much."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

MOST_IN_MEMORY = 1_000_000  # rows, 270 MB; more are binned into files. The trees are the same.

Piece = tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_], npt.NDArray[np.float32]]  # rows (k, F), labels, weights
Again = Callable[[], Iterable[Piece]]


class _Pieces(xgboost.DataIter):
    def __init__(self, again: Again, pages: str | None) -> None:
        self._again = again
        self._source: Iterator[Piece] = iter(())
        super().__init__(cache_prefix=pages)

    def reset(self) -> None:
        self._source = iter(self._again())

    def next(self, input_data: Callable[..., Any]) -> bool:
        for rows, labels, weights in self._source:
            if len(rows):
                input_data(data=rows, label=labels, weight=weights)
                return True
        return False


@contextmanager
def binned(
    again: Again, rows: int, max_bin: int, nthread: int, ref: xgboost.DMatrix | None = None
) -> Iterator[xgboost.DMatrix]:
    """The matrix of so many rows in pieces, for as long as the block runs.

    `again`: gives the pieces from the first, as often as asked. `ref`: the matrix whose bins to take.
    """
    options = {"max_bin": max_bin, "nthread": nthread, "ref": ref}
    if rows <= MOST_IN_MEMORY:
        yield xgboost.QuantileDMatrix(_Pieces(again, None), **options)
        return
    with TemporaryDirectory(prefix="assay-bins-", ignore_cleanup_errors=True) as folder:
        yield xgboost.ExtMemQuantileDMatrix(_Pieces(again, str(Path(folder) / "pages")), **options)
