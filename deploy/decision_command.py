"""`assay decision`: what was said of a transaction, and what it was made from."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from assay.streams.settings import Settings

NOT_FOUND = 1
NOT_EXPLAINED = 2


def decision(
    user: Annotated[str, typer.Argument(help="user_id of the transaction.")],
    transaction: Annotated[str, typer.Argument(help="transaction_id.")],
    features: Annotated[bool, typer.Option("--features", help="Also show every feature that the models saw.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also why, of an approval: worked out now, with the bundle that decided.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print decision and evidence as one JSON object.")] = False,
) -> None:
    """Find the decision on a transaction, and its evidence: feature values and their ages, rules, models, tier, source.

    Reads the decisions topic from its end, then the evidence that was published with the decision; changes nothing.
    Exits 1 where there is no decision: none was made, or the topic no longer holds it; 2 where it was found and can't be
    explained.

    \b
    Examples:
      assay decision u-17 t-4711
      assay decision u-17 t-4711 --features
      assay decision u-17 t-4711 --explain
      assay decision u-17 t-4711 --json | jq .evidence.ages_ms
    """
    import asyncio

    from assay.streams.settings import Settings

    settings = Settings.load()
    found = asyncio.run(_find(settings, user, transaction))
    if found is None:
        print(f"error: no decision on {transaction} of {user} in {settings.decisions}", file=sys.stderr)
        print("It was not judged yet, or was refused (see the dead letters), or its decision has expired.", file=sys.stderr)
        raise typer.Exit(NOT_FOUND)
    if explain:
        found |= explanation(found, settings)
    if json_:
        import orjson

        print(orjson.dumps(found).decode())
    else:
        _show(found, features)
    if "not_explained" in found:
        print(f"error: {found['not_explained']}", file=sys.stderr)
        raise typer.Exit(NOT_EXPLAINED)


def explanation(found: dict[str, Any], settings: "Settings") -> dict[str, Any]:
    """{"explained": reasons}, after those of the rules that decided; {"not_explained": why} where it can't be."""
    from assay.deploy.explained import explained
    from assay.schemas.errors import AssayError

    said = found["decision"]["explanation"]
    if any(reason["weight"] for reason in said):  # of the score: a rule's own reason has no weight
        return {}
    try:
        reasons = explained(found["decision"], found["evidence"], settings)
    except AssayError as error:
        return {"not_explained": str(error)}
    return {"explained": said + [reason._asdict() for reason in reasons]}


async def find_record(settings: "Settings", user: str, transaction: str) -> Any:
    """The newest decision on a transaction, as it lies in the topic; None where there is none."""
    import orjson

    from assay.deploy.log_search import newest
    from assay.deploy.progress_bars import progress_bars
    from assay.deploy.rebuild_log import Log
    from assay.streams.kafka import client_options
    from assay.streams.reading import partitions_of

    def is_it(record: Any) -> bool:
        return record.value is not None and orjson.loads(record.value).get("transaction_id") == transaction

    partitions = await partitions_of(client_options(settings), settings.decisions)
    async with Log.of(settings) as log:
        with progress_bars() as report:
            return await newest(log, settings.decisions, user.encode(), partitions, is_it, report)


async def _find(settings: "Settings", user: str, transaction: str) -> dict[str, Any] | None:
    """{"decision", "evidence", "at"}: bodies as they were published, where the decision lies; evidence None without one."""
    import orjson

    from assay.deploy.log_search import evidence_of
    from assay.deploy.rebuild_log import Log
    from assay.schemas.instant import Instant
    from assay.schemas.source import Source

    record = await find_record(settings, user, transaction)
    if record is None:
        return None
    body = orjson.loads(record.value)
    decided_ms = Instant.parse(body["decided_at"]).ms
    async with Log.of(settings) as log:
        evidence = await evidence_of(log, settings.evidence, Source(**body["source"]), decided_ms)
    at = {"topic": record.topic, "partition": record.partition, "offset": record.offset, "appended_ms": record.timestamp}
    return {"decision": body, "at": at, "evidence": evidence and orjson.loads(evidence.value)}


def _show(found: dict[str, Any], features: bool) -> None:
    from rich.console import Console

    from assay.deploy.shown_decision import decision_page, evidence_page

    console = Console(highlight=False)
    console.print(decision_page(found["decision"] | {"explanation": found.get("explained", found["decision"]["explanation"])}))
    if found["evidence"] is None:
        console.print("its evidence is not there (any more)", style="dim")
    else:
        console.print(evidence_page(found["evidence"], every=features))
