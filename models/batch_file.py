"""Batch features from a file (Parquet, CSV or JSON lines): one value a row, every row checked before any is used.

entity    merchant, user, ...: what the value is of
id        which one, as transactions name it; it is digested as theirs are
name      a batch feature of the list
value     a finite number that the feature may be: a share is 0 to 1
as_of     when it held: RFC 3339, a day (its beginning, UTC), epoch milliseconds, or a timestamp; never in the future
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache, partial
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from pydantic import TypeAdapter, ValidationError

from assay.models.mapping import Column, parse_mapping, resolve
from assay.models.table_file import read_table
from assay.schemas.card_number import holds_card_number
from assay.schemas.errors import InputError
from assay.schemas.fields import Address, Id, IssuerNumber
from assay.schemas.limits import MAX_FUTURE_MS, MAX_ID_CHARACTERS
from assay.tables.batch_history import BatchValues
from assay.tables.batch_rows import BATCH_LIST
from assay.tables.digests import Digests

FIELDS = ("entity", "id", "name", "value", "as_of")
EARLIEST_MS = 946_684_800_000  # the year 2000: what is before it was seconds, most likely
LARGEST = float(np.finfo(np.float32).max)
_ENTITY_OF = {feature.name: feature.entity for feature in BATCH_LIST}
_LOWEST = {feature.name: feature.lowest for feature in BATCH_LIST}
_HIGHEST = {feature.name: feature.highest for feature in BATCH_LIST}
_NAMES = list(_ENTITY_OF)
_KINDS = sorted(set(_ENTITY_OF.values()))


class _Form(NamedTuple):
    """What an id of one kind of entity looks like."""

    adapter: TypeAdapter[str]
    expected: str


_FORMS: Mapping[str, _Form] = {
    "bin": _Form(TypeAdapter(IssuerNumber), "6 to 8 digits"),
    "address": _Form(TypeAdapter(Address), "an IPv4 or IPv6 address"),
}
_ANY = _Form(TypeAdapter(Id), f"1 to {MAX_ID_CHARACTERS} printable characters, and no card number")


def entity_digest(kind: str, text: str | None, digests: Digests) -> int:
    """The digest that transactions have for this entity; 0 where none can have such an id.

    >>> from assay.tables.digests import OFFLINE
    >>> entity_digest("merchant", "m-1", OFFLINE) == OFFLINE.of64("m-1"), entity_digest("bin", "12", OFFLINE)
    (True, 0)
    """
    form = _FORMS.get(kind, _ANY)
    if text is None or holds_card_number(text.encode(errors="replace")):
        return 0
    try:
        valid = form.adapter.validate_python(text)
    except ValidationError:
        return 0
    return digests.of_address(valid) if kind == "address" else digests.of64(valid)


def read_batch_file(
    path: Path, options: Sequence[str] = (), map_file: Path | None = None, *, now_ms: int, digests: Digests
) -> BatchValues:
    """All values of a file. Raises InputError, which names row and column of the first that can't be used.

    options: `FIELD=COLUMN`, as `models.mapping` has them. now_ms: epoch; what is as of later is refused.
    digests: those of the transactions that are to find the values.
    """
    table = read_table(path)
    columns = resolve(parse_mapping(options, map_file, FIELDS), table.columns, path, FIELDS, FIELDS)
    rows = table.select(_expression(field, columns[field], table).alias(field) for field in FIELDS)
    digest = cache(partial(entity_digest, digests=digests))
    pairs = zip(rows["entity"].to_list(), rows["id"].to_list(), strict=True)
    rows = rows.with_columns(pl.Series("digest", [digest(kind, text) for kind, text in pairs], pl.UInt64))
    _check(rows, now_ms, path, columns, table)
    features = np.array([_NAMES.index(name) for name in rows["name"].to_list()], np.int64)
    values = rows["value"].to_numpy().astype(np.float32)
    return BatchValues(features, rows["digest"].to_numpy(), values, rows["as_of"].to_numpy().astype(np.int64))


def _expression(field: str, column: Column, table: pl.DataFrame) -> pl.Expr:
    """A field in the type that it is used in; null where it can't be."""
    dtype = pl.String() if column.name is None else table.schema[column.name]
    given = pl.lit(column.constant, pl.String) if column.name is None else pl.col(column.name)
    if field == "value":
        return given.cast(pl.Float64, strict=False) * float(column.factor)
    if field == "as_of":
        return _moment(given, dtype, float(column.factor))
    if dtype.is_float():
        return pl.lit(None, pl.String)  # 12.0 is not what transactions say
    return given.cast(pl.String, strict=False)


