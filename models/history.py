"""Past transactions from a file (Parquet, CSV or JSON lines), by time, validated by the same schema as the stream's."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import TypeAdapter, ValidationError

from assay.models.mapping import ATTRIBUTE, Column, resolve, scale
from assay.models.sorted_rows import SortedRows
from assay.models.table_file import reading, scan_table
from assay.schemas.errors import InputError
from assay.schemas.transaction import Transaction

DEFAULT_LABEL = "fraud"
CONTROL_SHARE = "control_share"  # the column named as the decision's field is
DAY_MS = 86_400_000
_SLICE = 4_096
_ROW, _TIME = "\0row", "\0time"  # no column has such names
_TRUE, _FALSE = ("true", "1", "1.0", "yes", "fraud"), ("false", "0", "0.0", "no", "genuine")
_DEGREES = ("location.latitude", "location.longitude")
_TRANSACTIONS = TypeAdapter(list[Transaction])


@dataclass(frozen=True)
class History:
    """n transactions in the order of their time (ties: of the file); each is made and checked when it is asked for.

    `labels`: bool (n,), True for fraud; None where the file has none. `labelled`: bool (n,), False where the file does not say
    (yet): such a payment is seen by later ones' features, and is neither learnt from nor counted as genuine. `shares`: float64
    (n,), of what the control group let through the share of its like, else NaN; None where the file does not say.
    """

    path: Path
    labels: npt.NDArray[np.bool_] | None
    labelled: npt.NDArray[np.bool_]
    times_ms: npt.NDArray[np.int64]
    shares: npt.NDArray[np.float64] | None
    _rows: SortedRows
    _fields: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self._rows)

    def first_after(self, days: float) -> int:
        """The first row that lies so many days after the beginning. Raises InputError where none does."""
        first = int(self.times_ms.searchsorted(self.times_ms[0] + days * DAY_MS))
        if first == len(self):
            span = (self.times_ms[-1] - self.times_ms[0]) / DAY_MS
            raise InputError(
                f"{self.path}: nothing comes after {days:g} days",
                expected="fewer days to warm up than it has",
                got=f"{span:.1f}",
            )
        return first

    def __iter__(self) -> Iterator[Transaction]:
        for start in range(0, len(self), _SLICE):
            yield from self.part(start, min(start + _SLICE, len(self)))

    def part(self, start: int, stop: int) -> list[Transaction]:
        """Transactions start to stop. Raises InputError, which names file, row and field."""
        documents = self._documents(start, stop)
        try:
            return _TRANSACTIONS.validate_python(documents)
        except ValidationError as error:
            raise self._refused(error, documents, start) from None

    def without_refused(self) -> "tuple[History, InputError | None]":
        """The history without the rows that the schema refuses (dead letters in the stream), and why the first was refused."""
        refused: list[int] = []
        first: InputError | None = None
        for start in range(0, len(self), _SLICE):
            documents = self._documents(start, start + _SLICE)
            try:
                _TRANSACTIONS.validate_python(documents)
            except ValidationError as error:
                first = first or self._refused(error, documents, start)
                refused += {start + int(one["loc"][0]) for one in error.errors(include_url=False, include_input=False)}
        kept = np.ones(len(self), np.bool_)
        kept[refused] = False
        labels = None if self.labels is None else self.labels[kept]
        shares = None if self.shares is None else self.shares[kept]
        rows = self._rows.only(kept)
        return History(self.path, labels, self.labelled[kept], self.times_ms[kept], shares, rows, self._fields), first

    def _documents(self, start: int, stop: int) -> list[dict[str, Any]]:
        rows = self._rows.part(start, stop)
        values = {field: _values(field, column, rows) for field, column in self._fields.items()}
        places = [field.split(".", 1) for field in values]
        return [_nest(places, row) for row in zip(*values.values(), strict=True)]

    def _refused(self, error: ValidationError, documents: list[dict[str, Any]], start: int) -> InputError:
        first = error.errors(include_url=False)[0]
        at, field = int(first["loc"][0]), ".".join(str(part) for part in first["loc"][1:])
        field = field or str(first.get("ctx", {}).get("field", "transaction"))
        column = self._fields.get(field)
        return InputError(
            f"{self.path}, row {self._rows.part(start + at, start + at + 1)[_ROW][0]}: {field} can't be used",
            expected=first["msg"],
            got=repr(_dig(documents[at], field))[:100],
            mend=f"look at column {column.name}, or leave such rows out (--skip-refused)"
            if column and column.name
            else "correct --map",
        )


def read_history(
    path: Path,
    mapping: Mapping[str, str],
    *,
    label: str = DEFAULT_LABEL,
    since: date | None = None,
    until: date | None = None,
    need_labels: bool = False,
) -> History:
    """The transactions of a file from the day `since` to before the day `until` (UTC). Raises InputError."""
    table = scan_table(path)
    schema = table.collect_schema()
    fields = resolve(mapping, schema, path)
    if label not in schema and (need_labels or label != DEFAULT_LABEL):
        raise InputError(f"{path} has no column {label}", expected=f"one of {', '.join(schema)}", mend="--label COLUMN")
    wanted = {column.name for column in fields.values() if column.name} | ({label, CONTROL_SHARE} & schema.keys())
    table = table.select(sorted(wanted)).with_row_index(_ROW, 1).with_columns(_time(fields["timestamp"], schema).alias(_TIME))
    for bound, keep in ((since, pl.col(_TIME).ge), (until, pl.col(_TIME).lt)):
        if bound is not None:
            table = table.filter(keep((bound - date(1970, 1, 1)).days * DAY_MS).fill_null(True))
    with reading(path):
        rows = SortedRows(table, _TIME)
    if not len(rows):
        raise InputError(
            f"{path} has no transactions{' between these days' if since or until else ''}", expected="at least one"
        )
    times_ms = rows.columns(pl.col(_TIME).fill_null(0)).to_series().to_numpy()
    labels, labelled, shares = None, np.ones(len(rows), np.bool_), None
    if label in schema:
        labels, labelled = _labels(rows, label, path)
    if CONTROL_SHARE in schema:
        shares = _shares(rows.columns(_ROW, CONTROL_SHARE), path)
    return History(path, labels, labelled, times_ms, shares, rows, fields)


def _time(column: Column, schema: pl.Schema) -> pl.Expr:
    """Epoch milliseconds, to sort and to select by; null where the schema will refuse the timestamp anyway."""
    if column.name is None:
        return pl.lit(None, pl.Int64)
    dtype, values = schema[column.name], pl.col(column.name)
    if dtype.is_temporal():
        return values.cast(pl.Datetime("ms")).dt.epoch("ms")
    if dtype == pl.String:
        numbers = values.cast(pl.Float64, strict=False) * float(column.factor)
        moments = values.str.to_datetime("%+", time_unit="ms", time_zone="UTC", strict=False).dt.epoch("ms")
        return pl.coalesce(numbers.round().cast(pl.Int64, strict=False), moments)
    return (values.cast(pl.Float64) * float(column.factor)).round().cast(pl.Int64)


def _labels(rows: SortedRows, label: str, path: Path) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which are fraud, and of which anything is said; as expressions, since texts of all rows would be much."""
    texts = pl.col(label).cast(pl.String).str.to_lowercase()
    wrong = _said(label) & ~texts.is_in([*_TRUE, *_FALSE]).fill_null(False)
    frame = rows.columns(texts.is_in(_TRUE).fill_null(False).alias("fraud"), _said(label).alias("said"), wrong.alias("wrong"))
    if frame["wrong"].any():
        at = int(frame["wrong"].arg_max() or 0)
        row = rows.part(at, at + 1)
        raise InputError(
            f"{path}, row {row[_ROW][0]}: {label} is no label",
            expected="true or false, 1 or 0, or nothing",
            got=repr(row[label][0]),
        )
    return frame["fraud"].to_numpy(), frame["said"].to_numpy()


