"""How fast one process works off a backlog: ours, the floor, and stock Faust, one after the other, several times over.

The backlog lies there before a contender starts. Its rate counts from its first decision, so that start-up is not in it, by
the broker's clock. CPU is that of the contender's process over the same span.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from contenders import AssayWorker, Name, Stand, assay_workers, peer
from kafka_log import Ends, ends_of, fill, read_decisions, topics_of
from processes import Watched, sample_of

from assay.schemas.errors import ServiceError
from assay.streams.load import Payload
from assay.streams.metrics import STAGES
from assay.streams.settings import Settings

LOOK_S = 0.1
STALLED_S = 60.0
EVIDENCE_TIMEOUT_S = 15.0

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Drain:
    """One contender, once.

    Attributes:
        records: the size of its backlog.
        per_s: decisions a second, from the first to the last.
        late_per_s: the same of the later half.
        cpu_us: CPU microseconds of the process for each transaction in that span.
        undecided, contradictory: transactions without a decision, and with two that differ.
        stages: main-thread CPU microseconds a transaction by stage (ours only).
        full_tier: share of decisions with all inputs (ours only).
        evidence: share of decisions whose evidence is published (ours only).
    """

    name: Name
    records: int
    per_s: float
    late_per_s: float
    cpu_us: float
    undecided: int
    contradictory: int
    stages: dict[str, float] = field(default_factory=dict)
    full_tier: float | None = None
    evidence: float | None = None


@dataclass(frozen=True)
class Sample:
    """How many decisions there were at a moment, and what CPU had been used."""

    decisions: int
    cpu_s: float


async def drain_all(
    stand: Stand, payloads: Sequence[Payload], records: dict[Name, int], repeat: int, prefix: str, tell: Tell
) -> list[Drain]:
    """Each contender over its own number of records, in turn, `repeat` times. Raises ServiceError when one fails or stalls."""
    drains = []
    for turn in range(1, repeat + 1):
        for name, count in records.items():
            settings = stand.settings(f"{prefix}{name}-{turn}-")
            tell(f"drain {turn} of {repeat}: {name}, {count:,} transactions")
            one = await drain_one(stand, settings, name, payloads[:count])
            tell(f"  {one.per_s:,.0f} a second, {one.cpu_us:.0f} us of CPU each")
            drains.append(one)
    return drains


async def drain_one(stand: Stand, settings: Settings, name: Name, payloads: Sequence[Payload]) -> Drain:
    """One contender, once. Raises ServiceError."""
    async with topics_of(settings), ends_of(settings) as ends:
        await fill(settings, payloads)
        metrics = ""
        async with _contender(stand, settings, name) as (process, worker):
            samples = await _watch(ends, settings.decisions, process, len(payloads))
            if worker is not None:
                metrics = await _evidence_settled(ends, settings, worker)
                samples.append(Sample(samples[-1].decisions, process.cpu_s()))
        evidence = await ends.count(settings.evidence)
        decisions = await read_decisions(settings)
    of_ours: dict[str, Any] = {}
    if metrics:
        full = sample_of(metrics, "assay_decisions_total", tier="full") / max(1.0, sample_of(metrics, "assay_decisions_total"))
        of_ours = {"stages": stages_of(metrics), "full_tier": full, "evidence": evidence / max(1, decisions.transactions)}
    return Drain(
        name=name,
        records=len(payloads),
        per_s=decisions.per_s,
        late_per_s=decisions.late_per_s,
        cpu_us=cpu_us_between(samples),
        undecided=len(payloads) - decisions.transactions,
        contradictory=decisions.contradictory,
        **of_ours,
    )


@asynccontextmanager
async def _contender(stand: Stand, settings: Settings, name: Name) -> AsyncIterator[tuple[Watched, AssayWorker | None]]:
    if name == "assay":
        with assay_workers(stand, settings.topic_prefix) as [worker]:
            yield worker.process, worker
    else:
        with peer(stand, settings, name) as process:
            yield process, None


async def _watch(ends: Ends, topic: str, process: Watched, until: int) -> list[Sample]:
    """Look until there are so many decisions."""
    samples, moved = [Sample(0, process.cpu_s())], time.monotonic()
    while samples[-1].decisions < until:
        await asyncio.sleep(LOOK_S)
        count = await ends.count(topic)
        if count > samples[-1].decisions:
            moved = time.monotonic()
        elif time.monotonic() - moved > STALLED_S:
            raise process.failure(f"decided nothing for {STALLED_S:.0f} s, at {count} of {until}")
        samples.append(Sample(count, process.cpu_s()))
    return samples


async def _evidence_settled(ends: Ends, settings: Settings, worker: AssayWorker) -> str:
    """Its metrics, once evidence, which is published behind the decisions, has caught up: its CPU is to be in the figure."""
    give_up = time.monotonic() + EVIDENCE_TIMEOUT_S
    while True:
        metrics = await worker.metrics()
        if not metrics:
            raise ServiceError("the worker does not show its metrics", mend="see that nothing else took its port")
        settled = await ends.count(settings.evidence) + sample_of(metrics, "assay_evidence_dropped_total")
        if settled >= sample_of(metrics, "assay_decisions_total") or time.monotonic() > give_up:
            return metrics
        await asyncio.sleep(LOOK_S)


def cpu_us_between(samples: Sequence[Sample]) -> float:
    """CPU microseconds a decision, from the first sample with a decision to the last.

    Where that one has more than half of all, from the sample before it.

    >>> cpu_us_between([Sample(0, 5.0), Sample(100, 6.0), Sample(900, 6.5), Sample(1_100, 7.0)])
    1000.0
    """
    first = next(index for index, sample in enumerate(samples) if sample.decisions > 0)
    if samples[first].decisions > samples[-1].decisions / 2:
        first -= 1
    return (samples[-1].cpu_s - samples[first].cpu_s) / (samples[-1].decisions - samples[first].decisions) * 1e6


def stages_of(metrics: str) -> dict[str, float]:
    """CPU microseconds a transaction of each stage, by the worker's own account."""
    transactions = max(1.0, sample_of(metrics, "assay_transactions_total"))
    return {stage: sample_of(metrics, "assay_stage_cpu_seconds_total", stage=stage) / transactions * 1e6 for stage in STAGES}


def median_of(drains: Sequence[Drain], name: Name, figure: Callable[[Drain], float]) -> float | None:
    """The median of a contender's figure; None when it did not run."""
    values = [figure(one) for one in drains if one.name == name]
    return statistics.median(values) if values else None
