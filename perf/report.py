"""What came of it: tables for people, one line of JSON for scripts, a dated section for `RESULTS.md`."""

import json
import os
import platform
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from drain import Drain, median_of
from latency import Latency

from assay.deploy import probes
from assay.deploy.kafka_local import KAFKA_VERSION
from assay.deploy.services import Running
from assay.streams.metrics import STAGES

RESULTS = Path(__file__).parent / "RESULTS.md"
PACKAGES = ("faust-streaming", "aiokafka", "xgboost-cpu", "xgboost", "numba", "numpy", "rocksdict", "orjson", "redis")
CONTENDERS = {"assay": "Assay", "floor": "floor: bare aiokafka, no state", "stock_faust": "stock Faust (patched), take"}
COMPUTES = ("decode", "recall", "profiles", "models", "answer")  # without waiting: their CPU is their own
_WAITING = (
    "In the other stages micro-batches wait, and the main thread's CPU of whatever runs meanwhile is counted to them: "
    "stages don't add up."
)
LATENCIES = (("p99_ms", 500), ("p99_ms", 2_000), ("p99_ms", 5_000), ("p999_ms", 5_000))


def line(drains: Sequence[Drain], latencies: Sequence[Latency]) -> dict[str, float | None]:
    """The line for scripts; None for what was not run. Ratios are of medians."""
    ours, cpu_us = median_of(drains, "assay", lambda one: one.per_s), median_of(drains, "assay", lambda one: one.cpu_us)
    faust, floor = (median_of(drains, name, lambda one: one.per_s) for name in ("stock_faust", "floor"))
    figures: dict[str, float | None] = {
        "drain_per_s": _round(ours, 0),
        "drain_vs_faust": _round(ours / faust if ours and faust else None, 2),
        "drain_vs_floor": _round(ours / floor if ours and floor else None, 3),
    }
    for name, rate in LATENCIES:
        of_rate = [getattr(one, name) for one in latencies if one.rate == rate]
        figures[f"{name}_{rate}"] = _round(statistics.median(of_rate) if of_rate else None, 1)
    return figures | {"cpu_us": _round(cpu_us, 1)}


def tables(drains: Sequence[Drain], latencies: Sequence[Latency]) -> str:
    """All that was measured, in Markdown."""
    parts = []
    if drains:
        parts += [_drain_table(drains), _ratios(drains), _stage_table([one for one in drains if one.name == "assay"])]
    if latencies:
        parts.append(_latency_table(latencies))
    return "\n\n".join(parts)


def _drain_table(drains: Sequence[Drain]) -> str:
    rows = []
    for name, title in CONTENDERS.items():
        of_one = [one for one in drains if one.name == name]
        if of_one:
            rows.append(
                (
                    title,
                    f"{of_one[0].records:,}",
                    _spread(of_one, lambda one: one.per_s),
                    f"{statistics.median(one.late_per_s for one in of_one):,.0f}",
                    _spread(of_one, lambda one: one.cpu_us / 10, 1),
                    f"{sum(one.undecided for one in of_one)}",
                    f"{sum(one.contradictory for one in of_one)}",
                )
            )
    head = (
        f"Drain, {_times(drains, lambda one: one.name)}", "records", "decisions/s: min / median / max", "later half, median",
        "CPU s per 100,000: min / median / max", "undecided", "contradictory",
    )  # fmt: skip
    return _table(head, rows)


def _ratios(drains: Sequence[Drain]) -> str:
    figures = line(drains, ())
    said = []
    if figures["drain_vs_faust"] is not None:
        said.append(f"{figures['drain_vs_faust']:.1f} times stock Faust")
    if figures["drain_vs_floor"] is not None:
        said.append(f"{figures['drain_vs_floor']:.2f} of the floor")
    ours = [one for one in drains if one.name == "assay"]
    full = min((one.full_tier or 0.0 for one in ours), default=0.0)
    evidence = min((one.evidence or 0.0 for one in ours), default=0.0)
    compared = f"Ratios of medians: {', '.join(said)}. " if said else ""
    return (
        f"{compared}Of Assay's decisions at least {full:.1%} are in the full tier; "
        f"{evidence:.1%} as many records of evidence, that of changed risk rows included."
    )


