"""`assay features`: the list of features with how fresh each is, and loading what was computed elsewhere."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.deploy.history_options import Json, MapFile

if TYPE_CHECKING:
    from assay.deploy.feature_map import Seen
    from assay.deploy.features_seen import Tally
    from assay.tables.batch_load import Loaded

app = typer.Typer(add_completion=False)
LAST = 2_000
LEAST_WIDTH = 130  # a narrower terminal wraps lines, which is better than names cut off


@app.callback(invoke_without_command=True)
def features(
    context: typer.Context,
    last: Annotated[
        int, typer.Option(min=0, help="How many of the latest decisions to look at for what was seen; 0: none.")
    ] = LAST,
    json_: Json = False,
) -> None:
    """Show every feature: what it is of, where it comes from, how old it may be, and how old it was.

    Seen are the latest decisions, by their evidence; without Kafka that is left out. "seen age" is the oldest of what they
    read; "missing" the share of them without a value (absent or unavailable), "never" that with nothing before, or loaded. What
    a feature measures is in docs/features.md and in the JSON.

    \b
    Examples:
      assay features
      assay features --last 50000
      assay features --json | jq '.features[] | select(.share_missing > 0.5).name'
      assay features load dispute-rates.parquet
    """
    if context.invoked_subcommand is not None:
        return
    import json

    from assay.deploy.feature_map import machine_row
    from assay.deploy.for_machines import beside_json
    from assay.tables.features import FEATURES

    counted, note = _look(last)
    seen = counted.seen() if counted is not None else None
    differs = [] if seen is None else _differing(seen)
    with beside_json(json_):
        _show(seen, note)
        for line in differs:
            print(f"Look at {line}. Load what is missing (assay features load), or train with --batch-features.")
    if json_:
        by_feature: list[Seen | None] = [*seen] if seen is not None else [None] * len(FEATURES)
        rows = [machine_row(*one) for one in zip(FEATURES, by_feature, strict=True)]
        decisions = counted.records if counted is not None else 0
        print(json.dumps({"features": rows, "decisions": decisions, "note": note, "batch_differs": differs}))


@app.command()
def load(
    file: Annotated[Path, typer.Argument(help="Values: .parquet, .csv or .jsonl; one a row.", show_default=False)],
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="FIELD=COLUMN",
            help="Which column is entity, id, name, value or as_of: a column, COLUMN/100, COLUMN*1000, or a constant (quoted "
            "where it could be meant for a column). Columns named like them need no mention.",
        ),
    ] = None,
    map_file: MapFile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the file: nothing is written.")] = False,
    json_: Json = False,
) -> None:
    """Load batch features: values that were computed elsewhere, each with the time as of which it holds.

    A row says: entity (such as merchant), id (as transactions have it), name (of a batch feature), value, and as_of: a time, or
    a day, which means its beginning in UTC. What is older than its feature allows is unavailable to decisions, what was as of
    more than 90 days ago forgotten at once; both are counted. Nothing is loaded unless every row can be.
    A value never replaces one of a later as_of; loading a file again changes nothing. Workers see a value with the next
    transaction.

    \b
    Examples:
      assay features load dispute-rates.parquet
      assay features load rates.csv --map entity=merchant --map id=shop --map name=merchant_dispute_rate_90d \\
        --map value=percent/100 --map as_of=day
      assay features load dispute-rates.parquet --dry-run --json
    """
    import asyncio
    import json
    import time
    from functools import partial

    from assay.deploy.for_machines import beside_json
    from assay.deploy.progress_bars import progress_bars
    from assay.models.batch_file import read_batch_file
    from assay.schemas.limits import MAX_BATCH_VALUE_AGE_S
    from assay.streams.settings import Settings
    from assay.tables.batch_load import Loaded
    from assay.tables.batch_load import load as write
    from assay.tables.batch_rows import BATCH_LIST

    settings = Settings.load()
    digests = settings.digests()
    values = read_batch_file(file, map_ or (), map_file, now_ms=int(time.time() * 1000), digests=digests)
    ages_s = time.time() - values.as_of_ms / 1000
    forgotten = int((ages_s > MAX_BATCH_VALUE_AGE_S).sum())
    too_old = int((ages_s > [BATCH_LIST[place].allowed_age_s for place in values.feature]).sum()) - forgotten
    loaded = Loaded(0, len(values), 0)
    if not dry_run:
        with progress_bars() as report:
            told = partial(report, "loading")
            loaded = asyncio.run(write(values, settings.redis_url.get_secret_value(), settings.keyspace(), told))
    with beside_json(json_):
        _tell(loaded, dry_run, forgotten, too_old)
    if json_:
        print(json.dumps({"dry_run": dry_run} | loaded._asdict() | {"too_old": too_old, "forgotten": forgotten}))


def _look(last: int) -> "tuple[Tally | None, str]":
    """What the latest decisions have seen, and what is to be said about it."""
    import asyncio

    from assay.deploy.features_seen import tally
    from assay.schemas.errors import ServiceError
    from assay.streams.settings import Settings

    if not last:
        return None, "what was seen is left out"
    try:
        counted = asyncio.run(tally(Settings.load(), last))
    except ServiceError as error:
        return None, f"what was seen is left out: {error.what}"
    note = f"seen in the latest {counted.records:,} decisions" if counted.records else "there are no decisions yet"
    return counted, note + (f"; {counted.others:,} of another list were left out" if counted.others else "")


def _differing(seen: "list[Seen]") -> list[str]:
    """Batch features that the bundle in the settings learnt from otherwise; none where there is no bundle."""
    from assay.deploy.feature_map import differing_coverage
    from assay.models.bundle import read_manifest
    from assay.schemas.errors import BundleError
    from assay.streams.settings import Settings

    try:
        return differing_coverage(read_manifest(Settings.load().bundle).batch_coverage, seen)
    except BundleError:
        return []


def _show(seen: "list[Seen] | None", note: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from assay.deploy.feature_map import NOTHING, feature_rows, span

    console = Console(width=max(LEAST_WIDTH, Console().width))
    table = Table(box=None, pad_edge=False)
    for heading in ("feature", "entity", "window", "source", "allowed age", "default", "seen age", "missing", "never"):
        table.add_column(heading, no_wrap=True)
    for place, row in enumerate(feature_rows()):
        one = None if seen is None else seen[place]
        found: list[Any] = ["", "", ""]
        if one is not None:
            found = [NOTHING if one.age_s is None else span(one.age_s), f"{one.missing:.1%}", f"{one.never:.1%}"]
        table.add_row(*row, *found)
    console.print(table)
    console.print(note[:1].upper() + note[1:] + ".", highlight=False, soft_wrap=True)


def _tell(loaded: "Loaded", dry_run: bool, forgotten: int, too_old: int) -> None:
    if not loaded.values:
        print("The file has no values.", file=sys.stderr)
    if forgotten:
        print(f"{forgotten:,} values are as of so long ago that nobody will see them.", file=sys.stderr)
    if too_old:
        print(f"{too_old:,} values are older than their feature allows: decisions take them for unavailable.", file=sys.stderr)
    if dry_run:
        print(f"{loaded.values:,} values can be loaded; nothing was written.")
        return
    print(f"{loaded.values:,} values loaded into {loaded.rows:,} rows.")
    if loaded.outdated:
        print(
            f"{loaded.outdated:,} of them changed nothing: another, there or in the file, is of the same time or a later one."
        )
