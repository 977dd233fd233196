"""Files of rows: Parquet, CSV, JSON lines."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import jiter
import polars as pl

from assay.schemas.errors import InputError


def read_table(path: Path) -> pl.DataFrame:
    """The whole of a file. Raises InputError."""
    with reading(path):
        return scan_table(path).collect()


def scan_table(path: Path) -> pl.LazyFrame:
    """A file, to be read in pieces; JSON lines, whose columns are known at their end alone, whole. Raises InputError."""
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
    rows = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                document = jiter.from_json(line, float_mode="decimal")
                rows.append(dict(_flat(document)))
            except (ValueError, AttributeError) as error:
                raise InputError(f"{path}, line {number}: not a JSON object", got=str(error)) from None
    return pl.DataFrame(rows, infer_schema_length=None, strict=False).lazy()


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
