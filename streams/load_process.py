"""A load run in a process of its own, so that it does not share an interpreter with what it measures.

    python -m assay.streams.load_process '{"rate": 500, "transactions": 20000, "seed": 7}'

The argument is a `LoadPlan` as JSON. On standard output come JSON lines: `{"event": "prepared"}` when payloads are encoded,
`{"event": "snapshot", ...}` now and then, and `{"event": "summary", ...}` at the end; or `{"event": "error", "message"}` and
exit status 2. `run_apart` starts it and reads the lines. It ends by itself when its parent is gone.
"""

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson
import polars as pl

from assay.schemas.errors import AssayError, ServiceError, SettingError
from assay.streams.fraud_patterns import ALL_PATTERNS
from assay.streams.kafka import client_options
from assay.streams.load import TICK_S, Load, Topics, prepare
from assay.streams.load_outcomes import due_outcomes, tell
from assay.streams.load_results import Snapshot
from assay.streams.settings import Settings
from assay.streams.simulator import DEFAULT_FRAUD_SHARE, DEFAULT_USERS, Simulated, simulate

LOAD_REPLY_TOPIC = "load.reply"


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """What to send, how fast, and what to hear. Kafka's address, credentials and topics come from the settings.

    Attributes:
        bootstrap_servers: wins over the environment, as does `topic_prefix`.
        days: spread the simulated times over so many days before now, and send them as they are (the worker marks them
            late); None: each transaction happens when it is due to be sent.
        check_decisions: read the decisions topic too, and compare it with the replies.
        results: a Parquet file with a row per transaction: what it was, what it got, and when.
        warmup_s: at the beginning, not in the percentiles of the summary.
        outcomes: send what became of each transaction, too, as much sooner than in life as `days` are compressed.
    """

    rate: float
    transactions: int
    seed: int
    users: int = DEFAULT_USERS
    days: float | None = None
    fraud_share: float = DEFAULT_FRAUD_SHARE
    patterns: tuple[str, ...] = ALL_PATTERNS
    bootstrap_servers: str | None = None
    topic_prefix: str | None = None
    arrivals: Literal["even", "poisson"] = "even"
    tick_s: float = TICK_S
    timeout_ms: int = 150
    grace_s: float = 10.0
    warmup_s: float = 0.0
    every_s: float = 1.0
    check_decisions: bool = False
    results: str | None = None
    outcomes: bool = False

    @classmethod
    def parse(cls, text: str) -> "LoadPlan":
        """Raises SettingError."""
        try:
            given = json.loads(text)
            return cls(**given | {"patterns": tuple(given.get("patterns", ALL_PATTERNS))})
        except (ValueError, TypeError) as error:
            expected = ", ".join(field.name for field in fields(cls))
            raise SettingError("this is no plan of a load run", expected=f"JSON with {expected}", got=str(error)) from error


async def run_apart(plan: LoadPlan) -> AsyncGenerator[dict[str, Any], None]:
    """Start the process and yield its lines as they come; the last is the summary. Closing the generator ends the process.

    Raises ServiceError where the run failed.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "assay.streams.load_process", json.dumps(asdict(plan)),
        stdout=asyncio.subprocess.PIPE, limit=16 * 1024 * 1024,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            event = orjson.loads(line)
            if event["event"] == "error":
                raise ServiceError(f"the load run failed: {event['message']}")
            yield event
        if await process.wait() != 0:
            raise ServiceError(f"the load process ended with status {process.returncode}", mend="see what it wrote above")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


def main() -> int:
    """Run the plan that the command line holds."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it retries by itself; what ends the run is told as an event
    try:
        asyncio.run(_run(LoadPlan.parse(sys.argv[1] if len(sys.argv) > 1 else "")))
    except AssayError as error:
        _tell("error", {"message": str(error)})
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


