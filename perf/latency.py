"""Latency end to end under open-loop load: from when a transaction was due to be sent until its reply is read.

Broker, Redis, worker and load share this machine, so they take CPU from each other, the load generator included.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from contenders import AssayWorker, Stand, assay_workers
from kafka_log import read_decisions, topics_of
from processes import sample_of

from assay.schemas.errors import ServiceError
from assay.streams.load_process import LoadPlan, run_apart

GRACE_S = 10.0
PATIENCE_S = 120.0  # beyond the run itself: simulating and encoding the payloads

Tell = Callable[[str], None]


@dataclass(frozen=True)
class LatencyPlan:
    """How the load is to be."""

    seconds: float
    warmup_s: float
    users: int
    workers: int
    repeat: int
    seed: int = 4_000


@dataclass(frozen=True)
class Latency:
    """One rate, once. `undecided` and `contradictory` come from the decisions topic, `unanswered` from the replies."""

    rate: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    within_deadline: float
    unanswered: int
    undecided: int
    contradictory: int
    full_tier: float
    worker_cpu_us: float
    load_cpu_us: float
    sender_behind_p99_ms: float


async def measure_all(stand: Stand, rates: Sequence[int], plan: LatencyPlan, prefix: str, tell: Tell) -> list[Latency]:
    """Each rate in turn, `plan.repeat` times, each time with fresh workers. Raises ServiceError."""
    measured = []
    for turn in range(1, plan.repeat + 1):
        for rate in rates:
            tell(f"latency {turn} of {plan.repeat}: {rate:,} a second for {plan.seconds:.0f} s")
            one = await measure(stand, rate, plan, f"{prefix}load-{rate}-{turn}-")
            tell(f"  p50 {one.p50_ms:.0f} ms, p99 {one.p99_ms:.0f} ms, p99.9 {one.p999_ms:.0f} ms")
            measured.append(one)
    return measured


async def measure(stand: Stand, rate: int, plan: LatencyPlan, prefix: str) -> Latency:
    """One rate, once. Raises ServiceError."""
    settings = stand.settings(prefix)
    async with topics_of(settings):
        with assay_workers(stand, prefix, plan.workers) as workers:
            for worker in workers:
                await worker.ready()
            summary, cpu_s = await load_with(stand, rate, plan, prefix, workers)
            metrics = "\n".join([await worker.metrics() for worker in workers])
        decisions = await read_decisions(settings)
    if summary["p50_ms"] is None:
        raise ServiceError(f"no transaction was answered at {rate} a second", mend="look at the worker's log")
    decided = sample_of(metrics, "assay_decisions_total")
    return Latency(
        rate=rate,
        **{name: summary[name] for name in ("p50_ms", "p99_ms", "p999_ms", "within_deadline")},
        unanswered=summary["lost"],
        undecided=summary["transactions"] - decisions.transactions,
        contradictory=max(decisions.contradictory, summary["contradictory"]),
        full_tier=sample_of(metrics, "assay_decisions_total", tier="full") / max(1.0, decided),
        worker_cpu_us=cpu_s / max(1, summary["transactions"]) * 1e6,
        load_cpu_us=summary["load_cpu_us"],
        sender_behind_p99_ms=summary["sender_behind_p99_ms"],
    )


async def load_with(
    stand: Stand, rate: int, plan: LatencyPlan, prefix: str, workers: Sequence[AssayWorker]
) -> tuple[dict[str, Any], float]:
    """The summary of a run, and the CPU seconds of the workers meanwhile."""
    transactions = int(rate * (plan.warmup_s + plan.seconds))
    load = LoadPlan(
        rate=rate,
        transactions=transactions,
        seed=plan.seed + rate,
        users=plan.users,
        days=transactions / plan.users,  # one a day of each user, as in the history
        bootstrap_servers=stand.running.bootstrap_servers,
        topic_prefix=prefix,
        warmup_s=plan.warmup_s,
        grace_s=GRACE_S,
    )
    summary: dict[str, Any] = {}
    began_s = 0.0
    async with asyncio.timeout(plan.warmup_s + plan.seconds + GRACE_S + PATIENCE_S):
        async with contextlib.aclosing(run_apart(load)) as events:
            async for event in events:
                if event["event"] == "prepared":
                    began_s = sum(worker.process.cpu_s() for worker in workers)
                elif event["event"] == "summary":
                    summary = event
                for worker in workers:
                    worker.process.must_run()
    return summary, sum(worker.process.cpu_s() for worker in workers) - began_s