def _shares(frame: pl.DataFrame, path: Path) -> npt.NDArray[np.float64]:
    shares = frame[CONTROL_SHARE].cast(pl.Float64, strict=False)
    wrong = frame.select(_said(CONTROL_SHARE)).to_series() & ~shares.is_between(0, 1, closed="right").fill_null(False)
    if wrong.any():
        at = int(wrong.arg_max() or 0)
        raise InputError(
            f"{path}, row {frame[_ROW][at]}: {CONTROL_SHARE} is no share",
            expected="more than 0 and at most 1, as the decision says, or nothing",
            got=repr(frame[CONTROL_SHARE][at]),
        )
    return shares.fill_null(np.nan).to_numpy()


def _said(column: str) -> pl.Expr:
    """Whether there is a value at all: an empty field of a CSV file is none."""
    return pl.col(column).cast(pl.String).fill_null("") != ""


def _values(field: str, column: Column, rows: pl.DataFrame) -> list[Any]:
    """The values of one field in the form that the schema takes."""
    if column.name is None:
        return [column.constant] * rows.height if column.constant is not None else [f"row-{row}" for row in rows[_ROW]]
    values = rows[column.name]
    if field == "timestamp":
        whole_numbers = values.dtype != pl.String or column.factor != 1 or bool(values.str.contains(r"^\d+$").all())
        return rows[_TIME].to_list() if whole_numbers else values.to_list()
    if field == "amount":
        return [value if value is None else scale(value, column.factor) for value in values.to_list()]
    if field in _DEGREES:
        return values.cast(pl.Float64, strict=False).to_list()
    if field == "merchant.category":
        return values.cast(pl.String).str.zfill(4).to_list()
    if field.startswith(ATTRIBUTE):
        return values.to_list()
    return values.cast(pl.String).to_list()


def _nest(places: list[list[str]], row: tuple[Any, ...]) -> dict[str, Any]:
    """A transaction as the schema takes it; what is null is absent."""
    nested: dict[str, Any] = {}
    for place, value in zip(places, row, strict=True):
        if value is None:
            continue
        if len(place) == 1:
            nested[place[0]] = value
        elif place[0] in nested:
            nested[place[0]][place[1]] = value
        else:
            nested[place[0]] = {place[1]: value}
    return nested


def _dig(document: Any, field: str) -> Any:
    for part in field.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    return document
