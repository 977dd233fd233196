"""Why a score is what it is: what moved it most, in words.

The weights are log-odds of the calibrated score: exact Shapley values (`models.attribution`). Features that say much the same
are taken together (a family of the catalogue), so that counts in one hour and in one day don't take two of four places.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay.models.wordings import Wording, family, worded
from assay.schemas.errors import BundleError
from assay.schemas.limits import MAX_CACHED_WORDINGS, MAX_REASONS
from assay.tables.compiled import compiled
from assay.tables.features import FEATURES, MODEL_FEATURES

SHIPPED = Path(__file__).with_name("reasons.yaml")
LEAST_WEIGHT = 0.05  # log-odds: what moved the score less is not worth a line

Floats = npt.NDArray[np.float32]
Columns = npt.NDArray[np.int16]


class Reason(NamedTuple):
    """One line of an explanation. `weight`: log-odds, towards fraud where positive."""

    code: str
    text: str
    weight: float


def heaviest(contributions: Floats, features: Floats, families: Columns, k: int = MAX_REASONS) -> tuple[Columns, Floats]:
    """The k families of each row that weigh most, towards fraud or away from it, heaviest first; of equals the lower number.

    Returns (n, k) the column of the feature that weighs most in each, in the family's own direction (-1 where there are fewer),
    and (n, k) the family's weight. `contributions`: float32 (n, M); `features`: float32 (n, F >= M); `families`: int16 (M,),
    numbered from 0. What is not known (NaN) is no reason.
    """
    columns, weights = np.empty((len(contributions), k), np.int16), np.empty((len(contributions), k), np.float32)
    _heaviest(contributions, features, families, int(families.max()) + 1, columns, weights)
    return columns, weights


@compiled
def _heaviest(contributions: Any, features: Any, families: Any, count: int, columns: Any, weights: Any) -> None:
    total, lead = np.empty(count, np.float32), np.empty(count, np.int16)
    for row in range(contributions.shape[0]):
        total[:], lead[:] = 0, -1
        columns[row, :], weights[row, :] = -1, 0
        for feature in range(contributions.shape[1]):
            if features[row, feature] == features[row, feature]:
                total[families[feature]] += contributions[row, feature]
        for feature in range(contributions.shape[1]):
            of, value = families[feature], contributions[row, feature]
            towards = value if total[of] > 0 else -value
            if features[row, feature] == features[row, feature] and (
                lead[of] < 0 or towards > (contributions[row, lead[of]] if total[of] > 0 else -contributions[row, lead[of]])
            ):
                lead[of] = feature
        for of in range(count):
            rank = columns.shape[1]
            while rank > 0 and abs(total[of]) > abs(weights[row, rank - 1]):
                if rank < columns.shape[1]:
                    columns[row, rank], weights[row, rank] = columns[row, rank - 1], weights[row, rank - 1]
                rank -= 1
            if rank < columns.shape[1]:
                columns[row, rank], weights[row, rank] = lead[of], total[of]


class Catalogue:
    """What each feature is called in an explanation, and which share a place in it.

    What `wordings` and `families` leave out is made from the feature list. `version`: of the texts, as their file says.
    """

    def __init__(
        self, wordings: Mapping[str, Wording], families: Mapping[str, list[str]] | None = None, version: int = 1
    ) -> None:
        self.version = version
        self.families = _numbered({name: key for key, names in (families or {}).items() for name in names})
        self._wordings = [wordings.get(feature.name) or worded(feature) for feature in FEATURES]
        # The same few counts and codes come again and again; a text costs 1 us to make and .1 to find.
        self.word = lru_cache(maxsize=MAX_CACHED_WORDINGS)(self._word)

    @classmethod
    def parse(cls, raw: bytes, path: Path) -> "Catalogue":
        """From the YAML of a bundle; `path` is for the error. Raises BundleError."""
        try:
            file = _File.of(yaml.load(raw, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise BundleError(f"{path} is not YAML", expected="a reason catalogue", got=str(error).splitlines()[0]) from None
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise BundleError(
                f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}", expected="code, as and text of a feature"
            ) from None
        return cls(file.features, file.families, file.version)

    @classmethod
    def shipped(cls) -> "Catalogue":
        """The one that new bundles get."""
        return cls.parse(SHIPPED.read_bytes(), SHIPPED)

    def _word(self, column: int, value: float) -> tuple[str, str]:
        """(code, text) of a feature at that value."""
        wording = self._wordings[column]
        return wording.code, wording.word(value)

    def reasons(self, contributions: Floats, features: Floats) -> list[list[Reason]]:
        """The explanations of n rows, heaviest first.

        `contributions`: float32 (n, MODEL_FEATURES), as `Ensemble.contributions` has them; `features`: float32 (n, F).
        """
        columns, weights = heaviest(contributions, features, self.families)
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


class _File(BaseModel):
    """A catalogue as it is written: version and families stand among the features."""

    model_config = ConfigDict(extra="forbid")

    version: int = Field(1, ge=1)
    families: dict[str, list[str]] = {}
    features: dict[str, Wording]

    @classmethod
    def of(cls, document: Any) -> "_File":
        """Raises ValidationError."""
        if not isinstance(document, dict):
            return cls.model_validate({"features": document})
        own = {name: document[name] for name in ("version", "families") if name in document}
        return cls.model_validate({**own, "features": {name: document[name] for name in document if name not in own}})


def _numbered(named: Mapping[str, str]) -> Columns:
    """The family of each feature that models see, (MODEL_FEATURES,), numbered as they come."""
    numbers: dict[str, int] = {}
    keys = [named.get(feature.name) or family(feature) for feature in FEATURES[:MODEL_FEATURES]]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int16)
