"""Faults, as they strike: some at their time, some when a worker has taken so many steps from a moment on."""

from collections.abc import Callable
from typing import Protocol

from .broker import Broker, Wire
from .checks import CHANGELOG, TOPICS
from .kafka import FETCH
from .loop import Life, VirtualLoop
from .plan import SESSION_S, Fault, Moment, Plan, Trouble
from .ports import GROUP
from .process import Process
from .weather import REDIS, Front, Weather, unit

TAKEN_S = 2 * SESSION_S  # until others have the partitions of a worker that is silent
SLOWED_S = 0.4
SKEW_S = 2.0  # between a leader's clock and the true time, at most

_LINKS = (*TOPICS, GROUP, FETCH)


class Workers(Protocol):
    """What faults do to the workers: `world.World` is it."""

    @property
    def living(self) -> dict[int, Process]: ...
    def join(self, worker: int) -> None: ...
    def leave(self, worker: int) -> None: ...
    def expire_decisions(self) -> None: ...
    def outage(self, lasts: float, *, offsets_expire: bool) -> None: ...
    def note(self, who: str, what: str) -> None: ...


class Troubles:
    """What is in store, and what is under way."""

    def __init__(self, plan: Plan, loop: VirtualLoop, weather: Weather, broker: Broker, wire: Wire, workers: Workers) -> None:
        self._seed, self._loop, self._weather, self._broker = plan.seed, loop, weather, broker
        self._wire, self._workers = wire, workers
        self._in_store: list[Fault] = []  # they wait for their moment
        self._awaited: list[tuple[str, float, Callable[[], None]]] = []  # a process, and what follows once it has lost all
        for fault in plan.faults:
            loop.after(fault.at, self._due, fault)

    def over(self) -> None:
        """Nothing more strikes, and what lasts ends."""
        self._in_store.clear()
        for process in self._workers.living.values():
            process.loses_fetch = False
            process.life.spare()
            self._wire.mend(process.life.name)

    def moment(self, moment: Moment, worker: int | None = None) -> None:
        """One that faults may have waited for; of this worker, or of any."""
        due = [fault for fault in self._in_store if fault.moment is moment]
        for fault in due:
            self._in_store.remove(fault)
            self._strike(fault, worker)

    def assigned(self, members: list[str]) -> None:
        """These share all partitions now."""
        for name, lasts, act in self._awaited:
            if not any(member.startswith(name) for member in members):
                self._loop.after(lasts, act)

    def _due(self, fault: Fault) -> None:
        self._workers.note("!!", str(fault)[10:])
        now, until = self._loop.time(), self._loop.time() + fault.lasts
        match fault.trouble:
            case Trouble.DOWN:
                self._weather.fronts.append(Front(now, until, ""))
            case Trouble.SLOW:
                self._weather.fronts.append(Front(now, until, _LINKS[fault.steps % len(_LINKS)], SLOWED_S))
            case Trouble.REDIS:
                self._weather.fronts.append(Front(now, until, REDIS))
            case Trouble.JOIN:
                self._workers.join(fault.worker)
            case Trouble.COMPACT:
                for (topic, _), log in self._broker.logs.items():
                    if topic == CHANGELOG:
                        log.compact(log.end - 1)
            case Trouble.EXPIRE:
                self._workers.expire_decisions()
            case Trouble.OUTAGE | Trouble.OFFSETS:
                self._workers.outage(fault.lasts, offsets_expire=fault.trouble is Trouble.OFFSETS)
            case Trouble.CLAIMS:
                self._broker.expire_claims()
            case Trouble.CLOCK:
                for (topic, partition), log in self._broker.logs.items():
                    log.skew = SKEW_S * (2 * unit(self._seed, topic, partition, int(now * 1000)) - 1)
            case _ if fault.moment is not Moment.NOW:
                self._in_store.append(fault)
            case _:
                self._strike(fault, None)

    def _strike(self, fault: Fault, worker: int | None) -> None:
        living = sorted(self._workers.living)
        if worker is None:
            if not living:
                return
            worker = living[fault.worker % len(living)]
        process, wire = self._workers.living[worker], self._wire
        life, name = process.life, process.life.name
        match fault.trouble:
            case Trouble.KILL:
                life.after(fault.steps, lambda: life.crash("killed"))
            case Trouble.KILL_AND_DISK:
                life.after(fault.steps, lambda: (process.disk.lose(), life.crash("killed, and its disk lost")))
            case Trouble.PAUSE:
                life.after(fault.steps, lambda: self._for_a_while(life, fault, life.pause, life.resume))
            case Trouble.CUT:
                cut, mend = lambda: wire.cut(name), lambda: wire.mend(name)
                life.after(fault.steps, lambda: self._for_a_while(life, fault, cut, mend))
            case Trouble.STOP:
                process.stop()
            case Trouble.LEAVE:
                self._workers.leave(worker)
                process.stop()
            case Trouble.RENEW:
                process.renew()
            case Trouble.LOSE_FETCH:
                process.loses_fetch = True

    def _for_a_while(self, life: Life, fault: Fault, begin: Callable[[], None], end: Callable[[], None]) -> None:
        def over() -> None:
            if life.alive:
                self._workers.note(life.name, f"{fault.trouble} no more")
            end()

        self._workers.note(life.name, f"{fault.trouble} now")
        begin()
        if fault.until_taken:
            self._awaited.append((life.name, fault.lasts, over))
        self._loop.after(TAKEN_S if fault.until_taken else fault.lasts, over)
