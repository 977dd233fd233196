"""What the demo concludes: fraud caught and money saved, beside a score by amount alone; latency, by stage."""

from decimal import Decimal

import numpy as np
import numpy.typing as npt
import polars as pl
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.deploy.demo_run import WITHHELD, DemoReport
from assay.deploy.demo_screen import BUDGET_MS
from assay.models.costs import Costs, best_thresholds
from assay.models.evaluate import outcome, ranking
from assay.streams.metrics import STAGES
from assay.tables.rates import SHIPPED_RATES, Rates

MEANINGS = {
    "decode": "read and validate",
    "recall": "profiles from RocksDB; has it a verdict already?",
    "profiles": "fold: features and new rows",
    "entities": "Redis: instrument, BIN, merchant, device, address",
    "models": "three models, rules, policy, reasons",
    "answer": "decisions as bytes",
    "publish": "decisions acknowledged by Kafka",
    "remember": "rows to the changelog and RocksDB, after the answer",
}


def show_summary(report: DemoReport) -> None:
    """Print it for people."""
    console = Console()
    fates = report.fates.filter(pl.col("action").is_not_null())
    rates = Rates.load(SHIPPED_RATES)
    amounts = np.array(
        [
            rates.convert(Decimal(amount), currency, due)
            for amount, currency, due in fates.select("amount", "currency", "due_ms").iter_rows()
        ]
    )
    fraud = fates["fraud"].to_numpy().astype(bool)
    console.print()
    console.print(_verdicts(report, fates, amounts, fraud))
    console.print(_patterns(fates))
    console.print(_outcomes(report.metrics))
    console.print(_latency(report))


def _verdicts(report: DemoReport, fates: pl.DataFrame, amounts: npt.NDArray[np.float64], fraud: npt.NDArray[np.bool_]) -> Table:
    costs: Costs = report.bundle.manifest.costs
    score = fates["fraud_score"].fill_null(0.0).to_numpy()
    ours = outcome((fates["action"] == "decline").to_numpy(), (fates["action"] == "review").to_numpy(), amounts, fraud, costs)
    largest = amounts.max()
    review, decline = (share * largest for share in best_thresholds(amounts / largest, amounts, fraud, costs))
    by_amount = outcome(amounts >= decline, (amounts >= review) & (amounts < decline), amounts, fraud, costs)
    grid = Table(
        title=f"{len(fraud):,} payments, {fraud.sum():,} of them fraud", title_justify="left", box=None, pad_edge=False
    )
    headings = (
        "",
        "average precision",
        "fraud caught",
        "declined in error",
        "reviewed in error",
        "fraud stopped",
        "saved, EUR",
    )
    for heading in headings:
        grid.add_column(heading, justify="left" if not heading else "right")
    for name, ranked, result in (("Assay", score, ours), ("amount alone", amounts, by_amount)):
        precision = ranking(ranked, fraud)["average_precision"]
        grid.add_row(
            name,
            "-" if precision is None else f"{precision:.3f}",
            f"{result['fraud_caught']} of {result['fraud']}",
            f"{result['genuine_declined']:,}",
            f"{result['genuine_reviewed']:,}",
            f"{result['fraud_amount_stopped']:,.0f} of {result['fraud_amount']:,.0f}",
            f"{result['money_saved']:,.0f}",
        )
    return grid


def _patterns(fates: pl.DataFrame) -> Table:
    grid = Table(title="\nby kind of fraud", title_justify="left", box=None, pad_edge=False)
    for heading in ("", "payments", "caught"):
        grid.add_column(heading, justify="left" if not heading else "right")
    caught = pl.col("action") != "approve"
    kinds = fates.filter("fraud").group_by("pattern").agg(pl.len(), caught.sum().alias("caught")).sort("pattern")
    for pattern, count, stopped in kinds.iter_rows():
        name = Text(str(pattern).replace("_", " "))
        if pattern == WITHHELD:
            name.append("  (training never saw this kind)", style="magenta")
        grid.add_row(name, f"{count}", f"{stopped} ({stopped / count:.0%})")
    return grid


def _outcomes(expositions: list[str]) -> str:
    """What has become of the payments, as far as it was heard: card holders and issuers answer later."""
    learnt = {status: count for (status,), count in samples(expositions, "assay_outcomes_total", "status").items()}
    fraud = samples(expositions, "assay_labelled_total", "action", "label")
    known = sum(count for (_, label), count in fraud.items() if label == "fraud")
    stopped = sum(count for (action, label), count in fraud.items() if label == "fraud" and action != "approve")
    return (
        f"\nheard since: {sum(learnt.values()):,.0f} outcomes ({learnt.get('unknown', 0):,.0f} of unknown payments); "
        f"{known:,.0f} frauds are confirmed, of which {stopped:,.0f} were caught"
    )


def samples(expositions: list[str], name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """{values of the labels: sum over several workers} of one metric."""
    found: dict[tuple[str, ...], float] = {}
    for exposition in expositions:
        for family in text_string_to_metric_families(exposition):
            for sample in family.samples:
                if sample.name == name:
                    values = tuple(sample.labels[label] for label in labels)
                    found[values] = found.get(values, 0.0) + sample.value
    return found


def _latency(report: DemoReport) -> Table:
    line = report.line
    within = line["within_deadline"]
    title = (
        f"\nintended send to reply: p50 {line['p50_ms']:.0f} ms, p99 {line['p99_ms']:.0f} ms; "
        f"{within:.2%} within {BUDGET_MS} ms; lost {line['lost']}, contradictory {line['contradictory']}\n"
        "where the time goes, a micro-batch"
    )
    grid = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for heading in ("", "median", "99 %", f"of {BUDGET_MS} ms", ""):
        grid.add_column(heading, justify="left" if not heading else "right")
    for stage, (median, p99) in stage_quantiles(report.metrics).items():
        grid.add_row(stage, f"{median:.1f} ms", f"{p99:.1f} ms", f"{p99 / BUDGET_MS:.0%}", Text(MEANINGS[stage], style="dim"))
    return grid


def stage_quantiles(expositions: list[str]) -> dict[str, tuple[float, float]]:
    """{stage: (median, 99th percentile)} in milliseconds, from the histograms of several workers, interpolated in buckets."""
    counts: dict[str, dict[float, float]] = {stage: {} for stage in STAGES}
    for exposition in expositions:
        for family in text_string_to_metric_families(exposition):
            for sample in family.samples:
                if sample.name == "assay_stage_seconds_bucket":
                    buckets = counts[sample.labels["stage"]]
                    bound = float(sample.labels["le"])
                    buckets[bound] = buckets.get(bound, 0.0) + sample.value
    return {stage: (_quantile(buckets, 0.5), _quantile(buckets, 0.99)) for stage, buckets in counts.items() if buckets}


def _quantile(buckets: dict[float, float], share: float) -> float:
    bounds = sorted(buckets)
    total, below, lower = buckets[bounds[-1]], 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= share * total > 0:
            if bound == float("inf"):
                return lower * 1000
            inside = (share * total - below) / max(buckets[bound] - below, 1e-9)
            return (lower + inside * (bound - lower)) * 1000
        below, lower = buckets[bound], bound
    return 0.0
