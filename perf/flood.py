"""What a flood of one user costs everybody else, with a rate limit and without: `python perf/flood.py --help`."""

import argparse
import asyncio
import secrets
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaProducer
from bench import tell, train_bundle
from command import ended, positive
from contenders import Stand, assay_workers
from drain import stages_of
from kafka_log import topics_of
from latency import LatencyPlan, load_with
from processes import sample_of

from assay.deploy.services import services
from assay.streams.kafka import client_options
from assay.streams.partitioning import partition_of
from assay.streams.reading import connect
from assay.streams.settings import Settings

FLOODER = "flooder"
TICK_S = 0.02
LIMIT = {"ASSAY_USER_RATE": "5", "ASSAY_USER_BURST": "20"}

EXAMPLES = """\
examples:
  python perf/flood.py                         500 a second of many users, and 500 of one
  python perf/flood.py --rate 1000 --repeat 3

The last line of stdout is one JSON object: p99 of the others in milliseconds where they are alone, where as many again come
from many users, where one user sends as many who is limited, and one who is not; and how the limited flood compares with the
same traffic from many users (`ratio`) and with none of it (`ratio_alone`).
"""


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add(
        "--rate",
        type=positive,
        default=500,
        help="transactions a second of all others, and of one who floods (%(default)s)",
    )
    add("--seconds", type=positive, default=15, help="of load, after the warm-up (%(default)s)")
    add("--warmup", type=positive, default=5, help="seconds of load before it that don't count (%(default)s)")
    add("--repeat", type=positive, default=1, help="times that each is measured; the median counts (%(default)s)")
    add("--history", type=positive, default=20_000, help="simulated transactions that the models learn from (%(default)s)")
    return parser.parse_args(given)


def run(plan: argparse.Namespace) -> dict[str, Any]:
    """Raises AssayError; whatever was started has ended then."""
    own = tempfile.TemporaryDirectory(prefix="assay-bench-", ignore_cleanup_errors=True)
    with own as name, services(tell=tell) as running:
        train_bundle(plan.history, Path(name) / "bundle")
        return asyncio.run(_measure(plan, Stand(running, Path(name) / "bundle", Path(name))))


async def _measure(plan: argparse.Namespace, stand: Stand) -> dict[str, Any]:
    stages_us: dict[str, list[float]] = {}
    found: dict[str, list[float]] = {"alone": [], "even": [], "limited": [], "unlimited": []}
    for turn in range(1, plan.repeat + 1):
        for name, p99s in found.items():
            prefix = f"flood-{secrets.token_hex(3)}-"
            limit = LIMIT if name == "limited" else {}
            rate, flood = plan.rate * (2 if name == "even" else 1), 0 if name in ("alone", "even") else plan.rate
            summary, metrics = await _one(plan, stand, prefix, limit, rate, flood)
            p99s.append(summary["p99_ms"])
            stages_us.setdefault(name, []).append(sum(stages_of(metrics).values()))
            limited = sample_of(metrics, "assay_limited_total", kind="user")
            tell(
                f"{turn} of {plan.repeat}, {name}: p99 of the others {summary['p99_ms']:.0f} ms, {limited:,.0f} limited, "
                f"{stages_us[name][-1]:.0f} us of CPU a transaction"
            )
    medians = {name: sorted(p99s)[len(p99s) // 2] for name, p99s in found.items()}
    return {f"{name}_p99_ms": round(p99, 1) for name, p99 in medians.items()} | {
        "us_per_transaction": {name: round(sorted(us)[len(us) // 2], 1) for name, us in stages_us.items()},
        "ratio": round(medians["limited"] / medians["even"], 2),
        "ratio_alone": round(medians["limited"] / medians["alone"], 2),
    }


async def _one(
    plan: argparse.Namespace, stand: Stand, prefix: str, limit: Mapping[str, str], rate: int, flood_rate: int
) -> tuple[dict[str, Any], str]:
    """The summary of the others' load, and the worker's metrics."""
    settings = stand.settings(prefix)
    load = LatencyPlan(plan.seconds, plan.warmup, users=2_000, workers=1, repeat=1)
    async with topics_of(settings):
        with assay_workers(stand, prefix, 1, limit) as workers:
            await workers[0].ready()
            flood = asyncio.ensure_future(_flood(settings, flood_rate)) if flood_rate else None
            try:
                summary, _ = await load_with(stand, rate, load, prefix, workers)
            finally:
                if flood is not None:
                    flood.cancel()
                    await asyncio.wait([flood])
            return summary, await workers[0].metrics()


async def _flood(settings: Settings, rate: int) -> None:
    """One user's payments, so many a second, until it is cancelled."""
    options = client_options(settings)
    producer, partition = AIOKafkaProducer(acks=1, **options), partition_of(FLOODER.encode(), settings.partitions)
    await connect(producer.start(), options)
    began, sent = time.monotonic(), 0
    try:
        while True:
            batch = producer.create_batch()
            for number in range(sent, int((time.monotonic() - began) * rate)):
                batch.append(key=FLOODER.encode(), value=_payment(number), timestamp=None)
                sent = number + 1
            if batch.record_count():
                await producer.send_batch(batch, settings.transactions, partition=partition)
            await asyncio.sleep(TICK_S)
    finally:
        await producer.stop()


def _payment(number: int) -> bytes:
    return orjson.dumps(
        {
            "transaction_id": f"flood-{number}", "user_id": FLOODER, "amount": f"{number % 900 + 1}.00", "currency": "EUR",
            "timestamp": int(time.time() * 1000), "merchant": {"id": f"m-{number % 50}", "category": "5411", "country": "DE"},
            "instrument": {"id": f"tok-{number % 500}", "issuer_country": "DE"}, "channel": "ecom",
        }
    )  # fmt: skip


if __name__ == "__main__":
    plan = arguments()
    sys.exit(ended(lambda: run(plan)))