def _moment(given: pl.Expr, dtype: pl.DataType, factor: float) -> pl.Expr:
    if dtype.is_temporal():
        return given.cast(pl.Datetime("ms"), strict=False).dt.epoch("ms")
    numbers = (given.cast(pl.Float64, strict=False) * factor).round().cast(pl.Int64, strict=False)
    if dtype != pl.String:
        return numbers
    moments = given.str.to_datetime("%+", time_unit="ms", time_zone="UTC", strict=False).dt.epoch("ms")
    days = given.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("ms")).dt.epoch("ms")
    return pl.coalesce(numbers, moments, days)


def _check(rows: pl.DataFrame, now_ms: int, path: Path, columns: Mapping[str, Column], table: pl.DataFrame) -> None:
    """Raises InputError for the first row that is wrong, and the first thing that is wrong with it."""
    name, value, as_of = pl.col("name"), pl.col("value"), pl.col("as_of")
    wrong = rows.select(
        entity=~pl.col("entity").is_in(_KINDS).fill_null(False),
        name=~name.is_in(_NAMES).fill_null(False),
        of=pl.col("entity") != name.replace_strict(_ENTITY_OF, default=None, return_dtype=pl.String),
        id=pl.col("digest") == 0,
        value=value.is_null() | ~value.is_finite() | (value.abs() > LARGEST),
        range=(value < name.replace_strict(_LOWEST, default=None)) | (value > name.replace_strict(_HIGHEST, default=None)),
        as_of=as_of.is_null() | (as_of < EARLIEST_MS),
        future=as_of > now_ms + MAX_FUTURE_MS,
    )
    if not (any_wrong := wrong.select(pl.any_horizontal(pl.all().fill_null(False)))).to_series().any():
        wrong = any_wrong = _twice(rows)
    if not any_wrong.to_series().any():
        return
    row = int(any_wrong.to_series().arg_max() or 0)
    what = next(column for column, found in wrong.row(row, named=True).items() if found)
    field = {"of": "entity", "range": "value", "future": "as_of", "twice": "value"}.get(what, what)
    expected, mend = _advice(what, rows.row(row, named=True))
    column = columns[field]
    got = column.constant if column.name is None else table[column.name][row]
    said = "withheld" if what == "id" and holds_card_number(str(got).encode(errors="replace")) else repr(got)[:100]
    where = f"{field} (column {column.name})" if column.name not in (None, field) else field
    raise InputError(f"{path}, row {row + 1}: {where} can't be used", expected=expected, got=said, mend=mend)


def _twice(rows: pl.DataFrame) -> pl.DataFrame:
    """Where another row says something else of the same entity, name and time."""
    same = [pl.col(name) for name in ("entity", "digest", "name", "as_of")]
    return rows.select(twice=pl.col("value").n_unique().over(same) > 1)


def _advice(what: str, row: Mapping[str, Any]) -> tuple[str, str]:
    """(what was expected, what to do) about a column of a row."""
    name = str(row["name"])
    if what == "entity":
        return f"one of {', '.join(_KINDS)}", "map it: --map entity=merchant, where all rows are of merchants"
    if what == "name":
        close = get_close_matches(name, _NAMES, 1)
        perhaps = f"; perhaps {close[0]}" if close else ""
        return f"one of {', '.join(_NAMES)}{perhaps}", "correct it, or declare the feature first (docs/add-a-feature.md)"
    if what == "of":
        return f"{_ENTITY_OF[name]}, which {name} is declared of", "correct the entity or the name"
    if what == "id":
        return _FORMS.get(str(row["entity"]), _ANY).expected, "give the id as transactions have it, as text"
    if what == "value":
        return "a finite number", "leave rows without a value out: what is not loaded counts as never seen"
    if what == "range":
        to = f"{_LOWEST[name]:g} to {_HIGHEST[name]:g}" if isfinite(_HIGHEST[name]) else f"{_LOWEST[name]:g} or more"
        return to, "map it where it has another unit: --map value=COLUMN/100 makes a share of a percentage"
    if what == "twice":
        return "one value of an id for each name and as_of", "leave out those that do not hold"
    if what == "future":
        return "a time that is not in the future", "give the time as of which the value holds, in UTC"
    return "RFC 3339 with an offset, YYYY-MM-DD, or epoch milliseconds", "seconds need --map as_of=COLUMN*1000"
