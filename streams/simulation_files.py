"""Simulated payments as files: Parquet or CSV with one flat column per field (`merchant.id`), or JSON lines.

JSON lines hold the transaction as it would go onto Kafka, and the truth in two more fields, which readers ignore.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from assay.schemas.errors import SettingError
from assay.streams.simulator import Simulated

# Order and types of the columns; amounts stay text, since they are exact and have their currency's digits.
COLUMNS: dict[str, Any] = {
    "transaction_id": pl.String,
    "user_id": pl.String,
    "kind": pl.String,
    "amount": pl.String,
    "currency": pl.String,
    "timestamp": pl.String,
    "merchant.id": pl.String,
    "merchant.category": pl.String,
    "merchant.country": pl.String,
    "instrument.id": pl.String,
    "instrument.bin": pl.String,
    "instrument.issuer_country": pl.String,
    "location.country": pl.String,
    "location.latitude": pl.Float64,
    "location.longitude": pl.Float64,
    "location.time_zone": pl.String,
    "device.id": pl.String,
    "device.ip": pl.String,
    "device.type": pl.String,
    "channel": pl.String,
    "fraud": pl.Boolean,
    "pattern": pl.String,
}
ENDINGS = (".parquet", ".csv", ".jsonl")


def check_ending(path: Path) -> None:
    """Raises SettingError unless the file's ending says which format is meant."""
    if path.suffix not in ENDINGS:
        raise SettingError(
            f"what format is {path.name}?", expected=f"a name that ends in {', '.join(ENDINGS)}", mend="add the ending"
        )


def to_frame(payments: Iterable[Simulated]) -> pl.DataFrame:
    """One row per transaction, `COLUMNS` in that order; null where a field is absent."""
    rows = [[_cell(fields, column) for column in COLUMNS] for fields in map(_labelled, payments)]
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def write(payments: Iterable[Simulated], path: Path) -> int:
    """Write them as the file's ending says; returns how many. What was there is replaced once all is written."""
    check_ending(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    if path.suffix == ".jsonl":
        count = 0
        with partial.open("wb") as out:
            for line in to_lines(payments):
                out.write(line)
                count += 1
    else:
        frame = to_frame(payments)
        count = len(frame)
        frame.write_parquet(partial) if path.suffix == ".parquet" else frame.write_csv(partial)
    partial.replace(path)
    return count


def noting_outcomes(payments: Iterable[Simulated], noted: list[tuple[int, bytes]]) -> Iterator[Simulated]:
    """The payments as they are; (known_at, line) of what becomes of them is added to `noted`."""
    for payment in payments:
        for _, outcome in payment.outcomes:
            noted.append((outcome["known_at"], orjson.dumps(outcome, option=orjson.OPT_APPEND_NEWLINE)))
        yield payment


def write_outcomes(noted: Iterable[tuple[int, bytes]], path: Path) -> int:
    """Write them as JSON lines, in the form of the wire and the order in which they become known; returns how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial, lines = path.with_name(path.name + ".partial"), [line for _, line in sorted(noted, key=lambda each: each[0])]
    with partial.open("wb") as out:
        out.writelines(lines)
    partial.replace(path)
    return len(lines)


def to_lines(payments: Iterable[Simulated]) -> Iterator[bytes]:
    """JSON, one transaction a line."""
    for payment in payments:
        yield orjson.dumps(_labelled(payment), option=orjson.OPT_APPEND_NEWLINE)


def _labelled(payment: Simulated) -> dict[str, Any]:
    return payment.transaction | {"fraud": payment.fraud, "pattern": payment.pattern}


def _cell(fields: dict[str, Any], column: str) -> Any:
    outer, _, inner = column.partition(".")
    value = fields.get(outer)
    return value.get(inner) if inner and value is not None else value
