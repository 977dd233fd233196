"""The demo's course: services, history, training, workers, live payments; whatever was started is stopped."""

import asyncio
import contextlib
import secrets
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from assay.deploy.ports import free_port
from assay.deploy.services import services
from assay.deploy.worker_process import worker_command, worker_environment
from assay.models.bundle import Bundle
from assay.models.training import train
from assay.schemas.errors import ServiceError
from assay.schemas.transaction import Transaction
from assay.streams.fraud_patterns import ALL_PATTERNS
from assay.streams.load_process import LoadPlan, run_apart
from assay.streams.simulator import simulate
from assay.tables.rates import SHIPPED_RATES, Rates

HISTORY_SEED, LIVE_SEED = 11, 2_026
WITHHELD = "account_takeover"  # in the live payments, never in the history; and no rule is made for it
USERS = 2_000
PAYMENTS_A_DAY = USERS  # one a user, as in the history: the same pace, so that windows mean the same
READY_TIMEOUT_S, STOP_TIMEOUT_S = 90.0, 15.0
WARM_UP_S = 2.0


class Progress(Protocol):
    """What the demo tells whoever watches."""

    def step(self, text: str) -> None: ...
    def progress(self, stage: str, done: int, total: int) -> None: ...
    def live(self, snapshot: dict[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What the command line asked for."""

    transactions: int
    rate: float
    history: int
    workers: int
    restart: bool
    results: Path | None


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What came of it: the line for scripts, every transaction's fate, and the workers' own metrics."""

    line: dict[str, Any]
    fates: pl.DataFrame
    metrics: list[str]
    bundle: Bundle


class DemoWorker:
    """One `assay worker` in a process of its own."""

    def __init__(self, number: int, folder: Path, environment: dict[str, str]) -> None:
        self.port = free_port()
        self._log = folder / f"worker-{number}.log"
        self._arguments = worker_command(f"worker-{number}", folder / f"worker-{number}", self.port)
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._arguments, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def stop(self) -> None:
        """As Kubernetes does: SIGTERM, some patience, SIGKILL."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    async def ready(self) -> None:
        """Return once it scores. Raises ServiceError with the end of its log."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                break
            if await asyncio.to_thread(self._get, "/readyz") is not None:
                return
            await asyncio.sleep(0.1)
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
        raise ServiceError(f"{self._log.stem} does not score", mend=f"see the end of its log:\n{tail}")

    async def metrics(self) -> str:
        return await asyncio.to_thread(self._get, "/metrics") or ""

    def _get(self, path: str) -> str | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return None


async def run_demo(plan: DemoPlan, screen: Progress) -> DemoReport:
    """The whole course. Raises AssayError; whatever was started is stopped then too."""
    with tempfile.TemporaryDirectory(prefix="assay-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        screen.step("Kafka and Redis")
        with services(folder / "services", tell=screen.step) as running:
            screen.step("training on simulated history")
            bundle = await _trained(plan.history, folder / "bundle", screen)
            # A prefix of its own, should Kafka be a shared one.
            environment = worker_environment(running, bundle.path, f"demo-{secrets.token_hex(3)}-")
            async with _workers(plan.workers, folder, environment, screen) as workers:
                results = plan.results or folder / "results.parquet"
                line = await _stream(plan, environment, results, workers, screen)
                metrics = [await worker.metrics() for worker in workers]
            screen.step("stopping")
        return DemoReport(line, pl.read_parquet(results), metrics, bundle)


class _Interrupted(Exception):
    """Training was told to stop."""


async def _trained(count: int, out: Path, screen: Progress) -> Bundle:
    """Train in a thread, and leave none behind: when this is cancelled, the next sign of progress ends it."""
    stop = threading.Event()

    def progress(stage: str, done: int, total: int) -> None:
        if stop.is_set():
            raise _Interrupted
        screen.progress(stage, done, total)

    work = asyncio.ensure_future(asyncio.to_thread(_train, count, out, progress))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([work])
        raise


def _train(count: int, out: Path, progress: Callable[[str, int, int], None]) -> Bundle:
    """A bundle from simulated history in which one kind of fraud does not occur."""
    end_ms = time.time_ns() // 1_000_000
    days = count / PAYMENTS_A_DAY
    known = [pattern for pattern in ALL_PATTERNS if pattern != WITHHELD]
    history = simulate(
        seed=HISTORY_SEED, transactions=count, users=USERS, days=days, start_ms=end_ms - int(days * 86_400_000), patterns=known
    )
    payments = []
    for payment in history:
        payments.append(payment)
        if len(payments) % 1_000 == 0:
            progress("simulate", len(payments), count)
    return train(
        (Transaction.model_validate(payment.transaction) for payment in payments),
        [payment.fraud for payment in payments],
        out,
        rates=Rates.load(SHIPPED_RATES),
        progress=progress,
    )


async def _stream(
    plan: DemoPlan, environment: dict[str, str], results: Path, workers: list[DemoWorker], screen: Progress
) -> dict[str, Any]:
    """Send the live payments from a process of their own; returns the line for scripts."""
    load = LoadPlan(
        rate=plan.rate,
        transactions=plan.transactions,
        seed=LIVE_SEED,
        users=USERS,
        days=plan.transactions / PAYMENTS_A_DAY,
        bootstrap_servers=environment["ASSAY_BOOTSTRAP_SERVERS"],
        topic_prefix=environment["ASSAY_TOPIC_PREFIX"],
        check_decisions=True,
        results=str(results),
        warmup_s=WARM_UP_S,
        every_s=0.5,
        grace_s=30.0,
        outcomes=True,
    )
    screen.step("live payments")
    summary: dict[str, Any] | None = None
    restarting: asyncio.Task[None] | None = None
    try:
        async with contextlib.aclosing(run_apart(load)) as events:
            async for event in events:
                if event["event"] == "summary":
                    summary = event
                elif event["event"] == "snapshot":
                    screen.live(event)
                    if plan.restart and restarting is None and event["sent"] > plan.transactions // 3:
                        restarting = asyncio.create_task(_restart(workers[-1], screen))
        if restarting is not None:
            await restarting
    finally:
        if restarting is not None and restarting.cancel():
            await asyncio.wait([restarting])
    if summary is None:
        raise ServiceError(
            "the load process ended without a summary", mend="run the demo again; if it stays so, see what it wrote"
        )
    return _line(summary)


def _line(summary: dict[str, Any]) -> dict[str, Any]:
    """The run in one line. A transaction is lost that has neither a decision nor a refusal, whatever became of its reply."""
    lost = summary["undecided"]
    return {
        "transactions": summary["transactions"],
        "decisions": summary["transactions"] - lost,
        "lost": lost,
        "contradictory": summary["contradictory"],
        "rate": summary["answered_per_s"],
        "p50_ms": summary["p50_ms"],
        "p99_ms": summary["p99_ms"],
        "within_deadline": summary["within_deadline"],
    }


async def _restart(worker: DemoWorker, screen: Progress) -> None:
    screen.step("one worker is stopped, and started again")
    await asyncio.to_thread(worker.stop)
    worker.start()
    await worker.ready()


@asynccontextmanager
async def _workers(count: int, folder: Path, environment: dict[str, str], screen: Progress) -> AsyncIterator[list[DemoWorker]]:
    screen.step(f"{count} workers of one consumer group")
    workers = [DemoWorker(number + 1, folder, environment) for number in range(count)]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            await worker.ready()
        yield workers
    finally:
        await asyncio.gather(*(asyncio.to_thread(worker.stop) for worker in workers))
