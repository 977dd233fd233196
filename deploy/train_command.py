"""`assay train`: a model bundle from past transactions with labels."""

from pathlib import Path
from typing import Annotated, Any

import typer

from assay.deploy.history_options import (
    BatchDelay,
    BatchFile,
    From,
    Json,
    Label,
    LabelDelay,
    Map,
    MapFile,
    OutcomesFile,
    RatesFile,
    SkipRefused,
    Table,
    Until,
    WarmUp,
    batch_history,
    read,
)

MOST_WITHOUT_HOUR = 0.5  # of the transactions; more are worth a word


def train(
    table: Table,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where the bundle goes: a directory; else that of the settings.")
    ] = None,
    map_: Map = None,
    map_file: MapFile = None,
    label: Label = "fraud",
    label_delay: LabelDelay = 7.0,
    from_: From = None,
    until: Until = None,
    warm_up: WarmUp = 0.0,
    holdout: Annotated[float, typer.Option(min=0, max=0.8, help="Share, the latest, that is kept for the report.")] = 0.15,
    gap: Annotated[float, typer.Option(min=0, help="Days before it that are left out: labels not known yet.")] = 0.0,
    reviews_a_day: Annotated[
        float | None, typer.Option(min=0, help="As many as people can do; else as many as pay off by the costs.")
    ] = None,
    skip_refused: SkipRefused = False,
    outcomes: OutcomesFile = None,
    batch_features: BatchFile = None,
    batch_delay: BatchDelay = 0.0,
    rates: RatesFile = None,
    seed: Annotated[int, typer.Option(help="Of the random choices in training.")] = 7,
    threads: Annotated[int, typer.Option(min=1, help="Processor cores that training uses.")] = 2,
    json_: Json = False,
) -> None:
    """Make a model bundle from past transactions with labels, with the features that the stream computes.

    A column control_share, as on decisions, marks what the control group let through: each counts for all of its like.

    \b
    Examples:
      assay train history.parquet --out bundle
      assay train tx.csv --out bundle --map user_id=customer --map amount=cents/100 --map currency=EUR --label is_fraud
      assay train history.parquet --out bundle --from 2026-01-01 --until 2026-03-01 --gap 7
      assay train history.parquet --out bundle --reviews-a-day 200
      assay train history.parquet --out bundle --outcomes outcomes.jsonl
      assay train history.parquet --out bundle --batch-features dispute-rates.parquet --batch-delay 3
    """
    import time

    from assay.deploy.progress_bars import progress_bars
    from assay.models.bundle import check_writable
    from assay.models.training import Split
    from assay.models.training import train as make
    from assay.streams.settings import Settings
    from assay.tables.rates import SHIPPED_RATES, Rates

    settings = Settings.load(bundle=out, rates=rates)
    check_writable(settings.bundle)
    batch = batch_history(batch_features, batch_delay)
    history, left_out = read(table, map_, map_file, label, from_, until, skip_refused, need_labels=outcomes is None)
    with progress_bars() as report:
        bundle = make(
            history,
            history.labels,
            settings.bundle,
            rates=Rates.load(settings.rates or SHIPPED_RATES),
            batch=batch,
            outcomes=outcomes,
            now_ms=time.time_ns() // 1_000_000,
            label_delay_days=label_delay,
            labelled=history.labelled,
            shares=history.shares,
            split=Split(holdout=holdout, warm_up_days=warm_up, gap_days=gap, reviews_a_day=reviews_a_day),
            seed=seed,
            nthread=threads,
            progress=report,
        )
    _show(bundle)
    if json_:
        import json

        print(json.dumps({"bundle": str(settings.bundle), "version": bundle.version, "left_out": left_out} | bundle.report))


def _show(bundle: Any) -> None:
    from rich.console import Console
    from rich.table import Table as Grid

    report, console = bundle.report, Console()
    counted = [report[part]["transactions"] for part in ("learnt_from", "tuned_on", "held_out")]
    learnt, tuned, held = (report[part] for part in ("learnt_from", "tuned_on", "held_out"))
    console.print(
        f"Learnt from {learnt['transactions']:,} transactions ({learnt['fraud']:,} fraud), tuned on {tuned['transactions']:,} "
        f"({tuned['fraud']:,}); below: the {held['transactions']:,} latest, never seen, with {held['fraud']:,} fraud of "
        f"{report['amount_alone']['fraud_amount']:,.0f} in all.",
        highlight=False,
        soft_wrap=True,
    )
    if held["transactions"]:
        grid = Grid(box=None, pad_edge=False)
        for heading in ("", "average\nprecision", "fraud caught", "declined", "in\nerror", "reviewed", "in\nerror", "saved"):
            grid.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
        for name, quality in [*report["tiers"].items(), ("amount alone", report["amount_alone"])]:
            precision = quality["average_precision"]
            grid.add_row(
                name,
                "-" if precision is None else f"{precision:.3f}",
                f"{quality['fraud_caught']:,} of {quality['fraud']:,}",
                *(f"{quality[count]:,}" for count in ("declined", "genuine_declined", "reviewed", "genuine_reviewed")),
                f"{quality['money_saved']:,.0f}",
            )
        console.print(grid)
    outcomes = report["outcomes"] or {"future": 0, "unknown": 0}
    for count, why in ((outcomes["future"], "known in the future: left out"), (outcomes["unknown"], "of no transaction here")):
        if count:
            console.print(f"{count:,} outcomes were {why}", highlight=False, soft_wrap=True)
    for count, why in (
        (report["left_out"], "no label, or came again: not learnt from"),
        (report["without_rate"], "no rate: no amount"),
        (
            report["without_hour"] if report["without_hour"] > MOST_WITHOUT_HOUR * sum(counted) else 0,
            "no local hour, nor night or weekend: location.time_zone, or a timestamp with its own offset, tells it",
        ),
    ):
        if count:
            console.print(f"{count:,} transactions had {why}", highlight=False, soft_wrap=True)
    console.print(f"Bundle {bundle.version[:12]} in {bundle.path}", highlight=False, soft_wrap=True)
