"""A run: the brokers, the group and the workers in virtual time, with a plan's transactions and faults, under all checks."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import orjson

from assay.schemas import limits
from assay.schemas.source import OutRecord
from assay.streams.settings import Settings

from .broker import EPOCH_S, Broker, Record, Wire
from .checks import CHANGELOG, DEAD_LETTERS, DECISIONS, TRANSACTIONS, Checks, Violation, where
from .disk import Disk
from .group import Coordinator
from .kafka import Network, installed
from .loop import Life, Stuck, VirtualLoop
from .oracle import Oracle
from .plan import SESSION_S, Fault, Kind, Plan, Sent, Trouble
from .ports import RATES, NoMetrics, SimulatedInForce
from .process import MAX_WAITING, FETCH_RECORDS, Process
from .weather import REDIS, Front, Weather, unit

REBALANCE_S = 10.0
QUIET_WITHIN_S = 120.0
LOOK_S = 0.25
SLOWED_S = 0.4
CARD = "4111111111111111"
BOUNDS = {"MAX_UNREMEMBERED_BATCHES": 4, "MAX_WAITING_REPEATS": 6}

@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    violation: Exception | None = None
    crashes: int = 0
    ended: list[str] = field(default_factory=list)  # why workers ended themselves
    trace: list[str] = field(default_factory=list)


class World:
    """One run of a plan."""

    def __init__(self, plan: Plan, settings: Settings, *, traced: bool) -> None:
        self.plan, self.settings, self.metrics, self.in_force = plan, settings, NoMetrics(), SimulatedInForce()
        self.outcome, self._traced = Outcome(), traced
        self.loop = VirtualLoop()
        self.weather = Weather(plan.seed)
        self.checks = Checks(Oracle(RATES), self._fail)
        topics = ((topic, p) for topic in (TRANSACTIONS, DECISIONS, DEAD_LETTERS, CHANGELOG) for p in range(plan.partitions))
        self.network = Network(Broker(self.loop, topics, self._appended), Wire(self.loop, self.weather))
        self.group = Coordinator(self.loop, self._assign, SESSION_S, REBALANCE_S, self._committed)
        self._disks: dict[int, Disk] = {}
        self._processes: dict[int, Process] = {}  # by worker: the one that lives
        self._wanted = set(range(plan.workers))
        self._starts = 0

    def run(self) -> Outcome:
        try:
            self.loop.run(self._main())
        except (Violation, Stuck) as problem:
            self.outcome.violation = problem
        except Exception as error:  # of the product, or of the simulation: neither is expected
            self.outcome.violation = error
        return self.outcome

    def note(self, who: str, what: str) -> None:
        """For the trace."""
        if self._traced:
            self.outcome.trace.append(f"{self.loop.time():8.3f}  {who} {what}")

    def redis_takes(self, life: str) -> float:
        now = self.loop.time()
        return self.weather.arrival(life, REDIS, now) - now

    # -- in order -------------------------------------------------------------------------------------------------------

    async def _main(self) -> None:
        plan = self.plan
        for sent in plan.sent:
            self.loop.after(sent.at, self._send, sent)
        for fault in plan.faults:
            self.loop.after(fault.at, self._trouble, fault)
        for worker in range(plan.workers):
            self._start(worker)
        times = [sent.at for sent in plan.sent] + [fault.at + fault.lasts for fault in plan.faults]
        await asyncio.sleep(max(times, default=0.0) + LOOK_S)
        self._calm_down()
        until = self.loop.time() + QUIET_WITHIN_S
        while not self._quiet():
            if self.loop.time() > until:
                raise Violation("I1", f"no end after {QUIET_WITHIN_S} quiet seconds: {self.group.committed} committed")
            await asyncio.sleep(LOOK_S)
        owners = {p: self._owner(p) for p in range(plan.partitions)}
        self.checks.quiet(self.network.broker, {p: process.disk.rows(p) for p, process in owners.items() if process})

    def _calm_down(self) -> None:
        self.note("--", "calm from here on")
        for process in self._processes.values():
            process.life.resume()
        if not self._wanted:
            self._join(0)

    def _quiet(self) -> bool:
        """Whether all is committed, and every partition has an owner."""
        for partition in range(self.plan.partitions):
            records = self.network.broker.logs[TRANSACTIONS, partition].records
            end = records[-1].offset + 1 if records else 0
            owner = self._owner(partition)
            if self.group.committed.get(partition, 0) < end or owner is None or not owner.owns(partition):
                return False
        return True

    def _owner(self, partition: int) -> Process | None:
        name = self.group.owners.get(partition, "").split("/")[0]
        return next((process for process in self._processes.values() if process.life.name == name), None)

    # -- transactions ---------------------------------------------------------------------------------------------------

    def _send(self, sent: Sent) -> None:
        log = self.network.broker.logs[TRANSACTIONS, sent.user % self.plan.partitions]
        if sent.kind is Kind.HOLE:
            log.skip()
        else:
            log.append([record_of(sent, EPOCH_S + self.loop.time())])

    def _appended(self, records: list[Record]) -> None:
        if self._traced:
            for record in records:
                source = dict(record.headers).get("assay-source", b"").decode()
                self.note(where(record), f"{'<- ' + source if source else ''} {(record.key or b'').decode()!r}")
        self.checks.appended(records)
        self._check_bounds()

    def _committed(self, partition: int, offset: int) -> None:
        self.note("group", f"commits partition {partition} at {offset}")
        self.checks.committed(partition, offset)

    def _check_bounds(self) -> None:
        """Invariant I5."""
        for process in self._processes.values():
            core = process.core
            sizes = {
                "unremembered": (core.memory._published.qsize(), limits.MAX_UNREMEMBERED_BATCHES),
                "waiting": (process.waiting.count, MAX_WAITING + self.plan.partitions * FETCH_RECORDS),
                "in flight": (len(core.flow._in_flight), self.settings.batches_in_flight),
                "recent": (len(core._recent._decisions), self.plan.remembered),
                "repeats": (core._repeats._count, limits.MAX_WAITING_REPEATS + self.plan.batch),
            }
            for name, (size, most) in sizes.items():
                if size > most:
                    self._fail(Violation("I5", f"{process.life.name}: {size} {name}, at most {most}"))

    def _fail(self, violation: Exception) -> None:
        self.note("**", str(violation))
        if self.loop.fault is None:
            self.loop.fault = violation

    # -- workers --------------------------------------------------------------------------------------------------------

    def _start(self, worker: int) -> None:
        if worker not in self._wanted or worker in self._processes:
            return
        self._starts += 1
        life = Life(f"worker-{worker}#{self._starts}", self.loop, lambda life, why: self._died(worker, why))
        self.note(life.name, "starts")
        context = life.enter()
        disk = self._disks.setdefault(worker, Disk(self.checks.stored))
        process = self._processes[worker] = context.run(Process, self, life, disk)
        running = self.loop.create_task(process.run(), context=context)
        running.add_done_callback(lambda task: life.alive and life.crash("has stopped"))

    def _died(self, worker: int, why: str) -> None:
        process = self._processes.pop(worker)
        self.note(process.life.name, why)
        self.outcome.crashes += why == "killed"
        if why.startswith("ended itself"):
            self.outcome.ended.append(why)
        process.disk.crash(lambda partition: unit(self.plan.seed, self._starts, partition, "disk"))
        self.loop.after(0.1 + unit(self.plan.seed, self._starts, "restart"), self._start, worker)

    def _join(self, worker: int) -> None:
        self._wanted.add(worker)
        self._start(worker)

    def _assign(self, generation: int, members: list[str]) -> dict[str, list[int]]:
        """Each partition to somebody: not sticky, so that it moves often."""
        members, given = sorted(members), {name: [] for name in members}
        turn = int(unit(self.plan.seed, generation, "turn") * len(members))
        for partition in range(self.plan.partitions):
            given[members[(partition + turn) % len(members)]].append(partition)
        return given

    # -- faults ---------------------------------------------------------------------------------------------------------

    def _trouble(self, fault: Fault) -> None:
        process, now = self._processes.get(fault.worker), self.loop.time()
        self.note("!!", str(fault).strip())
        match fault.trouble:
            case Trouble.DOWN | Trouble.SLOW:
                slowed = SLOWED_S if fault.trouble is Trouble.SLOW else None
                self.weather.fronts.append(Front(now, now + fault.lasts, slowed))
            case Trouble.JOIN:
                self._join(fault.worker)
            case Trouble.COMPACT:
                for partition in range(self.plan.partitions):
                    log = self.network.broker.logs[CHANGELOG, partition]
                    log.compact(log.end - 1)
            case Trouble.CLOCK:
                for (topic, partition), log in self.network.broker.logs.items():
                    log.skew = 4.0 * unit(self.plan.seed, topic, partition, int(now * 1000)) - 2.0
            case Trouble.REDIS:
                self.weather.fronts.append(Front(now, now + fault.lasts, redis=True))
            case _ if process is not None:
                self._trouble_of(process, fault)

    def _trouble_of(self, process: Process, fault: Fault) -> None:
        life, now = process.life, self.loop.time()

        def kill() -> None:
            if fault.trouble is Trouble.KILL_AND_DISK:
                process.disk.lose()
            life.crash("killed")

        def pause() -> None:
            self.note(life.name, "is paused")
            life.pause()
            self.loop.after(fault.lasts, life.resume)

        match fault.trouble:
            case Trouble.KILL | Trouble.KILL_AND_DISK:
                life.after(fault.steps, kill)
            case Trouble.PAUSE:
                life.after(fault.steps, pause)
            case Trouble.STOP | Trouble.LEAVE:
                if fault.trouble is Trouble.LEAVE:
                    self._wanted.discard(fault.worker)
                self.loop.call_soon(process.stop, context=life.enter())
            case Trouble.CUT:
                self.weather.fronts.append(Front(now, now + fault.lasts, None, life.name))
            case Trouble.LOSE_FETCH:
                process.loses_fetch = True


def record_of(sent: Sent, now: float) -> OutRecord:
    """The record of a transaction, for the transactions topic."""
    user = f"user-{sent.user}"
    headers = [("reply-to", b"checkout.reply"), ("correlation-id", sent.id.encode())] if sent.reply else []
    body = {
        "transaction_id": sent.id,
        "user_id": user,
        "amount": str(10 + sent.variant + sum(sent.id.encode()) % 50),
        "currency": "EUR",
        "timestamp": int(now * 1000),
        "merchant": {"id": f"m{sum(sent.id.encode()) % 7}"},
    }
    if sent.kind is Kind.INVALID:
        del body["merchant"]
    if sent.kind is Kind.CARD:
        body["merchant"] = {"id": CARD}
    value = {Kind.MALFORMED: b"{", Kind.TOMBSTONE: None}.get(sent.kind, orjson.dumps(body))
    return user.encode(), value, headers


@contextmanager
def simulated() -> Iterator[Callable[..., Outcome]]:
    """What runs a plan: aiokafka is stood in for and bounds are narrow while this lasts."""
    logs, settings = logging.getLogger("assay"), {}

    def run(plan: Plan, *, traced: bool = False) -> Outcome:
        known = settings.get(plan.batch)
        if known is None:
            known = settings[plan.batch] = Settings(_env_file=None, batch_transactions=plan.batch, data_dir="nowhere")
        return World(plan, known, traced=traced).run()

    with installed(), patch.multiple(limits, **BOUNDS), patch.object(logs, "disabled", True):
        disabled, logging.root.manager.disable = logging.root.manager.disable, logging.CRITICAL
        try:
            yield run
        finally:
            logging.root.manager.disable = disabled
