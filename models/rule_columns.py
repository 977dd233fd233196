"""What a rule can see: the columns, their types, and how each is made from a micro-batch. Absent and unavailable are NULL."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from assay.schemas.transaction import Transaction
from assay.tables.features import FEATURES, NAMES

ATTRIBUTE = "attributes."
SCORE = "fraud_score"
NOT_THERE = -1.0  # what the feature list declares for absent, where zero means something
AMOUNT_BASE = "amount_base"

_Getter = Callable[[Transaction], Any]

# Fields of the transaction; where a feature has the same name (amount, kind, channel) the field as it was sent is meant.
FIELDS: Mapping[str, tuple[Any, _Getter]] = {
    "amount": (pl.Float64, lambda t: float(t.amount)),
    "currency": (pl.String, lambda t: t.currency),
    "kind": (pl.String, lambda t: t.kind.value),
    "channel": (pl.String, lambda t: t.channel.value if t.channel else None),
    "merchant_id": (pl.String, lambda t: t.merchant.id),
    "merchant_category": (pl.String, lambda t: t.merchant.category),
    "merchant_country": (pl.String, lambda t: t.merchant.country),
    "instrument_bin": (pl.String, lambda t: t.instrument.bin if t.instrument else None),
    "issuer_country": (pl.String, lambda t: t.instrument.issuer_country if t.instrument else None),
    "country": (pl.String, lambda t: t.location.country if t.location else None),
    "device_id": (pl.String, lambda t: t.device.id if t.device else None),
    "device_type": (pl.String, lambda t: t.device.type if t.device else None),
    "user_id": (pl.String, lambda t: t.user_id),
}
_FEATURES: Mapping[str, int] = {name: index for index, name in enumerate(NAMES)} | {AMOUNT_BASE: NAMES.index("amount")}
OWN_VERDICTS = frozenset(feature.name for feature in FEATURES if not feature.for_models)  # what we declined before
OFFERED: tuple[str, ...] = (*FIELDS, AMOUNT_BASE, SCORE, *(name for name in NAMES if name not in FIELDS))

# The types that a value of `attributes` may have; what is of another type than the rules compare it with is NULL.
ATTRIBUTE_TYPES: Mapping[Any, Callable[[Any], Any]] = {
    pl.String: lambda value: value if isinstance(value, str) else None,
    pl.Float64: lambda value: float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None,
    pl.Boolean: lambda value: value if isinstance(value, bool) else None,
}

_ATTRIBUTE_NAME = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*")|\battributes\.(?:([A-Za-z_][A-Za-z0-9_]*)|"((?:[^"]|"")+)")""")


def quote_attributes(predicate: str) -> str:
    """Name attribute columns as SQL wants it: `attributes.x` is one column, not a field of a struct. Text in quotes stays.

    >>> quote_attributes("attributes.tier = 'attributes.x'")
    '"attributes.tier" = \\'attributes.x\\''
    """
    return _ATTRIBUTE_NAME.sub(lambda m: m[1] or f'"{ATTRIBUTE}{m[2] or m[3]}"', predicate)


def type_of(column: str) -> Any:
    """Polars type of an offered column; None for an attribute, whose type is that of what it is compared with."""
    if column in FIELDS:
        return FIELDS[column][0]
    return None if column.startswith(ATTRIBUTE) else pl.Float64


def attribute_types(column: str, predicate: str) -> list[Any]:
    """The types that an attribute may have in a predicate, the likeliest first. Polars would also compare true with text."""
    name = re.escape(column.removeprefix(ATTRIBUTE))
    if re.search(rf"attributes\.\"?{name}\"?\s*(?:=|<>|!=|is|is\s+not)\s*(?:true|false)\b", predicate, re.IGNORECASE):
        return [pl.Boolean]
    return list(ATTRIBUTE_TYPES)


def build(
    columns: Mapping[str, Any],
    transactions: Sequence[Transaction],
    features: npt.NDArray[np.float32],
    scores: npt.NDArray[np.float64],
) -> pl.DataFrame:
    """The columns that the rules refer to (name -> type), n rows."""
    return pl.DataFrame([_column(name, dtype, transactions, features, scores) for name, dtype in columns.items()])


def _column(
    name: str,
    dtype: Any,
    transactions: Sequence[Transaction],
    features: npt.NDArray[np.float32],
    scores: npt.NDArray[np.float64],
) -> pl.Series:
    if name in FIELDS:
        get = FIELDS[name][1]
        return pl.Series(name, [get(transaction) for transaction in transactions], dtype)
    if name.startswith(ATTRIBUTE):
        attribute, accept = name.removeprefix(ATTRIBUTE), ATTRIBUTE_TYPES[dtype]
        return pl.Series(name, [accept((transaction.attributes or {}).get(attribute)) for transaction in transactions], dtype)
    return pl.Series(name, scores if name == SCORE else _feature(_FEATURES[name], features), pl.Float64, nan_to_null=True)


def _feature(column: int, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    values = features[:, column].astype(np.float64)
    if NOT_THERE in (FEATURES[column].absent, FEATURES[column].never):
        values[values == NOT_THERE] = np.nan
    return values
