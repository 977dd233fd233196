"""`assay simulate`: payments with known truth, into a file or onto Kafka."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from assay.streams.simulator import Simulated

DEFAULT_START = "2026-01-01T00:00:00Z"
DEFAULT_RATE = 100.0
SECONDS_BETWEEN_PAYMENTS = 300.0  # of one user onto Kafka: much faster, and everybody looks like a thief who tests cards


def simulate(
    transactions: Annotated[int, typer.Option("--transactions", "-n", min=1, help="How many.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same payments.")] = 1,
    out: Annotated[Path | None, typer.Option(help="File to write: .parquet, .csv or .jsonl.")] = None,
    outcomes: Annotated[Path | None, typer.Option(help="With --out: what became of them, into this .jsonl file.")] = None,
    kafka: Annotated[bool, typer.Option("--kafka", help="Send them to the transactions topic, from now on.")] = False,
    rate: Annotated[float | None, typer.Option(min=0.01, help="Transactions a second; 100 onto Kafka.")] = None,
    days: Annotated[float | None, typer.Option(min=0.001, help="For files: spread over so many days; 30 by default.")] = None,
    users: Annotated[
        int | None,
        typer.Option(min=1, help="How many people pay; 2,000, or onto Kafka as many as pay every five minutes at that rate."),
    ] = None,
    fraud_share: Annotated[float, typer.Option(min=0, max=0.5, help="Share of fraudulent transactions, about.")] = 0.01,
    patterns: Annotated[str, typer.Option(help="Fraud patterns, separated by commas; all by default.")] = "",
    start: Annotated[str, typer.Option(help="For files: when it begins, RFC 3339.")] = DEFAULT_START,
    hurry: Annotated[float, typer.Option(min=1, help="Onto Kafka: outcomes come so many times sooner than in life.")] = 1.0,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object for a machine to read.")] = False,
) -> None:
    """Make up payments: people with habits, merchants, and fraud among them. What is fraud is in the file.

    Patterns: stolen_card, account_takeover, compromised_merchant, card_testing, impossible_travel. Onto Kafka, what became of
    each transaction follows on the outcomes topic, delayed as in life.

    \b
    Examples:
      assay simulate --transactions 100000 --seed 7 --out history.parquet
      assay simulate -n 5000 --out history.parquet --outcomes outcomes.jsonl
      assay simulate -n 5000 --out some.jsonl --patterns stolen_card,card_testing
      assay simulate --kafka --rate 500 -n 20000 --hurry 10000
    """
    import json
    import time

    from assay.schemas.errors import SettingError
    from assay.schemas.instant import Instant
    from assay.streams.fraud_patterns import ALL_PATTERNS
    from assay.streams.simulation_files import check_ending, noting_outcomes, write, write_outcomes
    from assay.streams.simulator import DEFAULT_USERS
    from assay.streams.simulator import simulate as payments_of

    if (out is None) is not kafka:
        raise SettingError("where to?", expected="--out FILE or --kafka", mend="name one of the two")
    if outcomes is not None and (kafka or outcomes.suffix != ".jsonl"):
        raise SettingError(
            "--outcomes can't be taken", expected="--out FILE beside it, and a name that ends in .jsonl", got=str(outcomes)
        )
    if kafka:
        start_ms, rate, days = time.time_ns() // 1_000_000, rate or DEFAULT_RATE, None
        users = users or max(DEFAULT_USERS, round(rate * SECONDS_BETWEEN_PAYMENTS))
    else:
        try:
            start_ms = Instant.parse(start).ms
        except ValueError as error:
            raise SettingError(f"--start is not a time: {error}", expected="RFC 3339", got=start) from error
    chosen = tuple(name.strip() for name in patterns.split(",") if name.strip()) or ALL_PATTERNS
    payments = payments_of(
        seed=seed, transactions=transactions, start_ms=start_ms, users=users or DEFAULT_USERS, days=days, rate=rate,
        fraud_share=fraud_share, patterns=chosen,
    )  # fmt: skip
    tally = _Tally(payments, transactions)
    if out is not None:
        check_ending(out)
        noted: list[tuple[int, bytes]] = []
        count = write(tally if outcomes is None else noting_outcomes(tally, noted), out)
        told: dict[str, Any] = {"transactions": count, "file": str(out)}
        if outcomes is not None:
            told |= {"outcomes": write_outcomes(noted, outcomes), "outcomes_file": str(outcomes)}
    else:
        told = _onto_kafka(tally, rate or DEFAULT_RATE, hurry)
    told |= {"fraud": sum(tally.frauds.values()), "patterns": tally.frauds, "seed": seed}
    print(json.dumps(told) if json_ else "\n".join(f"{name:13} {value}" for name, value in told.items()))


class _Tally:
    """Passes payments on, counts the frauds and moves a progress bar."""

    def __init__(self, payments: "Iterator[Simulated]", total: int) -> None:
        self._payments, self._total = payments, total
        self.frauds: dict[str, int] = {}

    def __iter__(self) -> "Iterator[Simulated]":
        from rich.console import Console
        from rich.progress import track

        follow: Iterable[Simulated] = track(
            self._payments, "simulating", self._total, console=Console(stderr=True), transient=True
        )
        for payment in follow:
            if payment.pattern is not None:
                self.frauds[payment.pattern] = self.frauds.get(payment.pattern, 0) + 1
            yield payment


def _onto_kafka(payments: _Tally, rate: float, hurry: float) -> dict[str, Any]:
    import asyncio

    from assay.streams.kafka import client_options
    from assay.streams.settings import Settings
    from assay.streams.simulation_feed import feed

    settings = Settings.load()
    fed = asyncio.run(
        feed(
            iter(payments),
            options=client_options(settings),
            transactions_topic=settings.incoming,
            outcomes_topic=settings.outcomes,
            rate=rate,
            hurry=hurry,
        )
    )
    return {"transactions": fed.transactions, "outcomes": fed.outcomes, "outcomes_to_come": fed.waiting}
