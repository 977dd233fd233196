"""The benchmark: `make bench`, or `python perf/bench.py --help`. `perf/README.md` says what is measured, and how."""

import argparse
import asyncio
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import report
from command import ended, positive
from contenders import Name, Stand
from drain import Drain, drain_all
from latency import Latency, LatencyPlan, measure_all

from assay.deploy.services import services
from assay.models.bundle import Bundle
from assay.models.training import train
from assay.schemas.transaction import Transaction
from assay.streams.load import Payload, prepare
from assay.streams.simulator import Simulated, simulate
from assay.tables.rates import SHIPPED_RATES, Rates

PARTS = ("drain", "latency", "cpu")
RATES = (500, 2_000, 5_000)
HISTORY_SEED, BACKLOG_SEED = 11, 2_027
HISTORY_DAYS = 10
DAY_MS = 86_400_000

EXAMPLES = """\
examples:
  make bench                                        everything: about a quarter of an hour
  make bench ARGS=--quick                           a look: about two minutes, figures that mean little
  python perf/bench.py --only drain --repeat 5      ours, the floor and stock Faust
  python perf/bench.py --only cpu                   ours alone, by stage
  python perf/bench.py --only latency --workers 1
  python perf/bench.py --write                      keep the result in perf/RESULTS.md

Kafka and Redis are started for the run, unless ASSAY_BOOTSTRAP_SERVERS and ASSAY_REDIS_URL name some.
Progress goes to stderr, tables to stdout; the last line of stdout is one JSON object, null for what was not run.
"""


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, with what `--quick` implies where nothing else was said."""
    parser = argparse.ArgumentParser(
        prog="perf/bench.py",
        description="Measure Assay: drain, latency, CPU by stage.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="small and once: 20,000 transactions, 8 s of load")
    add("--only", choices=PARTS, action="append", help="a part; may be given more than once (default: all)")
    add("--repeat", type=positive, help="how often each is measured (3; quick: 1)")
    add("--transactions", type=positive, help="the backlog of Assay and the floor (100,000; quick: 20,000)")
    add("--faust-transactions", type=positive, help="the backlog of stock Faust, which is slower (40,000; quick: 8,000)")
    add("--users", type=positive, default=20_000, help="different users in backlog and load (%(default)s)")
    add("--seconds", type=positive, help="of load at each rate, after the warm-up (25; quick: 8)")
    add("--warmup", type=positive, help="seconds of load before it that don't count (5; quick: 3)")
    add("--rates", type=positive, nargs="+", default=list(RATES), help="transactions a second (500 2000 5000)")
    add("--workers", type=positive, default=2, help="workers under load; the drain has one (%(default)s)")
    add("--history", type=positive, default=20_000, help="simulated transactions that the models learn from (%(default)s)")
    add("--bundle", type=Path, help="use this bundle instead of training one")
    add("--write", action="store_true", help="put the result into perf/RESULTS.md")
    plan = parser.parse_args(given)
    for name, full, quick in (
        ("repeat", 3, 1), ("transactions", 100_000, 20_000), ("faust_transactions", 40_000, 8_000),
        ("seconds", 25, 8), ("warmup", 5, 3),
    ):  # fmt: skip
        if getattr(plan, name) is None:
            setattr(plan, name, quick if plan.quick else full)
    plan.only = plan.only or list(PARTS)
    return plan


def tell(text: str) -> None:
    """Progress, for somebody who waits."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def run(plan: argparse.Namespace) -> dict[str, Any]:
    """Everything that was asked for. Raises AssayError; whatever was started has ended then."""
    own = tempfile.TemporaryDirectory(prefix="assay-bench-", ignore_cleanup_errors=True)
    with own as name, services(tell=tell) as running:
        folder = Path(name)
        bundle = plan.bundle.resolve() if plan.bundle else folder / "bundle"
        if plan.bundle:
            Bundle.load(bundle)
        else:
            train_bundle(plan.history, bundle)
        drains, latencies = asyncio.run(_measure(plan, Stand(running, bundle, folder)))
        text, figures = report.tables(drains, latencies), report.line(drains, latencies)
        print(f"\n{report.versions(running)}\n\n{text}\n")
        if plan.write:
            report.write(text, figures, _asked(plan), running)
            tell(f"written to {report.RESULTS}")
    return figures


async def _measure(plan: argparse.Namespace, stand: Stand) -> tuple[list[Drain], list[Latency]]:
    prefix = f"bench-{secrets.token_hex(3)}-"
    drains: list[Drain] = []
    latencies: list[Latency] = []
    if "drain" in plan.only or "cpu" in plan.only:
        records: dict[Name, int] = {"assay": plan.transactions}
        if "drain" in plan.only:
            records |= {"floor": plan.transactions, "stock_faust": min(plan.faust_transactions, plan.transactions)}
        tell(f"simulating a backlog of {plan.transactions:,} transactions")
        payloads = _backlog(plan.transactions, plan.users)
        drains = await drain_all(stand, payloads, records, plan.repeat, prefix, tell)
    if "latency" in plan.only:
        load = LatencyPlan(plan.seconds, plan.warmup, plan.users, plan.workers, plan.repeat)
        latencies = await measure_all(stand, plan.rates, load, prefix, tell)
    return drains, latencies


def _history(count: int, users: int, seed: int) -> Iterator[Simulated]:
    """Payments up to now, one a day of each user."""
    days = count / users
    # With a day to spare: how days and nights fall can make the last payments late, and those of the future are refused.
    start_ms = time.time_ns() // 1_000_000 - int((days + 1) * DAY_MS)
    return simulate(seed=seed, transactions=count, users=users, days=days, start_ms=start_ms)


def _backlog(count: int, users: int) -> list[Payload]:
    return prepare((payment.transaction for payment in _history(count, users, BACKLOG_SEED)), stamped=False)


def train_bundle(count: int, out: Path) -> None:
    """A bundle of models that have learnt from so many simulated transactions."""
    tell(f"training on {count:,} simulated transactions")
    history = list(_history(count, max(1, count // HISTORY_DAYS), HISTORY_SEED))
    train(
        [Transaction.model_validate(payment.transaction) for payment in history],
        [payment.fraud for payment in history],
        out,
        rates=Rates.load(SHIPPED_RATES),
    )


def _asked(plan: argparse.Namespace) -> str:
    workers = "1 worker" if plan.workers == 1 else f"{plan.workers} workers"
    return (
        f"{', '.join(plan.only)}{', quick' if plan.quick else ''}: {plan.transactions:,} transactions "
        f"({plan.faust_transactions:,} for stock Faust) of {plan.users:,} users; under load {workers}, "
        f"{plan.seconds} s at each rate after {plan.warmup} s of warm-up."
    )


def main(given: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 2 after an error, 130 after Ctrl-C."""
    plan = arguments(given)
    return ended(lambda: run(plan))


if __name__ == "__main__":
    sys.exit(main())
