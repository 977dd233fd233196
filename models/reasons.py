"""Why a score is what it is: the features that moved it most, in words.

The weights are log-odds of the calibrated score. What they are made from: `models.forest.walk`.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import yaml
from pydantic import TypeAdapter, ValidationError

from assay.models.forest import heaviest
from assay.models.wordings import Wording, worded
from assay.schemas.errors import BundleError
from assay.schemas.limits import MAX_CACHED_WORDINGS, MAX_REASONS
from assay.tables.features import FEATURES

SHIPPED = Path(__file__).with_name("reasons.yaml")
LEAST_WEIGHT = 0.05  # log-odds: what moved the score less is not worth a line


class Reason(NamedTuple):
    """One line of an explanation. `weight`: log-odds, towards fraud where positive."""

    code: str
    text: str
    weight: float


def explain(
    contributions: npt.NDArray[np.float32], features: npt.NDArray[np.float32], k: int = MAX_REASONS
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.float32]]:
    """The k features of each row that weigh most, towards fraud or away from it: columns and weights in log-odds, (n, k).

    `contributions`, `features`: float32 (n, F). What is not known (NaN) is no reason; column -1 where there are fewer.
    """
    known = np.where(np.isnan(features), np.float32(0), contributions)
    columns = np.empty((len(known), k), np.int16)
    weights = np.empty((len(known), k), np.float32)
    heaviest(known, columns, weights)
    return columns, weights


class Catalogue:
    """What each feature is called in an explanation; what `wordings` leaves out is worded from the feature list."""

    def __init__(self, wordings: Mapping[str, Wording]) -> None:
        self._wordings = [wordings.get(feature.name) or worded(feature) for feature in FEATURES]
        # The same few counts and codes come again and again; a text costs 1 us to make and .1 to find.
        self.word = lru_cache(maxsize=MAX_CACHED_WORDINGS)(self._word)

    @classmethod
    def parse(cls, raw: bytes, path: Path) -> "Catalogue":
        """From the YAML of a bundle; `path` is for the error. Raises BundleError."""
        try:
            wordings = TypeAdapter(dict[str, Wording]).validate_python(
                yaml.load(raw, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            )
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise BundleError(f"{path} is not YAML", expected="a reason catalogue", got=str(error).splitlines()[0]) from None
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise BundleError(
                f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}", expected="code, as and text of a feature"
            ) from None
        return cls(wordings)

    @classmethod
    def shipped(cls) -> "Catalogue":
        """The one that new bundles get."""
        return cls.parse(SHIPPED.read_bytes(), SHIPPED)

    def _word(self, column: int, value: float) -> tuple[str, str]:
        """(code, text) of a feature at that value."""
        wording = self._wordings[column]
        return wording.code, wording.word(value)

    def reasons(
        self, columns: npt.NDArray[np.int16], weights: npt.NDArray[np.float32], features: npt.NDArray[np.float32]
    ) -> list[list[Reason]]:
        """The explanations of n rows, heaviest first, from what `explain` found."""
        word = self.word
        shown = (columns >= 0) & (np.abs(weights) >= LEAST_WEIGHT)
        values = np.take_along_axis(features, np.maximum(columns, 0).astype(np.intp), axis=1)
        counts = shown.sum(axis=1).tolist()
        # Weights with four digits after the point: more would be noise, and bytes.
        rounded = np.round(weights.astype(np.float64), 4)
        return [
            [Reason(*word(column, value), weight) for column, value, weight in zip(cs[:n], vs, ws, strict=False)]
            for n, cs, vs, ws in zip(counts, columns.tolist(), values.tolist(), rounded.tolist(), strict=True)
        ]
