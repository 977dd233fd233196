"""Decisions of a backtest as a file: JSON lines, or Parquet."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.schemas.errors import SettingError

if TYPE_CHECKING:
    from assay.models.backtest import Judged

Write = Callable[["Judged", str], None]  # (a micro-batch, version of the bundle)
ENDINGS = (".parquet", ".jsonl")


@contextmanager
def writer(path: Path | None) -> Iterator[Write]:
    """What writes micro-batches of decisions to `path` as its ending says, whole or not at all; None writes nothing.

    Raises SettingError for another ending.
    """
    if path is None:
        yield lambda judged, version: None
        return
    if path.suffix not in ENDINGS:
        raise SettingError(f"what format is {path.name}?", expected=f"a name that ends in {' or '.join(ENDINGS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        with (_parquet if path.suffix == ".parquet" else _json_lines)(partial) as write:
            yield write
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _json_lines(path: Path) -> Iterator[Write]:
    import orjson

    with path.open("wb") as file:
        yield lambda judged, version: file.writelines(
            orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in _rows(judged, version)
        )


@contextmanager
def _parquet(path: Path) -> Iterator[Write]:
    import polars as pl

    reason = pl.Struct({"code": pl.String, "text": pl.String, "weight": pl.Float64})
    schema: dict[str, Any] = {
        "transaction_id": pl.String,
        "user_id": pl.String,
        "timestamp_ms": pl.Int64,
        "fraud_score": pl.Float64,
        "action": pl.String,
        "explanation": pl.List(reason),
        "rules": pl.List(pl.String),
        "tier": pl.String,
        "model": pl.String,
    }
    parts: list[pl.DataFrame] = []
    yield lambda judged, version: parts.append(pl.DataFrame(list(_rows(judged, version)), schema=schema))
    (pl.concat(parts) if parts else pl.DataFrame(schema=schema)).write_parquet(path)


def _rows(judged: "Judged", version: str) -> Iterator[dict[str, Any]]:
    verdicts = judged.verdicts
    for index, transaction in enumerate(judged.transactions):
        score = float(verdicts.score[index])
        yield {
            "transaction_id": transaction.transaction_id,
            "user_id": transaction.user_id,
            "timestamp_ms": transaction.timestamp.ms,
            "fraud_score": None if score != score else score,
            "action": verdicts.action[index].value,
            "explanation": [reason._asdict() for reason in verdicts.reasons[index]],
            "rules": list(verdicts.rules[index]),
            "tier": verdicts.tier.value,
            "model": version,
        }
