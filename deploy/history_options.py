"""What `assay train` and `assay score` ask about a table of past transactions."""

from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay.models.history import History

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
Label = Annotated[str, typer.Option("--label", help="Column that is true, or 1, for fraud.")]
From = Annotated[
    datetime | None, typer.Option("--from", formats=["%Y-%m-%d"], metavar="DAY", help="First day that is read (UTC).")
]
Until = Annotated[
    datetime | None,
    typer.Option("--until", formats=["%Y-%m-%d"], metavar="DAY", help="First day that is no longer read (UTC)."),
]
WarmUp = Annotated[float, typer.Option("--warm-up", min=0, help="Days at the start that only fill the profiles.")]
SkipRefused = Annotated[
    bool,
    typer.Option("--skip-refused", help="Leave out rows that are no valid transaction, as the stream does, and count them."),
]
RatesFile = Annotated[Path | None, typer.Option("--rates", help="Exchange rates (CSV); else those of the settings.")]
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


def _day(moment: datetime | None) -> date | None:
    return None if moment is None else moment.date()
