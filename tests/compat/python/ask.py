"""Asks about every transaction on stdin at once, and writes what each call ended with: one JSON object a line."""

import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

PATIENCE_S = 60.0
Transactions = list[dict[str, Any]]
Lines = list[dict[str, Any]]


def shown(name: str) -> ModuleType:
    """A file of this folder, as a page shows it."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def assay(bootstrap: str, transactions: str, reply_topic: str, asked: Transactions) -> Lines:
    """Through our own client."""
    from assay.schemas.errors import DecisionRefused
    from assay.streams.client import DecisionClient

    async def one(transaction: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {"answer": {"action": await shown("decide").action_for(client, transaction, PATIENCE_S)}}
        except ValueError as refused:
            why = cast(DecisionRefused, refused.__cause__)
            return {"error": {"code": why.code, "field": why.field}}

    async with DecisionClient(bootstrap, transactions_topic=transactions, reply_topic=reply_topic) as client:
        return await asyncio.gather(*map(one, asked))


async def faust(bootstrap: str, transactions: str, _: str, asked: Transactions) -> Lines:
    """Through Faust's `ask()`."""
    app, agent = shown("faust_agent").checkout(bootstrap, transactions)
    await app.start_client()
    async with asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(*(agent.ask(one, key=one["user_id"]) for one in asked))
    return [{"error": answer["error"]} if answer["tier"] == "refused" else {"answer": answer} for answer in answers]


async def librdkafka(bootstrap: str, transactions: str, reply_topic: str, asked: Transactions, **producer: Any) -> Lines:
    """Through librdkafka's producer and consumer."""
    return _asked(shown("librdkafka").Checkout(bootstrap, transactions, reply_topic, 1, **producer), asked)


def _asked(checkout: Any, asked: Transactions) -> Lines:
    replies = [checkout.decide(transaction) for transaction in asked]
    lines: Lines = []
    for reply in replies:
        try:
            lines.append({"answer": reply.result(PATIENCE_S)})
        except ValueError as refused:
            lines.append({"error": refused.args[0]})
    checkout.close()
    return lines


async def framed(bootstrap: str, transactions: str, reply_topic: str, asked: Transactions, registry: str) -> Lines:
    """Through Confluent's serialisers."""
    lines = _asked(shown("framed").FramedCheckout(registry, bootstrap, transactions, reply_topic, 1), asked)
    # In Protobuf's own JSON integers are texts, and what is empty is left out: the rest can be compared as it is.
    plain = ("transaction_id", "user_id", "fraud_score", "action", "tier", "decided_at")
    return [
        {"answer": {name: line["answer"][name] for name in plain if name in line["answer"]}} if "answer" in line else line
        for line in lines
    ]


async def librdkafka_crc32(bootstrap: str, transactions: str, reply_topic: str, asked: Transactions) -> Lines:
    """The same with its default partitioner."""
    return await librdkafka(bootstrap, transactions, reply_topic, asked, partitioner="consistent_random")


def main() -> None:
    bootstrap, transactions, reply_topic, client, *more = sys.argv[1:]
    asked = [json.loads(line) for line in sys.stdin]
    ask: Any = {
        "assay": assay,
        "faust": faust,
        "librdkafka": librdkafka,
        "librdkafka-crc32": librdkafka_crc32,
        "framed": framed,
    }[client]
    for transaction, line in zip(asked, asyncio.run(ask(bootstrap, transactions, reply_topic, asked, *more)), strict=True):
        print(json.dumps({"asked": transaction["transaction_id"], **line}))
    sys.stdout.flush()
    os._exit(0)  # a Faust app in client mode does not end when it is stopped: its consumer's thread goes on


if __name__ == "__main__":
    main()
