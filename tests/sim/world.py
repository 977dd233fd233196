"""A run: brokers, group and workers in virtual time, with a plan's transactions and faults, under all checks."""

import asyncio
from dataclasses import dataclass, field
from math import inf

from assay.schemas import limits
from assay.schemas.source import SOURCE_HEADER
from assay.streams.decision_reader import source_of
from assay.streams.settings import Settings

from .broker import EPOCH_S, Broker, Record, Wire
from .checks import CHANGELOG, DECISIONS, TOPICS, TRANSACTIONS, Checks, Violation, where
from .disk import Disk
from .group import Assignment, Coordinator
from .kafka import Network
from .loop import Life, Stuck, VirtualLoop
from .oracle import Oracle
from .plan import SESSION_S, Kind, Moment, Plan, Sent
from .ports import RATES, NoMetrics, SimulatedInForce
from .process import FETCH_RECORDS, MAX_WAITING, Process
from .records import record_of
from .troubles import TAKEN_S, Troubles
from .weather import REDIS, Front, Weather, unit

REBALANCE_S = 10.0
QUIET_WITHIN_S = 120.0
LOOK_S = 0.25
PROBED_S = 30.0
SLOW_S = 0.1

_MOMENTS = {DECISIONS: Moment.DECIDED, CHANGELOG: Moment.REMEMBERED}


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    failure: Exception | None = None
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
        logs = ((topic, partition) for topic in TOPICS for partition in range(plan.partitions))
        self.network = Network(Broker(self.loop, logs, self._appended), Wire(self.loop, self.weather))
        self.checks = Checks(Oracle(RATES, settings.digests()), self.network.broker, self._fail)
        self.group = Coordinator(self.loop, self._assign, SESSION_S, REBALANCE_S, self._committed)
        self._disks: dict[int, Disk] = {}
        self.living: dict[int, Process] = {}  # by worker
        self._wanted = set(range(plan.workers))
        self._starts, self._down_until = 0, 0.0
        self._troubles = Troubles(plan, self.loop, self.weather, self.network.broker, self.network.wire, self)

    def run(self) -> Outcome:
        """Whatever is raised is a failure: a violation, a run without an end, an error that nobody expected."""
        try:
            self.loop.run(self._main())
        except Exception as error:
            self.outcome.failure = error
        return self.outcome

    async def _main(self) -> None:
        plan = self.plan
        for sent in plan.sent:
            self.loop.after(sent.at, self._send, sent)
        if plan.slow:
            self.weather.fronts.append(Front(0.0, inf, plan.slow, SLOW_S))
        for worker in range(plan.workers):
            self._start(worker)
        ends = [fault.at + fault.lasts + TAKEN_S * fault.until_taken for fault in plan.faults]
        await asyncio.sleep(max([sent.at for sent in plan.sent] + ends, default=0.0) + LOOK_S)
        self.note("--", "calm from here on")
        self._troubles.over()
        if not self._wanted:
            self.join(0)
        self.loop.after(PROBED_S, self._probe)
        await self._until_quiet()
        stores = {p: owner.disk.rows(p) for p in range(plan.partitions) if (owner := self._owner(p)) is not None}
        self.checks.quiet(stores)

    async def _until_quiet(self) -> None:
        until = self.loop.time() + QUIET_WITHIN_S
        while not self._quiet():
            if self.loop.time() > until:
                raise Stuck(f"no end after {QUIET_WITHIN_S} quiet seconds: {self.group.committed} committed")
            await asyncio.sleep(LOOK_S)

    def _quiet(self) -> bool:
        """Whether all is committed, and every partition has an owner."""
        for partition in range(self.plan.partitions):
            records, owner = self.network.broker.logs[TRANSACTIONS, partition].records, self._owner(partition)
            end = records[-1].offset + 1 if records else 0
            if self.group.committed.get(partition, 0) < end or owner is None or not owner.owns(partition):
                return False
        return True

    def _owner(self, partition: int) -> Process | None:
        name = self.group.owners.get(partition, "").split("/")[0]
        return next((process for process in self.living.values() if process.life.name == name), None)

    def _probe(self) -> None:
        """A fetch that was lost shows with the next one; where none comes, only to the probe of liveness."""
        for process in list(self.living.values()):
            if process.has_lost:
                process.life.crash("killed by its probe")

    # -- what others tell -----------------------------------------------------------------------------------------------

    def note(self, who: str, what: str) -> None:
        """For the trace."""
        if self._traced:
            self.outcome.trace.append(f"{self.loop.time():8.3f}  {who} {what}")

    def redis_takes(self, life: str) -> float:
        """Seconds."""
        now = self.loop.time()
        return self.weather.arrival(life, REDIS, now) - now

    def given(self, process: Process, assignment: Assignment) -> None:
        """A process has been given partitions."""
        self.note(process.life.name, f"has {assignment.partitions} in generation {assignment.generation}")
        self._troubles.moment(Moment.GIVEN, next(worker for worker, known in self.living.items() if known is process))

    def check_bounds(self) -> None:
        """Invariant I5."""
        for process in self.living.values():
            core = process.core
            sizes = {
                "unremembered": (core.memory._published.qsize(), limits.MAX_UNREMEMBERED_BATCHES),
                "waiting": (process.fetched, MAX_WAITING + self.plan.partitions * FETCH_RECORDS),
                "in flight": (len(core.flow._in_flight), self.settings.batches_in_flight),
                "recent": (len(core._recent._decisions), self.plan.remembered),
                "repeats": (core._repeats._count, limits.MAX_WAITING_REPEATS + self.plan.batch),
            }
            for name, (size, most) in sizes.items():
                if size > most:
                    self._fail(Violation("I5", f"{process.life.name}: {size} {name}, at most {most}"))

    def _send(self, sent: Sent) -> None:
        log = self.network.broker.logs[TRANSACTIONS, sent.user % self.plan.partitions]
        if sent.kind is Kind.HOLE:
            log.skip()
        else:
            log.append([record_of(sent, EPOCH_S + self.loop.time())])

    def _appended(self, records: list[Record]) -> None:
        if self._traced:
            for record in records:
                source = dict(record.headers).get(SOURCE_HEADER, b"").decode()
                self.note(where(record), f"{'<- ' + source if source else ''} {(record.key or b'').decode()!r}")
        self.checks.appended(records)
        self.check_bounds()
        if (moment := _MOMENTS.get(records[0].topic)) is not None:
            self._troubles.moment(moment)

    def _committed(self, partition: int, offset: int) -> None:
        self.note("group", f"commits partition {partition} at {offset}")
        self.checks.committed(partition, offset)
        if self.checks.furthest.get(partition, -1) >= offset:
            self._troubles.moment(Moment.COMMITTED)

    def _fail(self, violation: Exception) -> None:
        self.note("**", str(violation))
        if self.loop.fault is None:
            self.loop.fault = violation

    # -- workers --------------------------------------------------------------------------------------------------------

    def join(self, worker: int) -> None:
        """One more worker, unless it is there."""
        self._wanted.add(worker)
        self._start(worker)

    def leave(self, worker: int) -> None:
        """This worker is not started again."""
        self._wanted.discard(worker)

    def outage(self, lasts: float, *, offsets_expire: bool) -> None:
        """All workers are killed, and not started again for so long."""
        self._down_until = max(self._down_until, self.loop.time() + lasts)
        for process in list(self.living.values()):
            process.life.crash("killed with all others")
        if offsets_expire:
            self.loop.after(lasts, self._offsets_expire)

    def _offsets_expire(self) -> None:
        if not self.living:
            self.note("group", "forgets its offsets")
            self.group.committed.clear()
            self.checks.offsets_expired()

    def expire_decisions(self) -> None:
        """As far as everything is committed, and known to be beside the rows: what is not lies within the retention."""
        for partition in range(self.plan.partitions):
            log, committed = self.network.broker.logs[DECISIONS, partition], self.checks.kept.get(partition, 0)
            kept = (record.offset for record in log.records if (source := source_of(record)) and source.offset >= committed)
            log.expire(next(kept, log.end))

    def _start(self, worker: int) -> None:
        if worker not in self._wanted or worker in self.living:
            return
        if self.loop.time() < self._down_until:
            self.loop.after(self._down_until - self.loop.time(), self._start, worker)
            return
        self._starts += 1
        life = Life(f"worker-{worker}.{self._starts}", self.loop, lambda life, why: self._died(worker, why))
        self.note(life.name, "starts")
        context, disk = life.enter(), self._disks.setdefault(worker, Disk(self.checks.stored))
        process = self.living[worker] = context.run(Process, self, life, disk)
        running = self.loop.create_task(process.run(), context=context)
        running.add_done_callback(lambda task: life.crash("has stopped"))

    def _died(self, worker: int, why: str) -> None:
        process = self.living.pop(worker)
        self.note(process.life.name, why)
        self.outcome.crashes += why.startswith("killed")
        if why.startswith("ended itself"):
            self.outcome.ended.append(why)
        process.disk.crash(lambda partition: unit(self.plan.seed, self._starts, partition, "disk"))
        self.loop.after(0.1 + unit(self.plan.seed, self._starts, "restart"), self._start, worker)

    def _assign(self, generation: int, members: list[str]) -> dict[str, list[int]]:
        """Each partition to somebody: not sticky, so that it moves often."""
        self._troubles.assigned(members)
        members, given = sorted(members), {name: [] for name in members}
        turn = int(unit(self.plan.seed, generation, "turn") * len(members))
        for partition in range(self.plan.partitions):
            given[members[(partition + turn) % len(members)]].append(partition)
        return given
