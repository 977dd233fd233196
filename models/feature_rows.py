"""Some rows of a feature matrix, read in pieces: the matrix may lie on disk and be larger than the memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from assay.tables.features import FEATURES, Origin
from assay.tables.spilled import Spilled

AT_ONCE = 65_536  # rows in memory

Features = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FeatureRows:
    """Rows `numbers`, int64 (m,), of `features`, float32 (n, F)."""

    features: Features | Spilled
    numbers: npt.NDArray[np.int64]

    @classmethod
    def all_of(cls, features: Features | Spilled) -> Self:
        return cls(features, np.arange(len(features)))

    def __len__(self) -> int:
        return len(self.numbers)

    def parts(self) -> Iterator[Features]:
        """One after another, float32 (at most AT_ONCE, F)."""
        for start in range(0, len(self), AT_ONCE):
            yield self.features[self.numbers[start : start + AT_ONCE]]

    def each(self, of: Callable[[Features], npt.NDArray[np.floating]]) -> Floats:
        """What a function makes of rows (k, F), float64 (k, ...), for all of them."""
        made = [of(part) for part in self.parts()] or [of(self.whole())]
        return np.concatenate(made).astype(np.float64)

    def column(self, number: int) -> Floats:
        """One feature, float64 (m,)."""
        return self.each(lambda part: part[:, number].copy())

    def evenly(self, most: int) -> Self:
        """About so many of them, evenly over all."""
        return type(self)(self.features, self.numbers[:: max(1, len(self) // most)])

    def whole(self) -> Features:
        """All at once: for few."""
        return self.features[self.numbers]


def batch_coverage(rows: FeatureRows) -> dict[str, float]:
    """By batch feature the share of the rows that have a value: for the rest none was loaded, or none that was new enough."""
    found = {}
    for number, feature in enumerate(FEATURES):
        if feature.source is Origin.BATCH:
            column = rows.column(number)
            there = ~np.isnan(column) & (column != np.float32(feature.never)) & (column != np.float32(feature.absent))
            found[feature.name] = round(float(there.mean()), 4) if len(rows) else 0.0
    return found