async def _run(plan: LoadPlan) -> None:
    settings = Settings.load(bootstrap_servers=plan.bootstrap_servers, topic_prefix=plan.topic_prefix)
    payments = _simulated(plan)
    load = Load(
        client_options(settings),
        Topics(settings.incoming, settings.topic(LOAD_REPLY_TOPIC), settings.decisions if plan.check_decisions else None),
        prepare((payment.transaction for payment in payments), stamped=plan.days is None),
        rate=plan.rate,
        arrivals=plan.arrivals,
        tick_s=plan.tick_s,
        timeout_ms=plan.timeout_ms,
        grace_s=plan.grace_s,
        keep_replies=plan.results is not None,
    )
    _tell("prepared", {"transactions": len(payments)})
    beside: list[asyncio.Task[Any]] = [asyncio.create_task(_end_with_parent())]
    if plan.outcomes:
        outcomes = due_outcomes(payments, plan.rate, _hurry(plan))
        beside.append(asyncio.create_task(tell(outcomes, client_options(settings), settings.outcomes, lambda: load.started_s)))
    try:
        results = await load.run(lambda snapshot: _tell("snapshot", _plain(snapshot)), plan.every_s)
    finally:
        for task in beside:
            task.cancel()
        await asyncio.wait(beside)
    for task in beside:
        if not task.cancelled():
            task.result()  # raises what it failed with
    if plan.results is not None:
        write_results(load, payments, Path(plan.results))
    behind = np.array(load.behind_s or [0.0])
    _tell(
        "summary",
        results.summary(measured_from=int(plan.rate * plan.warmup_s))
        | {
            "rate": plan.rate,
            "answered_per_s": round(results.answered / max(load.elapsed_s, 1e-9), 1),
            "unsent": load.unsent,
            "undecided": results.undecided - results.refused if plan.check_decisions else None,
            "decided_again": results.decided_again if plan.check_decisions else None,
            "sender_behind_p99_ms": round(float(np.percentile(behind, 99)) * 1000, 3),
            "load_cpu_us": round(load.cpu_s / max(1, results.sent) * 1e6, 1),
        },
    )


def _hurry(plan: LoadPlan) -> float:
    """How many times faster than in life time passes in this run."""
    return 1.0 if plan.days is None else max(1.0, plan.days * 86_400 * plan.rate / plan.transactions)


def _simulated(plan: LoadPlan) -> list[Simulated]:
    now_ms = time.time_ns() // 1_000_000
    spread: dict[str, float] = {"rate": plan.rate} if plan.days is None else {"days": plan.days}
    # The simulator keeps to its days about: a day more, so that nothing lies ahead of now.
    start_ms = now_ms if plan.days is None else now_ms - int((plan.days + 1) * 86_400_000)
    payments = simulate(
        seed=plan.seed,
        transactions=plan.transactions,
        start_ms=start_ms,
        users=plan.users,
        fraud_share=plan.fraud_share,
        patterns=plan.patterns,
        **spread,
    )
    return list(payments)


def write_results(load: Load, payments: list[Simulated], path: Path) -> None:
    """One row per transaction: identity, amount, truth, when it was due, and the answer (null where there was none)."""
    rows = []
    replies = load.results.replies or [None] * len(payments)
    for number, (payment, reply) in enumerate(zip(payments, replies, strict=True)):
        transaction = payment.transaction
        answer = orjson.loads(reply) if reply is not None else {}
        latency = float(load.results.latency_s[number])
        rows.append(
            (
                number,
                transaction["transaction_id"],
                transaction["user_id"],
                transaction["amount"],
                transaction["currency"],
                payment.fraud,
                payment.pattern,
                load.due_ms(number),
                None if np.isnan(latency) else latency * 1000,
                answer.get("action"),
                answer.get("fraud_score"),
                answer.get("tier"),
                answer.get("deadline_missed"),
            )
        )
    pl.DataFrame(rows, schema=RESULT_COLUMNS, orient="row").write_parquet(path)


RESULT_COLUMNS: dict[str, Any] = {
    "number": pl.Int64,
    "transaction_id": pl.String,
    "user_id": pl.String,
    "amount": pl.String,
    "currency": pl.String,
    "fraud": pl.Boolean,
    "pattern": pl.String,
    "due_ms": pl.Int64,
    "latency_ms": pl.Float64,
    "action": pl.String,
    "fraud_score": pl.Float64,
    "tier": pl.String,
    "deadline_missed": pl.Boolean,
}


def _plain(snapshot: Snapshot) -> dict[str, Any]:
    return asdict(snapshot)


def _tell(event: str, what: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps({"event": event, **what}, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


async def _end_with_parent() -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(0.5)
    os._exit(3)  # nobody reads the results any more


if __name__ == "__main__":
    sys.exit(main())
