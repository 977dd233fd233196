"""`assay send`: one transaction, and its decision."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

REPEATED = "this id was sent before: the decision is the one that was made then"


def send(
    file: Annotated[str | None, typer.Argument(help="A file with one transaction as JSON; - for standard input.")] = None,
    amount: Annotated[str | None, typer.Option(help="Instead of a file: the amount, in major units.")] = None,
    currency: Annotated[str, typer.Option(help="ISO 4217.")] = "EUR",
    user: Annotated[str, typer.Option(help="user_id.")] = "u-trial",
    merchant: Annotated[str, typer.Option(help="merchant.id.")] = "m-trial",
    category: Annotated[str, typer.Option(help="merchant.category: 4 digits.")] = "5411",
    country: Annotated[str, typer.Option(help="Of merchant and payer, ISO 3166-1.")] = "DE",
    device: Annotated[str, typer.Option(help="device.id.")] = "d-trial",
    instrument: Annotated[str, typer.Option(help="instrument.id: a token, never a card number.")] = "i-trial",
    channel: Annotated[str, typer.Option(help="ecom, pos, atm, transfer, other.")] = "ecom",
    id_: Annotated[str | None, typer.Option("--id", help="transaction_id; a new one when absent.")] = None,
    timeout: Annotated[float, typer.Option(min=0.01, max=60, help="Seconds to wait. A checkout waits 0.2.")] = 2.0,
    json_: Annotated[bool, typer.Option("--json", help="Print the decision as one line of JSON.")] = False,
) -> None:
    """Send one transaction and wait for its decision. Exits 1 when none comes in time, 2 when it is refused.

    Sending the same id again gets the same decision, word for word.

    \b
    Examples:
      assay send --amount 25.90
      assay send --amount 12000 --user u-17 --category 5944
      assay send transaction.json --timeout 0.2
      head -1 some.jsonl | assay send - --json
    """
    import asyncio
    import time

    import orjson
    from rich.console import Console

    from assay.deploy.shown_decision import decision_page
    from assay.schemas.errors import DecisionTimeout, SettingError
    from assay.schemas.headers import EXPLAIN_HEADER
    from assay.streams.client import DecisionClient
    from assay.streams.settings import Settings

    if (file is None) is (amount is None):
        raise SettingError("what is to be sent?", expected="a file, - or --amount", mend="name one of them")
    if file is not None:
        transaction = _read(file)
    else:
        transaction = {
            "transaction_id": id_ or f"t-{time.time_ns():x}",
            "user_id": user,
            "amount": amount,
            "currency": currency,
            "timestamp": time.time_ns() // 1_000_000,
            "merchant": {"id": merchant, "category": category, "country": country},
            "instrument": {"id": instrument, "issuer_country": country},
            "location": {"country": country},
            "device": {"id": device},
            "channel": channel,
        }

    async def ask() -> tuple[dict[str, Any], float]:
        async with DecisionClient.of(Settings.load()) as client:
            began = time.monotonic()
            decision = await client.decide(transaction, timeout, headers=[(EXPLAIN_HEADER, b"1")])
            if client.repeats > client.conflicts:  # of those the client warns
                print(REPEATED, file=sys.stderr)
            return decision.model_dump(mode="json"), (time.monotonic() - began) * 1000

    try:
        decision, waited_ms = asyncio.run(ask())
    except DecisionTimeout as error:
        print(f"error: {error}", file=sys.stderr)
        print("Does a worker run? `assay doctor` looks; `assay worker` starts one.", file=sys.stderr)
        raise typer.Exit(1) from None
    if json_:
        print(orjson.dumps(decision).decode())
    else:
        Console(highlight=False).print(decision_page(decision, waited_ms))


def _read(file: str) -> dict[str, Any]:
    """Numbers keep their digits: they are sent as they were written."""
    import json
    from decimal import Decimal

    from assay.schemas.errors import InputError

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
        transaction = json.loads(text, parse_float=Decimal)
    except (OSError, ValueError) as error:
        raise InputError(f"{file} can't be read: {error}", expected="one transaction as a JSON object") from error
    if not isinstance(transaction, dict):
        raise InputError(f"{file} holds no transaction", expected="one JSON object", got=type(transaction).__name__)
    return transaction
