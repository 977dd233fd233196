"""Files of rows: Parquet, CSV, JSON lines."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import jiter
import polars as pl

from assay.schemas.errors import InputError

LINES_AT_ONCE = 50_000  # of JSON: as objects they take ten times what they take as columns


def read_table(path: Path) -> pl.DataFrame:
    """The whole of a file. Raises InputError."""
    with reading(path):
        return scan_table(path).collect()


def scan_table(path: Path) -> pl.LazyFrame:
    """A file, to be read in pieces; JSON lines, whose columns are known at their end alone, in memory. Raises InputError."""
    scan = ENDINGS.get(path.suffix)
    if scan is None:
        raise InputError(
            f"what format is {path.name}?", expected=f"a name that ends in {', '.join(ENDINGS)}", mend="rename or convert it"
        )
    with reading(path):
        frame = scan(path)
        frame.collect_schema()
        return frame


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What goes wrong in reading the file is its fault. Raises InputError."""
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path} can't be read", expected=f"a {path.suffix} file", got=str(error).splitlines()[0]) from None


def _scan_lines(path: Path) -> pl.LazyFrame:
    documents, parts = _documents(path), list[pl.DataFrame]()
    while (rows := list(islice(documents, LINES_AT_ONCE))) or not parts:
        parts.append(pl.DataFrame(rows, infer_schema_length=None, strict=False))
    return pl.concat(parts, how="diagonal_relaxed").lazy()


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    """The object of each line that is not empty, flat."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield dict(_flat(jiter.from_json(line, float_mode="decimal")))
            except (ValueError, AttributeError) as error:
                raise InputError(f"{path}, line {number}: not a JSON object", got=str(error)) from None


def _flat(document: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, str(value) if isinstance(value, Decimal) else value


ENDINGS: Mapping[str, Callable[[Path], pl.LazyFrame]] = {
    ".parquet": lambda path: pl.scan_parquet(path, glob=False),
    # As text: an amount must not pass through a float, nor lose an identifier its zeros.
    ".csv": lambda path: pl.scan_csv(path, infer_schema=False, glob=False),
    ".jsonl": _scan_lines,
    ".ndjson": _scan_lines,
}  # how a file of rows is read
