"""`assay watch`: decisions as they are made."""

from typing import Annotated, Any

import typer


def watch(
    action: Annotated[str | None, typer.Option(help="Only these: approve, review or decline; several by commas.")] = None,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Also the ones that are there already.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    user: Annotated[str | None, typer.Option(help="Only those of this user_id.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print each decision as one line of JSON.")] = False,
) -> None:
    """Show decisions as they are made, until Ctrl-C or --limit. It takes part in no consumer group and disturbs nobody.

    \b
    Examples:
      assay watch
      assay watch --action decline,review
      assay watch --from-beginning --limit 100 --json
    """
    import asyncio

    from assay.schemas.errors import SettingError

    wanted = {name.strip() for name in action.split(",")} if action else None
    if wanted and not wanted <= {"approve", "review", "decline"}:
        raise SettingError("no such action", expected="approve, review, decline", got=str(action))
    asyncio.run(_watch(wanted, user, from_beginning, limit, json_))


async def _watch(wanted: set[str] | None, user: str | None, from_beginning: bool, limit: int | None, as_json: bool) -> None:
    from rich.console import Console

    from assay.deploy.shown_decision import decision_line
    from assay.streams.kafka import client_options
    from assay.streams.reading import assigned, partitions_of, stop
    from assay.streams.settings import Settings

    settings, console, shown = Settings.load(), Console(highlight=False, soft_wrap=True), 0
    options = client_options(settings)
    partitions = await partitions_of(options, settings.decisions)
    consumer = await assigned(options, settings.decisions, range(partitions), from_beginning=from_beginning)
    try:
        while True:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for value in (record.value for record in records):
                    decision = _decision(value)
                    if decision is None or (wanted and decision.get("action") not in wanted):
                        continue
                    if user is not None and decision.get("user_id") != user:
                        continue
                    if as_json:
                        print(value.decode(), flush=True)
                    else:
                        console.print(decision_line(decision))
                    shown += 1
                    if shown == limit:
                        return
    finally:
        await stop(consumer)


def _decision(value: bytes | None) -> dict[str, Any] | None:
    """None for what is no decision: a null value marks that a partition changed hands."""
    import orjson

    try:
        decoded = orjson.loads(value or b"null")
    except ValueError:
        return None
    return decoded if isinstance(decoded, dict) else None
