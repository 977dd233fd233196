"""`assay score`: a file of transactions, offline, through the same core as the stream."""

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
    RatesFile,
    SkipRefused,
    Table,
    Until,
    WarmUp,
    batch_history,
    read,
)


def score(
    table: Table,
    bundle: Annotated[Path | None, typer.Option("--bundle", help="The model bundle; else that of the settings.")] = None,
    rules: Annotated[Path | None, typer.Option("--rules", help="Rules (YAML); else those of the settings.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the decisions: .parquet or .jsonl.")] = None,
    map_: Map = None,
    map_file: MapFile = None,
    label: Label = "fraud",
    label_delay: LabelDelay = 7.0,
    from_: From = None,
    until: Until = None,
    warm_up: WarmUp = 0.0,
    tier: Annotated[
        str, typer.Option(help="How much of the system answers: full, no_entities, lead_model or rules_only.")
    ] = "full",
    skip_refused: SkipRefused = False,
    batch_features: BatchFile = None,
    batch_delay: BatchDelay = 0.0,
    rates: RatesFile = None,
    json_: Json = False,
) -> None:
    """Score a file of transactions offline, as the stream would have; with labels, tell fraud caught and money saved.

    \b
    Examples:
      assay score march.parquet --bundle bundle
      assay score march.csv --bundle bundle --rules my-rules.yaml --out decisions.parquet
      assay score tx.parquet --bundle bundle --from 2018-07-01 --warm-up 30 --map user_id=customer_id --json
    """
    from assay.deploy.decision_files import writer
    from assay.deploy.progress_bars import progress_bars
    from assay.models.backtest import Tally, judge_history
    from assay.models.bundle import Bundle
    from assay.models.judge import Judge
    from assay.models.rules import Rules
    from assay.schemas.decision import Tier
    from assay.schemas.errors import SettingError
    from assay.streams.settings import Settings
    from assay.tables.rates import SHIPPED_RATES, Rates

    if tier not in ("full", "no_entities", "lead_model", "rules_only"):
        raise SettingError(f"there is no tier {tier} to score with", expected="full, no_entities, lead_model or rules_only")
    settings = Settings.load(bundle=bundle, rules=rules, rates=rates)
    with writer(out) as write:
        loaded = Bundle.load(settings.bundle)
        judge = Judge(loaded, Rules.load(settings.rules))
        batch = batch_history(batch_features, batch_delay)
        history, left_out = read(table, map_, map_file, label, from_, until, skip_refused)
        first = history.first_after(warm_up)
        tally = Tally()
        known_rates = Rates.load(settings.rates or SHIPPED_RATES)
        with progress_bars() as report:
            options: dict[str, Any] = {
                "batch": batch, "first": first, "label_delay_days": label_delay, "own_declines": judge.rules.ask_own_verdicts,
                "progress": report,
            }  # fmt: skip
            for judged in judge_history(history, judge, known_rates, tier=Tier(tier), **options):
                tally.add(judged)
                write(judged, loaded.version)
    labels = None if history.labels is None else history.labels[first:]
    summary = tally.summary(labels, loaded.manifest.costs, history.labelled[first:])
    _show(summary, out)
    if json_:
        import json

        print(json.dumps({"bundle": loaded.version, "tier": tier, "left_out": left_out} | summary))


def _show(summary: dict[str, Any], out: Path | None) -> None:
    from rich.console import Console

    console = Console()
    actions = ", ".join(f"{count:,} {action}" for action, count in summary["actions"].items())
    lines = [f"{summary['transactions']:,} transactions: {actions}"]
    if summary["repeated"]:
        lines.append(f"{summary['repeated']:,} rows came again: their verdicts are repeated, and count once")
    if summary["rules"]:
        lines.append("Rules that decided: " + ", ".join(f"{rule} {count:,}" for rule, count in summary["rules"].items()))
    lines += [f"Rule {rule} failed: {error}" for rule, error in summary["failed_rules"].items()]
    if "fraud" in summary:
        for name, of in (("", summary), (", as many alerts by amount alone", summary["amount_alone"])):
            lines.append(
                f"Fraud caught{name}: {of['fraud_caught']:,} of {of['fraud']:,} ({of['fraud_caught_share']:.0%}); money saved: "
                f"{of['money_saved']:,.0f} of {of['fraud_amount']:,.0f}; genuine payments declined {of['genuine_declined']:,}, "
                f"reviewed {of['genuine_reviewed']:,}"
            )
    if summary.get("average_precision") is not None:
        alone = summary["amount_alone"]["average_precision"]
        lines.append(
            f"Average precision {summary['average_precision']:.3f} (amount alone {alone:.3f}), AUC {summary['auc']:.3f}"
        )
    if out is not None:
        lines.append(f"Decisions in {out}")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
