"""What `assay train` and `assay score` ask about a table of past transactions."""

from datetime import date, datetime
from pathlib import Path
from typing import Annotated

import typer

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
RatesFile = Annotated[Path | None, typer.Option("--rates", help="Exchange rates (CSV); else those of the settings.")]
Json = Annotated[bool, typer.Option("--json", help="End with one JSON object for a machine to read.")]


def day(moment: datetime | None) -> date | None:
    """The day of an option."""
    return None if moment is None else moment.date()
