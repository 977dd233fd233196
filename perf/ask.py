"""What a caller waits for its decision, through our client in a process of its own, beside bare producing and consuming.

`make bench-ask`, or `python perf/ask.py --help`.
"""

import argparse
import asyncio
import json
import secrets
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import report
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from ask_process import BARE_PARTITIONS, Asked, Plan
from bench import tell, train_bundle
from command import ended, positive
from contenders import Stand, assay_workers
from kafka_log import topics_of
from processes import running

from assay.deploy.services import services
from assay.schemas.errors import ServiceError
from assay.streams.kafka import client_options

RATES = (100, 1_000, 5_000)
ASK = Path(__file__).with_name("ask_process.py")
PATIENCE_S = 120.0  # beyond the run itself
HOWS = ("client", "bare")

EXAMPLES = """\
examples:
  make bench-ask                       some seven minutes
  make bench-ask ARGS=--quick          a look; figures that mean little
  python perf/ask.py --rates 2000 --write

Open loop: latency counts from when a call was due. Client and bare take turns. The last line of stdout is one JSON object:
p50_ms and p99_ms at the highest rate; vs_bare and vs_decision are the p99 divided by that of bare producing and consuming, and
by that of append to decision.
"""


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, with what `--quick` implies where nothing else was said."""
    parser = argparse.ArgumentParser(
        prog="perf/ask.py", description="Measure how long our client waits.", epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--quick", action="store_true", help="once, 5 s at each rate")
    add("--rates", type=positive, nargs="+", default=list(RATES), help="calls a second (100 1000 5000)")
    add("--repeat", type=positive, help="how often each is measured (3; quick: 1)")
    add("--seconds", type=positive, help="of calls at each rate, after the warm-up (15; quick: 5)")
    add("--warmup", type=positive, default=3, help="seconds of calls before it that don't count (%(default)s)")
    add("--users", type=positive, default=20_000, help="(%(default)s)")
    add("--workers", type=positive, default=2, help="(%(default)s)")
    add("--bundle", type=Path, help="use this bundle instead of training one")
    add("--write", action="store_true", help="put the result into perf/RESULTS.md")
    plan = parser.parse_args(given)
    plan.repeat = plan.repeat or (1 if plan.quick else 3)
    plan.seconds = plan.seconds or (5 if plan.quick else 15)
    return plan


def run(plan: argparse.Namespace) -> dict[str, Any]:
    """Everything that was asked for. Raises AssayError; whatever was started has ended then."""
    own = tempfile.TemporaryDirectory(prefix="assay-ask-", ignore_cleanup_errors=True)
    with own as name, services(tell=tell) as running_services:
        folder = Path(name)
        if not plan.bundle:
            train_bundle(20_000, folder / "bundle")
        found = asyncio.run(_all(plan, Stand(running_services, (plan.bundle or folder / "bundle").resolve(), folder)))
        text, figures = table(found), line(found)
        print(f"\n{report.versions(running_services)}\n\n{text}\n")
        if plan.write:
            asked = f"`perf/ask.py`: {plan.repeat} times {plan.seconds} s at each rate, {plan.workers} workers."
            report.write(text, figures, asked, running_services)
    return figures


Found = dict[tuple[str, int], list[Asked]]


async def _all(plan: argparse.Namespace, stand: Stand) -> Found:
    found: Found = {(how, rate): [] for rate in plan.rates for how in HOWS}
    for turn in range(plan.repeat):
        for rate in plan.rates:
            prefix = f"ask-{secrets.token_hex(3)}-"
            settings = stand.settings(prefix)
            async with topics_of(settings):
                admin = AIOKafkaAdminClient(**client_options(settings))
                await admin.start()
                await admin.create_topics([NewTopic(settings.topic("bare"), BARE_PARTITIONS, 1)])
                await admin.close()
                with assay_workers(stand, prefix, plan.workers) as workers:
                    for worker in workers:
                        await worker.ready()
                    one = await _ask(plan, stand, "client", rate, prefix, turn)
                found["client", rate].append(one)
                # Without the workers, which would take CPU from it: how little a round trip can cost here.
                found["bare", rate].append(await _ask(plan, stand, "bare", rate, prefix, turn))
            bare = found["bare", rate][-1]
            tell(f"{turn + 1} of {plan.repeat}, {rate:,} a second: p99 {one.p99_ms:.1f} ms, bare {bare.p99_ms:.1f} ms")
    return found


async def _ask(plan: argparse.Namespace, stand: Stand, how: Any, rate: int, prefix: str, turn: int) -> Asked:
    asked = Plan(how, stand.running.bootstrap_servers, prefix, rate, plan.seconds, plan.warmup, plan.users, 100 + turn)
    command = [sys.executable, str(ASK), json.dumps(asdict(asked))]
    with running(f"{prefix}{how}", command, stand.folder) as process:
        async with asyncio.timeout(plan.seconds + plan.warmup + PATIENCE_S):
            while process.running:
                await asyncio.sleep(0.2)
        try:
            return Asked(**json.loads(process.log_lines()[-1]))
        except (ValueError, IndexError, TypeError):
            raise ServiceError(f"{process.failure('told no figures')}") from None


def line(found: Found) -> dict[str, Any]:
    """The line for scripts: medians of the repeats, and their ratios."""
    rate = max(rate for _, rate in found)

    def median(how: str, rate: int, name: str) -> float:
        return round(statistics.median(getattr(one, name) for one in found[how, rate]), 1)

    figures: dict[str, Any] = {
        "p50_ms": median("client", rate, "p50_ms"),
        "p99_ms": median("client", rate, "p99_ms"),
        "vs_bare": round(median("client", rate, "p99_ms") / median("bare", rate, "p99_ms"), 2),
        "vs_decision": round(median("client", rate, "p99_ms") / median("client", rate, "decided_p99_ms"), 2),
        "unanswered": sum(one.unanswered for (how, _), each in found.items() if how == "client" for one in each),
    }
    return figures | {f"p99_ms_{each}": median("client", each, "p99_ms") for each in sorted({rate for _, rate in found})}


def table(found: Found) -> str:
    """All that was measured, in Markdown."""

    def spread(each: Sequence[Asked], name: str) -> str:
        values = sorted(value for one in each if (value := getattr(one, name)) is not None)
        return " / ".join(f"{value:.1f}" for value in (values[0], statistics.median(values), values[-1])) if values else ""

    names = ("p50_ms", "p99_ms", "p999_ms", "decided_p99_ms", "cpu_us")
    heads = ("p50 ms: min / median / max", "p99 ms", "p99.9 ms", "append to decision, p99 ms", "CPU us a call")
    rows = ["| a second | how | unanswered | " + " | ".join(heads) + " |", "| --- | --- | --- |" + " --- |" * len(heads)]
    for (how, rate), each in sorted(found.items(), key=lambda item: (item[0][1], item[0][0])):
        unanswered = sum(one.unanswered for one in each)
        rows.append(f"| {rate:,} | {how} | {unanswered} | " + " | ".join(spread(each, name) for name in names) + " |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(ended(lambda: run(arguments())))
