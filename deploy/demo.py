"""`assay demo`: everything at once, on a real Kafka and Redis, from nothing to a summary."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    transactions: Annotated[int, typer.Option(min=1_000, help="Live transactions to stream.")] = 21_000,
    rate: Annotated[float, typer.Option(min=50, help="Transactions a second.")] = 600.0,
    history: Annotated[int, typer.Option(min=20_000, help="Simulated transactions to train on.")] = 60_000,
    workers: Annotated[int, typer.Option(min=1, max=4, help="Workers of the consumer group.")] = 2,
    restart: Annotated[bool, typer.Option(help="Stop one worker in the middle, and start it again.")] = False,
    results: Annotated[Path | None, typer.Option(help="Keep every transaction's fate in this Parquet file.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one line of JSON, and nothing else on stdout.")] = False,
) -> None:
    """Train, start workers, stream payments with fraud among them, and show what was caught, how fast, and what it saved.

    Kafka and Redis come from ASSAY_BOOTSTRAP_SERVERS and ASSAY_REDIS_URL, else from containers, else from local processes; what
    is started here ends here. The live payments come from other people than those trained on, and hold a kind of fraud that
    training never saw.

    \b
    Examples:
      assay demo
      assay demo --restart            one worker is stopped and started again meanwhile
      assay demo --json | tail -n 1   for scripts
    """
    import asyncio
    import json
    import signal

    from assay.deploy.demo_run import DemoPlan, run_demo
    from assay.deploy.demo_screen import Screen
    from assay.deploy.demo_summary import show_summary

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C: everything started is stopped
    plan = DemoPlan(transactions, rate, history, workers, restart, results)
    with Screen(quiet=json_) as screen:
        report = asyncio.run(run_demo(plan, screen))
    if not json_:
        show_summary(report)
    print(json.dumps(report.line))
    if report.line["lost"] or report.line["contradictory"]:
        raise typer.Exit(1)