def _stage_table(ours: Sequence[Drain]) -> str:
    if not ours:
        return ""
    rows = [(stage, f"{statistics.median(one.stages[stage] for one in ours):.1f}") for stage in STAGES]
    whole = statistics.median(one.cpu_us for one in ours)
    outside = whole - statistics.median(sum(one.stages[stage] for stage in COMPUTES) for one in ours)
    rows += [("everything but " + ", ".join(COMPUTES), f"{outside:.1f}"), ("**the whole process**", f"**{whole:.1f}**")]
    table = _table(("Assay, CPU by stage (drain)", "us a transaction, median"), rows)
    return f"{table}\n\n{_WAITING}"


def _latency_table(latencies: Sequence[Latency]) -> str:
    rows = []
    for rate in dict.fromkeys(one.rate for one in latencies):
        of_one = [one for one in latencies if one.rate == rate]
        middle = sorted(of_one, key=lambda one: one.p99_ms)[len(of_one) // 2]
        rows.append(
            (
                f"{rate:,}/s",
                f"{statistics.median(one.p50_ms for one in of_one):.1f}",
                _spread(of_one, lambda one: one.p99_ms, 1),
                _spread(of_one, lambda one: one.p999_ms, 1),
                f"{min(one.within_deadline for one in of_one):.3%}",
                "/".join(
                    f"{sum(getattr(one, name) for one in of_one)}" for name in ("unanswered", "undecided", "contradictory")
                ),
                f"{min(one.full_tier for one in of_one):.1%}",
                f"{middle.worker_cpu_us:.0f} / {middle.load_cpu_us:.0f}",
                f"{middle.sender_behind_p99_ms:.1f}",
            )
        )
    head = (
        f"Latency, open loop, {_times(latencies, lambda one: one.rate)}",
        "p50 ms", "p99 ms: min / median / max", "p99.9 ms: min / median / max",
        "within deadline", "unanswered/undecided/contradictory", "full tier", "CPU us: worker / load", "load behind, p99 ms",
    )  # fmt: skip
    return _table(head, rows)


def versions(running: Running) -> str:
    """What it ran on, in one line."""
    installed = []
    for package in PACKAGES:
        try:
            installed.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    kafka = f"Kafka {KAFKA_VERSION}" if running.origin.get("kafka") != "environment" else "a Kafka from the environment"
    kafka = f"{kafka} ({running.origin.get('kafka')}), " if running.bootstrap_servers else ""
    redis = probes.ask_redis(running.redis_url).version
    return (
        f"Python {platform.python_version()}, {', '.join(installed)}; {kafka}Redis or "
        f"Valkey {redis} ({running.origin.get('redis')}); {os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    )


def write(text: str, figures: Mapping[str, Any], asked: str, running: Running) -> None:
    """Put a dated section below the heading of `RESULTS.md`, above the older ones."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    section = f"## {now}\n\n{versions(running)}.\n\n{asked}\n\n{text}\n\n```json\n{json.dumps(figures)}\n```\n"
    heading = "# Results\n\nWritten by `perf/*.py --write`, the latest first. What the figures mean: [README](README.md).\n"
    old = RESULTS.read_text().partition("\n## ")[2] if RESULTS.exists() else ""
    RESULTS.write_text(f"{heading}\n{section}" + (f"\n## {old}" if old else ""))


def _spread(of_one: Sequence[Any], figure: Callable[[Any], float], digits: int = 0) -> str:
    values = sorted(figure(one) for one in of_one)
    return " / ".join(f"{value:,.{digits}f}" for value in (values[0], statistics.median(values), values[-1]))


def _times(measured: Sequence[Any], kind: Callable[[Any], object]) -> str:
    count = max(Counter(kind(one) for one in measured).values())
    return "once" if count == 1 else f"{count} times"


def _round(value: float | None, digits: int) -> float | None:
    """NaN, where a run was too short to have a rate, is None too: JSON has no NaN."""
    return None if value is None or value != value else round(value, digits)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["-" * max(3, len(cell)) for cell in head], *rows]
    widths = [max(len(row[column]) for row in lines) for column in range(len(head))]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in lines
    )
