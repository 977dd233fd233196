"""What XGBoost grows trees on, made from pieces: binned, two bytes a value, and on disk where that is much."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

MOST_IN_MEMORY = 250_000  # rows, 70 MB and as much again while they are made; more are binned into files, to the same trees

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


def binned(
    again: Again, rows: int, folder: str, *, max_bin: int, nthread: int, ref: xgboost.DMatrix | None = None
) -> xgboost.DMatrix:
    """The matrix of so many rows in pieces; its files, if any, lie in `folder`, and go with it.

    `again`: gives the pieces from the first, as often as asked. `ref`: the matrix whose bins to take.
    """
    options = {"max_bin": max_bin, "nthread": nthread, "ref": ref}
    if rows <= MOST_IN_MEMORY:
        return xgboost.QuantileDMatrix(_Pieces(again, None), **options)
    return xgboost.ExtMemQuantileDMatrix(_Pieces(again, str(Path(folder) / "pages")), **options)
