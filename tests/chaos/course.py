"""A course of faults under traffic, with a check after each."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .checker import Checker, Counts, Gap
from .faults import Fault
from .stand import Stand
from .whole_log import Unsettled

CALM_S = 1.5  # of traffic before the check
FRESH = "all topics, from their beginning"


@dataclass(frozen=True)
class Passed:
    """A leg of the course: so many of one fault, and what the checker found after it, of all that was sent until then.

    Attributes:
        gap: the longest wait of a transaction for its decision, in this leg.
        unsettled: what was not committed in time; empty where all was.
    """

    fault: str
    times: int
    lasted_s: float
    gap: Gap
    counts: Counts
    unsettled: str = ""


@dataclass
class Course:
    """What happened so far.

    Attributes:
        broke: why it ended early: what did not come back after which fault.
    """

    stand: Stand
    told: Callable[[Passed], None] = lambda _: None
    passed: list[Passed] = field(default_factory=list)
    broke: str = ""
    _ended: bool = False
    _checker: Checker = field(init=False)

    def __post_init__(self) -> None:
        self._checker = self.stand.fresh_checker()

    @property
    def examples(self) -> dict[str, list[str]]:
        """A few words about the first of what must not be, by count."""
        return {name: about for name, about in self._checker.examples.items() if about}

    @property
    def counts(self) -> Counts:
        """The latest."""
        return self.passed[-1].counts if self.passed else Counts()

    @property
    def missing(self) -> int:
        """Records that the broker had taken and does not hold."""
        return max(0, sum(self.stand.traffic.sent.values()) - self.counts.transactions) if self._ended else 0

    @property
    def well(self) -> bool:
        """Whether it came to its end, and nothing is wrong."""
        unsettled = any(leg.unsettled for leg in self.passed)
        return self._ended and not (unsettled or self.missing or self.counts.faults)

    async def run(self, faults: Sequence[Fault]) -> None:
        """These faults, one after the other, all of one name; then a check while nothing is sent.

        Raises AssertionError where workers or broker do not come back.
        """
        began, name = time.monotonic(), faults[0].__doc__ or faults[0].__name__
        try:
            for fault in faults:
                await fault(self.stand)
            await self.stand.fleet.ready()
        except AssertionError as error:
            self.broke = f"{name}: {error}"
            raise
        await asyncio.sleep(CALM_S)
        await self._check(name, len(faults), began)
        self.stand.traffic.resume()

    async def end(self) -> Counts:
        """All topics once more, by a checker that has been told nothing."""
        self._checker = self.stand.fresh_checker()
        self.stand.log.rewind()
        await self._check(FRESH, 1, time.monotonic())
        self._ended = True
        return self.counts

    async def _check(self, name: str, times: int, began: float) -> None:
        unsettled = ""
        try:
            await self.stand.settle()
        except Unsettled as error:
            unsettled = str(error)
        lasted_s = time.monotonic() - began
        await self.stand.log.read_on(self._checker)
        counts = await asyncio.to_thread(self._checker.counts)
        self.passed.append(Passed(name, times, lasted_s, self._checker.gap(), counts, unsettled))
        self.told(self.passed[-1])
