"""What `assay train` and `assay score` ask about a table of past transactions."""

from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay.models.history import History
    from assay.tables.batch_history import BatchHistory

Table = Annotated[Path, typer.Argument(help="Transactions: .parquet, .csv or .jsonl; one a row.", show_default=False)]
Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="FIELD=COLUMN",
        help="Which column is a field: a column, COLUMN/100, COLUMN*1000, a constant ('quoted' where it could be meant for a "
        "column), or # for the row number. Columns named like our fields (merchant.id) need no mention.",
    ),
]
MapFile = Annotated[Path | None, typer.Option("--map-file", help="The same as YAML, FIELD: COLUMN a line; --map wins.")]
Label = Annotated[
    str, typer.Option("--label", help="Column that is true, or 1, for fraud; empty: not known yet, so not learnt from.")
]
From = Annotated[
    datetime | None, typer.Option("--from", formats=["%Y-%m-%d"], metavar="DAY", help="First day that is read (UTC).")
]
Since = Annotated[
    datetime | None, typer.Option("--since", formats=["%Y-%m-%d"], metavar="DAY", help="First day that is read (UTC).")
]
Until = Annotated[
    datetime | None,
    typer.Option("--until", formats=["%Y-%m-%d"], metavar="DAY", help="First day that is no longer read (UTC)."),
]
WarmUp = Annotated[float, typer.Option("--warm-up", min=0, help="Days at the start that only fill the profiles.")]
LabelDelay = Annotated[
    float,
    typer.Option(
        "--label-delay",
        min=0,
        metavar="DAYS",
        help="How long after a payment its fraud is known: features count it from then on.",
    ),
]
SkipRefused = Annotated[
    bool,
    typer.Option("--skip-refused", help="Leave out rows that are no valid transaction, as the stream does, and count them."),
]
RatesFile = Annotated[Path | None, typer.Option("--rates", help="Exchange rates (CSV); else those of the settings.")]
BatchFile = Annotated[
    Path | None,
    typer.Option(
        "--batch-features",
        help="Values of batch features over time, in the form that `assay features load` takes: each payment sees what had "
        "been loaded by then.",
    ),
]
BatchDelay = Annotated[
    float, typer.Option("--batch-delay", min=0, help="Hours from the as-of time of such a value until it was loaded.")
]
OutcomesFile = Annotated[
    Path | None,
    typer.Option(
        "--outcomes",
        help="What became of the payments, and when it became known: JSON lines as on the outcomes topic. In place of "
        "--label-delay; and of labels, where the table has none.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="End with one JSON object for a machine to read.")]


def read(
    table: Path,
    map_: list[str] | None,
    map_file: Path | None,
    label: str,
    from_: datetime | None,
    until: datetime | None,
    skip_refused: bool,
    *,
    need_labels: bool = False,
) -> "tuple[History, int]":
    """The history that the options name, and how many rows were left out."""
    from rich.console import Console

    from assay.models.history import read_history
    from assay.models.mapping import parse_mapping

    history = read_history(
        table, parse_mapping(map_ or (), map_file), label=label, since=_day(from_), until=_day(until), need_labels=need_labels
    )
    if not skip_refused:
        return history, 0
    kept, first = history.without_refused()
    left_out = len(history) - len(kept)
    if left_out:
        Console(stderr=True).print(
            f"{left_out:,} rows left out; the first: {first}", highlight=False, markup=False, soft_wrap=True
        )
    return kept, left_out


def batch_history(path: Path | None, delay_hours: float) -> "BatchHistory":
    """The batch features that the options name, read as they had been loaded."""
    import time

    from assay.models.batch_file import read_batch_file
    from assay.tables.batch_history import BatchHistory
    from assay.tables.digests import OFFLINE

    now_ms = int(time.time() * 1000)
    values = None if path is None else read_batch_file(path, now_ms=now_ms, digests=OFFLINE)
    return BatchHistory(values, known_after_ms=round(delay_hours * 3_600_000))


def _day(moment: datetime | None) -> date | None:
    return None if moment is None else moment.date()
