"""Many seeds, and whether each defect is found: what the command and the tests run."""

import gc
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from unittest.mock import patch

from assay.schemas import limits
from assay.streams.settings import Settings

from .checks import DEAD_LETTERS, DECISIONS, TRANSACTIONS, Violation
from .defects import DEFECTS
from .kafka import installed
from .plan import Plan, plan_of
from .shrink import shrink
from .world import Outcome, World

CHUNK = 25  # seeds that a process takes at once
SEEDS_FOR_A_DEFECT = 2_000
BOUNDS = {"MAX_UNREMEMBERED_BATCHES": 4, "MAX_WAITING_REPEATS": 6}  # narrow, so that they are reached
SETTINGS = {"transactions_topic": TRANSACTIONS, "decisions_topic": DECISIONS, "dead_letters_topic": DEAD_LETTERS}


@dataclass(frozen=True, slots=True)
class Seen:
    """Of one seed."""

    seed: int
    crashes: int
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Hunt:
    """For one defect: the first seed that finds it, None where there is none; and how it shows."""

    defect: str
    seed: int | None
    failure: str = ""


@contextmanager
def simulated() -> Iterator[Callable[..., Outcome]]:
    """What runs a plan: aiokafka is stood in for, bounds are narrow and logs are silent while this lasts."""
    settings: dict[tuple[int, int], Settings] = {}

    def run(plan: Plan, *, traced: bool = False) -> Outcome:
        limits_of = plan.batch, plan.take_bytes
        if limits_of not in settings:
            settings[limits_of] = Settings(
                _env_file=None, batch_transactions=plan.batch, batch_bytes=plan.take_bytes, **SETTINGS
            )
        return World(plan, settings[limits_of], traced=traced).run()

    disabled = logging.root.manager.disable
    with installed(), patch.multiple(limits, **BOUNDS):
        logging.disable(logging.CRITICAL)
        gc.collect()
        gc.freeze()  # what lives longer than a run is not looked at again and again
        try:
            yield run
        finally:
            gc.unfreeze()
            logging.disable(disabled)


def run_seeds(seeds: Iterable[int]) -> list[Seen]:
    """Run these, in this process."""
    seen = []
    with simulated() as run:
        for seed in seeds:
            outcome = run(plan_of(seed))
            failure = "" if outcome.failure is None else f"{type(outcome.failure).__name__}: {outcome.failure}"
            seen.append(Seen(seed, outcome.crashes, failure))
    return seen


def hunt(name: str, most: int = SEEDS_FOR_A_DEFECT) -> Hunt:
    """Put a defect into the real code, and run seeds until one breaks what it is to break."""
    defect = DEFECTS[name]
    with simulated() as run, defect.put():
        for seed in range(most):
            failure = run(plan_of(seed)).failure
            if isinstance(failure, Violation) and failure.invariant in defect.breaks:
                return Hunt(name, seed, str(failure))
    return Hunt(name, None)


def all_seeds(first: int, count: int, jobs: int) -> Iterator[Seen]:
    """The seeds in order, in so many processes."""
    chunks = [range(begin, min(begin + CHUNK, first + count)) for begin in range(first, first + count, CHUNK)]
    with _processes(jobs) as pool:
        for seen in (pool.map if pool else map)(run_seeds, chunks):
            yield from seen


def all_defects(jobs: int) -> Iterator[Hunt]:
    """Each of them looked for."""
    with _processes(jobs) as pool:
        yield from (pool.map if pool else map)(hunt, DEFECTS)


def replay(seed: int, defect: str | None = None) -> tuple[Plan, Outcome]:
    """One seed with its trace: the whole of it where all holds, else the shortest that fails in the same way."""
    with simulated() as run, DEFECTS[defect].put() if defect else nullcontext():
        plan = plan_of(seed)
        outcome = run(plan, traced=True)
        if outcome.failure is None:
            return plan, outcome
        shortest = shrink(plan, lambda tried: _same(run(tried), outcome))
        return shortest, run(shortest, traced=True)


def _same(one: Outcome, other: Outcome) -> bool:
    return type(one.failure) is type(other.failure) and getattr(one.failure, "invariant", "") == getattr(
        other.failure, "invariant", ""
    )


def _processes(jobs: int) -> "ProcessPoolExecutor | nullcontext[None]":
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) if jobs > 1 else nullcontext()
