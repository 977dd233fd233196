"""An asyncio event loop in virtual time, and the lives of processes in it.

Nothing waits: where no step is ready, the clock moves on to the next timer. Steps run in the order in which they were made
ready, timers of one moment in the order in which they were set, so a run depends on its seed alone.

A life stands for one operating system process. Its tasks inherit it with their context, and every step of the loop asks the
life whether it may run. So a process that crashes between two steps never takes another one, and one that is paused takes
all that have gathered meanwhile when it wakes up, as after SIGSTOP and SIGCONT.
"""

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from itertools import count
from typing import Any, NoReturn

from aiokafka.errors import KafkaError

from assay.schemas.errors import AssayError
from assay.streams.ending import instead

FORESEEN = (AssayError, KafkaError, TimeoutError)  # for which a worker ends itself
MAX_STEPS = 300_000  # of one run: more than any plan needs
TICK_S = 1e-6


class Ended(BaseException):
    """A life has ended itself: unwinds what ran, past every `except Exception`."""


class Stuck(Exception):
    """Nothing is ready and no timer is set, or there is no end to it: the run can't go on."""


class Life:
    """One process: from its start until it crashes, ends itself, or has stopped.

    Args:
        died: called once, with this life and the reason.
    """

    def __init__(self, name: str, loop: "VirtualLoop", died: Callable[["Life", str], None]) -> None:
        self.name, self.alive, self.paused = name, True, False
        self._loop, self._died = loop, died
        self._steps_left, self._then = -1, self.resume
        self._held: list[asyncio.Handle] = []

    def enter(self) -> Context:
        """A context for a task of this process."""
        context = Context()
        context.run(LIFE.set, self)
        context.run(instead.set, self._end)
        return context

    def may_run(self, step: asyncio.Handle) -> bool:
        """Whether a step of this process may be taken now; keeps it for later while paused."""
        if self.alive and not self.paused and self._steps_left >= 0:
            self._steps_left -= 1
            if self._steps_left < 0:
                self._then()
        if self.alive and self.paused:
            self._held.append(step)
        return self.alive and not self.paused

    def after(self, steps: int, act: Callable[[], None]) -> None:
        """Crash or pause (`act`) before the step that follows so many others."""
        self._steps_left, self._then = steps, act

    def spare(self) -> None:
        """Take back what `after` has in store, and any pause."""
        self._steps_left = -1
        self.resume()

    def crash(self, reason: str) -> None:
        """From here on it takes no step. What it has sent is on its way all the same."""
        if self.alive:
            self.alive = False
            self._held.clear()
            self._died(self, reason)

    def _end(self, reason: str, error: BaseException | None) -> NoReturn:
        """The process ends itself. What it can't have meant to end for fails the run."""
        if error is not None and not isinstance(error, FORESEEN) and self._loop.fault is None:
            self._loop.fault = error
        self.crash(f"ended itself: {reason}: {error}")
        raise Ended(reason)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """Take up what has gathered."""
        if self.paused:
            self.paused = False
            held, self._held = self._held, []
            self._loop.again(held)


LIFE: ContextVar[Life | None] = ContextVar("life", default=None)
NOBODY = Context()  # for what happens outside of every process: on the wire and in the brokers


class _Step(asyncio.Handle):
    def _run(self) -> None:
        life = self._context.get(LIFE)  # type: ignore[attr-defined]
        if life is None or life.may_run(self):
            super()._run()  # type: ignore[misc]


class _Timer(asyncio.TimerHandle):
    def _run(self) -> None:
        life = self._context.get(LIFE)  # type: ignore[attr-defined]
        if life is None or life.may_run(self):
            super()._run()  # type: ignore[misc]


class VirtualLoop(asyncio.BaseEventLoop):
    """Run one simulation with `run`; a loop is good for one."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._timers: list[tuple[float, int, _Timer]] = []
        self._order = count()
        self._tasks: list[asyncio.Task[Any]] = []  # all are kept: what is abandoned must not be finalised by chance
        self.steps = 0
        self.fault: BaseException | None = None  # an exception that nothing in the run expected
        self.set_exception_handler(VirtualLoop._unexpected)

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run until `main` is done, whatever else is under way. Raises what it raises, Stuck, or `fault`."""
        try:
            self.run_until_complete(main)
        finally:
            self._dispose()
            self.close()

    def time(self) -> float:
        return self._now

    def after(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        """Call outside of every process, after `delay` seconds."""
        self.call_at(self._now + delay, callback, *args, context=NOBODY)

    def again(self, steps: list[asyncio.Handle]) -> None:
        """Steps that were held up are ready, in their order."""
        self._ready.extend(steps)  # type: ignore[attr-defined]

    # -- what asyncio asks of a loop ------------------------------------------------------------------------------------

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        step = _Step(callback, args, self, context)
        self._ready.append(step)  # type: ignore[attr-defined]
        return step

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:  # type: ignore[override]
        when = max(when, self._now + TICK_S)  # as a real clock goes on between two looks
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        task = super().create_task(coro, **options)
        self._tasks.append(task)
        return task

    def _run_once(self) -> None:
        """One turn: the clock moves on if it has to, then what is ready now runs, and not what becomes ready by it."""
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not ready:
            if not timers:
                raise Stuck("nothing is ready and no timer is set")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            step = ready.popleft()
            if not step.cancelled():
                self.steps += 1
                step._run()
        if self.fault is not None:
            raise self.fault
        if self.steps > MAX_STEPS:
            raise Stuck(f"no end after {self.steps} steps")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is dropped when its time comes."""

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """Generators of abandoned tasks are closed with them."""

    @staticmethod
    def _unexpected(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(loop, VirtualLoop) and loop.fault is None and not isinstance(error, Ended):
            loop.fault = error or RuntimeError(context["message"])

    def _dispose(self) -> None:
        """Close what is still under way, as a process that has ended, so that nothing that it does has an effect."""
        self.set_exception_handler(lambda loop, context: None)
        after = Life("after the run", self, lambda life, reason: None)
        after.alive = False
        context = after.enter()
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                try:
                    context.run(task.get_coro().close)  # type: ignore[union-attr]
                except BaseException:  # a clean-up that waits, or an end: nobody is there any more
                    continue
        self._tasks.clear()
        self._timers.clear()
        self._ready.clear()  # type: ignore[attr-defined]
