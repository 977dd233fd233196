"""Batch features: values of entities that were computed elsewhere, each with the time as of which it holds.

A row has what was loaded for one entity (little-endian):

    header   8 bytes: version u4, number of values u4
    value    16 bytes each: digest of the feature's name u4, value f4, as of when f8 (epoch, milliseconds)

The age of a value is the transaction's event time less its as-of time. One above what its feature allows, or below 0 (it was
not known then), is unavailable; one that was never loaded, or forgotten, is what the list declares for never. Whatever lists
of features have written a row, each reads its own values out of it.
"""

from collections.abc import Collection, Sequence
from hashlib import blake2b
from struct import Struct
from typing import Any

import numpy as np

from assay.schemas.limits import MAX_BATCH_VALUE_AGE_S
from assay.tables.compiled import compiled
from assay.tables.events import Events
from assay.tables.features import BATCH_FEATURES, ENTITY_FEATURES, FEATURES, Feature, Origin
from assay.tables.lookups import Floats, Index, Reading

VERSION = 1
HEADER_BYTES = 8
VALUE = np.dtype([("name", "<u4"), ("value", "<f4"), ("as_of_ms", "<f8")])
_HEADER, _VALUE = Struct("<II"), Struct("<Ifd")
MISSING = -1  # in place of the length of a row that is not there

BATCH_LIST: tuple[Feature, ...] = tuple(feature for feature in FEATURES if feature.source is Origin.BATCH)
COLUMNS = slice(ENTITY_FEATURES, ENTITY_FEATURES + BATCH_FEATURES)


def name_digest(name: str) -> int:
    """What stands for a feature's name in a row, 32 bits."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "little")


def pack_value(name: int, value: float, as_of_ms: float) -> bytes:
    """One value of a row: digest of its name, value, as-of time in epoch ms."""
    return _VALUE.pack(name, value, as_of_ms)


def pack_row(values: Collection[bytes]) -> bytes:
    """A row of packed values."""
    return _HEADER.pack(VERSION, len(values)) + b"".join(values)


class BatchRows:
    """The family of rows that hold batch features (`tables.lookups.Family`)."""

    marker = b"b"

    def __init__(self, features: Sequence[Feature] = BATCH_LIST, columns: slice = COLUMNS) -> None:
        self.features, self.columns = tuple(features), columns
        self.kinds = tuple(dict.fromkeys(feature.entity for feature in features))
        self._names = np.array([name_digest(feature.name) for feature in features], np.uint32)
        if len(set(self._names.tolist())) != len(features):
            raise ValueError("two names of batch features have the same digest: rename one")
        self._kinds = np.array([self.kinds.index(feature.entity) for feature in features], np.int64)
        self._allowed_ms = np.array([feature.allowed_age_s * 1000.0 for feature in features])
        self._absent = np.array([feature.absent for feature in features], np.float32)
        self._never = np.array([feature.never for feature in features], np.float32)

    def read(self, rows: Sequence[bytes | None], index: Index, events: Events, windows: Floats, out: Floats) -> Reading:
        """See `Family`."""
        lengths = np.fromiter((MISSING if row is None else len(row) for row in rows), np.int64, len(rows))
        fits = lengths % VALUE.itemsize == HEADER_BYTES
        packed = np.frombuffer(b"".join(row for row, fit in zip(rows, fits.tolist(), strict=True) if row and fit), np.float64)
        ages_ms, broken = np.full(out.shape, np.nan), (lengths != MISSING) & ~fits
        _read(
            packed, packed.view(np.uint32), packed.view(np.float32), np.where(fits, lengths, 0), lengths == MISSING, broken,
            index, events["time_ms"], (self._names, self._kinds, self._allowed_ms, self._absent, self._never),
            MAX_BATCH_VALUE_AGE_S * 1000.0, out, ages_ms,
        )  # fmt: skip
        return Reading(ages_ms, int(broken.sum()))


@compiled
def _read(
    wide: Any,
    narrow: Any,
    small: Any,
    lengths: Any,
    missing: Any,
    broken: Any,
    index: Any,
    times_ms: Any,
    features: Any,
    forget_ms: Any,
    out: Any,
    ages_ms: Any,
) -> None:
    """wide, narrow and small: the readable rows, joined, as float64, uint32 and float32; lengths (m,) in bytes, 0 for others.

    features: (digest of the name, index of the kind, allowed age, absent, never), each (c,). out, ages_ms: (n, c).
    """
    names, kinds, allowed_ms, absent, never = features
    starts = np.zeros(lengths.size, np.int64)  # in values of 8 bytes
    at = 0
    for row in range(lengths.size):
        starts[row] = at
        if lengths[row] and (narrow[2 * at] != VERSION or 16 * np.int64(narrow[2 * at + 1]) + 8 != lengths[row]):
            broken[row] = True
        at += lengths[row] // 8
    for i in range(index.shape[0]):
        for column in range(names.size):
            row = index[i, kinds[column]]
            if row < 0:
                out[i, column] = absent[column]
                continue
            if broken[row]:
                out[i, column] = np.nan
                continue
            out[i, column] = never[column]
            for place in range(starts[row] + 1, starts[row] + lengths[row] // 8, 2):
                if narrow[2 * place] == names[column]:
                    age = times_ms[i] - wide[place + 1]
                    ages_ms[i, column] = age
                    if not age > forget_ms:
                        out[i, column] = small[2 * place + 1] if 0 <= age <= allowed_ms[column] else np.nan
                    break
