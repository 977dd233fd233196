"""What came of a course: a table for people, one line of JSON for scripts, a section for `perf/RESULTS.md`."""

import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from assay.deploy.kafka_local import KAFKA_VERSION

from .checker import MUST_BE_ZERO
from .course import Course, Passed
from .faults import kill
from .fleet import Ending
from .stand import WORKERS

RESULTS = Path(__file__).parents[2] / "perf" / "RESULTS.md"
PACKAGES = ("faust-streaming", "aiokafka", "rocksdict")
HEAD = (
    "fault", "times", "s", "longest gap, s", "transactions", "lost", "contradictory", "profiles differ", "otherwise wrong",
    "repeated", "unanswered",
)  # fmt: skip
COLUMNS = ("lost", "contradictory", "profiles_differ")  # of what must be zero: the others are in one


def line(course: Course) -> dict[str, Any]:
    """For scripts."""
    counts = course.counts
    return {
        "kills": sum(leg.times for leg in course.passed if leg.fault == kill.__doc__),
        "transactions": counts.transactions,
        "lost": counts.lost,
        "contradictory": counts.contradictory,
        "profiles_differ": counts.profiles_differ,
        "worst_gap_s": counts.worst_gap_s,
    }


def text(course: Course, rate: float) -> str:
    """For people, in Markdown."""
    stand, worst = course.stand, max((leg.gap for leg in course.passed), default=None)
    sent = ", ".join(f"{number:,} {kind}" for kind, number in sorted(stand.traffic.sent.items(), key=lambda item: -item[1]))
    parts = [
        f"Seed {stand.seed}, {rate:.0f} transactions a second onto {WORKERS} workers: {sent}.",
        "Counts are of all that was sent until then.",
        table(course.passed),
        endings(stand.fleet.endings),
    ]
    if worst is not None:
        parts.append(f"The longest gap, {worst.seconds:.1f} s: {worst.about}.")
    if course.missing or stand.traffic.failed:
        parts.append(f"Of what the broker had taken {course.missing} are missing; {stand.traffic.failed} could not be sent.")
    parts += [leg.unsettled for leg in course.passed if leg.unsettled]
    if course.broke:
        parts.append(f"It ended early, and what came last was not checked. {course.broke}")
    return "\n\n".join(parts)


def row(passed: Passed) -> tuple[str, ...]:
    """One leg, as cells of the table."""
    counts = passed.counts
    others = sum(getattr(counts, name) for name in MUST_BE_ZERO if name not in COLUMNS)
    figures = (counts.transactions, *(getattr(counts, name) for name in COLUMNS), others, counts.repeated, counts.unanswered)
    leg = (passed.fault, str(passed.times), f"{passed.lasted_s:.0f}", f"{passed.gap.seconds:.1f}")
    return (*leg, *(f"{figure:,}" for figure in figures))


def table(passed: Sequence[Passed]) -> str:
    """One line for each leg."""
    rows = [HEAD, tuple("-" * max(3, len(cell)) for cell in HEAD), *map(row, passed)]
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(HEAD))]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |" for cells in rows
    )


def endings(fleet_endings: Sequence[Ending]) -> str:
    """Workers that ended by themselves, each reason once with how often."""
    said: dict[str, int] = {}
    for ending in fleet_endings:
        reason = f"status {ending.status}: {ending.said}"
        said[reason] = said.get(reason, 0) + 1
    lines = [f"- {number} times, {reason}" for reason, number in sorted(said.items(), key=lambda item: -item[1])]
    return "\n".join([f"Workers that ended by themselves, to be started again: {len(fleet_endings)}.", *lines])


def write(text: str, figures: dict[str, Any]) -> None:
    """Put a dated section below the heading of `RESULTS.md`, above the older ones."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    versions = ", ".join(f"{package} {metadata.version(package)}" for package in PACKAGES)
    on = f"Python {platform.python_version()}, {versions}; Kafka {KAFKA_VERSION} (local process); {os.cpu_count()} cores"
    section = f"## {now}: chaos\n\n{on}, {platform.system()} {platform.machine()}.\n\n{text}\n\n"
    section += f"```json\n{json.dumps(figures)}\n```\n"
    heading, _, older = RESULTS.read_text().partition("\n## ")
    RESULTS.write_text(f"{heading.rstrip()}\n\n{section}" + (f"\n## {older}" if older else ""))
