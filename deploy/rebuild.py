"""`assay rebuild`: the profiles, and `assay rebuild entities`: the entity windows, made anew from the transactions topic."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from assay.deploy.rebuild_entities import RebuiltEntities
    from assay.deploy.rebuild_outcomes import RebuiltOutcomes
    from assay.deploy.rebuild_run import Rebuilt

WOULD_CHANGE = 1
app = typer.Typer(add_completion=False)

_Json = Annotated[bool, typer.Option("--json", help="End with one JSON object for a machine to read.")]


@app.callback(invoke_without_command=True)
def rebuild(
    context: typer.Context,
    until: Annotated[
        str,
        typer.Option(
            help="Up to where transactions are folded, and where workers go on: commit, earliest or end of the topic."
        ),
    ] = "commit",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would change; exits 1 where something would.")
    ] = False,
    json_: _Json = False,
) -> None:
    """Make all profiles anew from the transactions topic, with the workers stopped.

    The way out where a worker refuses to start: the changelog was deleted, cut off or written by another version; the
    transactions topic was made anew or its number of partitions changed on purpose; the group's offset was set;
    ASSAY_HASH_KEY was changed. It folds what the topic still holds, as workers do, and puts the rows into the changelog, from
    which workers read them when they start. What has expired is lost to the profiles. No decision is made or changed.

    Workers go on at the group's offset. With "--until earliest" all that is in the topic gets its verdict (the same one, where
    it has one), with "--until end" what has none yet gets none.

    It takes disk space in ASSAY_DATA_DIR, about twice the size of the profiles. Stopped before it publishes, it has changed
    nothing; stopped later, workers refuse to start until it is run again.

    \b
    Examples:
      assay rebuild --dry-run          what would change
      assay rebuild
      assay rebuild --until earliest   the topic was made anew: everything in it is to get its verdict
      assay rebuild --json | jq .changed
      assay rebuild entities           the entity windows in Redis instead
      assay rebuild outcomes           what became of transactions, in Redis
    """
    if context.invoked_subcommand is not None:
        return
    import asyncio

    from assay.deploy.for_machines import beside_json
    from assay.deploy.progress_bars import progress_bars
    from assay.deploy.rebuild_log import Until
    from assay.deploy.rebuild_run import rebuild as run
    from assay.schemas.errors import SettingError
    from assay.streams.settings import Settings

    if until not in list(Until):
        raise SettingError(f"--until can't be {until}", expected=", ".join(Until))
    with progress_bars() as report:
        rebuilt = asyncio.run(run(Settings.load(), Until(until), dry_run=dry_run, report=report))
    summary = summarise(rebuilt)
    with beside_json(json_):
        _show(rebuilt, dry_run)
    if json_:
        import json

        print(json.dumps({"dry_run": dry_run, "until": until} | summary))
    if dry_run and summary["changes"]:
        raise typer.Exit(WOULD_CHANGE)


@app.command()
def entities(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read everything, and change nothing.")] = False,
    json_: _Json = False,
) -> None:
    """Make the entity windows in Redis anew from the transactions topic, with the workers stopped.

    The way out where Redis has lost them, where observations were dropped in a long outage, or after a change of
    ASSAY_REDIS_SHARDS or ASSAY_HASH_KEY. The windows that are there are deleted; then they see all transactions that the topic
    still holds up to the group's offset, in the order in which they were appended, refused ones and repeats left out. Batch
    features under another key are deleted, too: nobody finds them. What else lies in Redis stays as it is.

    Stopped in the middle, windows are incomplete until it is run again.

    \b
    Examples:
      assay rebuild entities --dry-run
      assay rebuild entities
      assay rebuild entities --json | jq .observed
    """
    import asyncio

    from assay.deploy.for_machines import beside_json
    from assay.deploy.progress_bars import progress_bars
    from assay.deploy.rebuild_entities import rebuild_entities
    from assay.streams.settings import Settings

    with progress_bars() as report:
        found = asyncio.run(rebuild_entities(Settings.load(), dry_run=dry_run, report=report))
    with beside_json(json_):
        _show_entities(found, dry_run)
    if json_:
        import json
        from dataclasses import asdict

        numbers = {"keys": found.keys, "batch_rows": found.batch_rows, "observed": found.observed} | asdict(found.counts)
        print(json.dumps({"dry_run": dry_run} | numbers | {"partitions": [asdict(span) for span in found.spans]}))


@app.command()
def outcomes(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read everything, and change nothing.")] = False,
    json_: _Json = False,
) -> None:
    """Make what became of transactions anew in Redis from the topics, with the workers stopped.

    The way out where Redis has lost it, or after a change of ASSAY_REDIS_SHARDS or ASSAY_HASH_KEY. The rows of risk and what is
    kept of decided transactions are deleted; then transactions that the topics still hold with their decisions (of the last
    ASSAY_OUTCOME_DAYS) are kept again, our own declines are counted, and outcomes up to the group's offset are applied. What
    else lies in Redis stays as it is.

    Stopped in the middle, it is incomplete until it is run again.

    \b
    Examples:
      assay rebuild outcomes --dry-run
      assay rebuild outcomes
      assay rebuild outcomes --json | jq .applied
    """
    import asyncio
    import json
    from dataclasses import asdict

    from assay.deploy.for_machines import beside_json
    from assay.deploy.progress_bars import progress_bars
    from assay.deploy.rebuild_outcomes import rebuild_outcomes
    from assay.streams.settings import Settings

    with progress_bars() as report:
        found = asyncio.run(rebuild_outcomes(Settings.load(), dry_run=dry_run, report=report))
    with beside_json(json_):
        _show_outcomes(found, dry_run)
    if json_:
        print(json.dumps({"dry_run": dry_run} | asdict(found)))


def _show_outcomes(found: "RebuiltOutcomes", dry_run: bool) -> None:
    from rich.console import Console

    console, would = Console(highlight=False), "would be " if dry_run else ""
    console.print(f"{found.keys:,} keys {would}deleted, {found.kept:,} transactions {would}kept.")
    if dry_run:
        console.print(f"{found.read:,} outcomes read, {found.invalid:,} invalid. Not looked up: which transactions they find.")
    else:
        left_out = f"{found.unknown:,} of unknown transactions and {found.invalid:,} invalid ones left out"
        console.print(f"{found.applied:,} outcomes applied, {left_out}.")
    console.print("Nothing was changed." if dry_run else "Done: workers may be started.")


def _show_entities(found: "RebuiltEntities", dry_run: bool) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    would = "would be " if dry_run else ""
    console.print(f"{found.keys:,} keys {would}deleted, {found.observed:,} transactions {would}observed.")
    console.print(
        f"{found.counts.transactions - found.observed:,} repeats and {found.counts.refused:,} refused records left out."
    )
    if found.batch_rows:
        console.print(
            f"{found.batch_rows:,} rows of batch features under another ASSAY_HASH_KEY {would}deleted: load them again."
        )
    _say_expired(console, "windows", [span.partition for span in found.spans if span.first])
    console.print("Nothing was changed." if dry_run else "Done: workers may be started.")


def _say_expired(console: "Console", what: str, partitions: list[int]) -> None:
    if partitions:
        those = ", ".join(map(str, partitions))
        console.print(f"Older transactions have expired: {what} begin with what is left (partitions {those}).", highlight=False)


def summarise(rebuilt: "Sequence[Rebuilt]") -> dict[str, Any]:
    """Of all partitions, and each."""
    from dataclasses import asdict

    from assay.agents.rebuild import Counts, Difference

    counts = sum((one.counts for one in rebuilt), Counts())
    found = sum((one.difference for one in rebuilt), Difference())
    each = [asdict(one.span) | asdict(one.counts) | asdict(one.difference) for one in rebuilt]
    return asdict(counts) | asdict(found) | {"changes": bool(found), "partitions": each}


def _show(rebuilt: "Sequence[Rebuilt]", dry_run: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(box=None, pad_edge=False)
    columns = ("partition", "from", "until", "transactions", "refused", "rows equal", "changed", "new", "gone")
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for one in rebuilt:
        span, counts, found = one.span, one.counts, one.difference
        numbers = (
            span.partition, span.first, span.end, counts.transactions, counts.refused,
            found.equal, found.changed, found.added, found.removed,
        )  # fmt: skip
        table.add_row(*(f"{number:,}" for number in numbers))
    console.print(table)
    _say_expired(console, "profiles", [one.span.partition for one in rebuilt if one.span.first])
    console.print("Nothing was changed." if dry_run else "Done: workers may be started.", highlight=False)
