"""The long form: `make chaos KILLS=100`, or `python -m tests.chaos --help`."""

import argparse
import asyncio
import json
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from assay.deploy.services import services
from assay.schemas.errors import AssayError

from . import faults, report
from .course import Course, Passed
from .stand import WORKERS, stand

RATE, KILLS, KILLS_A_LEG = 200.0, 100, 10
KEPT = ("*.log", "*.out", "examples.json")

EXAMPLES = """\
examples:
  make chaos KILLS=100                        everything: 100 kills, then every other fault; about 25 minutes
  python -m tests.chaos --kills 0 --only cut_link --only kill_broker
  python -m tests.chaos --kills 20 --seed 7   the same choices again (their moments differ)
  python -m tests.chaos --write               keep the result in perf/RESULTS.md

A Kafka of its own (Java 17 and Maven) is started in a temporary folder, and Redis unless ASSAY_REDIS_URL names one. Everything
ends with the command, after Ctrl-C too. If anything is wrong, logs and examples are kept, and the last lines say where.

exit status: 0 all is well, 1 something was lost, contradictory or otherwise wrong, 2 it could not be run,
130 or 143 stopped by Ctrl-C or SIGTERM
"""


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Kill, stop, cut off and starve real workers under steady traffic, and check every verdict after each.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [fault.__name__ for fault in faults.LONG_COURSE]
    add = parser.add_argument
    add("--kills", type=int, default=KILLS, help="kill -9 of a random worker, so many times (%(default)s)")
    add("--only", choices=names, action="append", help="of the other faults, only this one; may be given more than once")
    add("--times", type=int, default=1, help="each of the other faults, so many times (%(default)s)")
    add("--rate", type=float, default=RATE, help="transactions a second (%(default)s)")
    add("--seed", type=int, help="of all choices and of the traffic; printed (default: any)")
    add("--json", action="store_true", help="nothing on stdout but the last line, one JSON object")
    add("--keep", action="store_true", help="keep the logs of workers and broker, whatever comes of it")
    add("--write", action="store_true", help="put the result into perf/RESULTS.md")
    plan = parser.parse_args(given)
    if plan.seed is None:
        plan.seed = random.SystemRandom().randrange(10_000)
    return plan


class Screen:
    """Progress on stderr: one line that changes on a terminal, else one for each leg."""

    def __init__(self, legs: int) -> None:
        self._legs, self._passed, self._began = legs, 0, time.monotonic()
        self._live = sys.stderr.isatty()

    def leg(self, name: str) -> None:
        """It begins."""
        self._show(f"{name} ...", passing=True)

    def passed(self, leg: Passed) -> None:
        """It is over and checked."""
        self._passed += 1
        wrong = ", ".join(f"{name} {count}" for name, count in leg.counts.faults.items()) or "all is well"
        late = f"; {leg.unsettled}" if leg.unsettled else ""
        self._show(
            f"{leg.fault}: {wrong}; {leg.counts.transactions:,} transactions, gap {leg.gap.seconds:.1f} s{late}", passing=False
        )

    def _show(self, text: str, *, passing: bool) -> None:
        if passing and not self._live:
            return
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        line = f"[{minutes:2}:{seconds:02}] {self._passed}/{self._legs} {text}"
        print(f"\r\033[K{line}" if self._live else line, end="" if passing else "\n", file=sys.stderr, flush=True)


def legs_of(plan: argparse.Namespace) -> list[list[faults.Fault]]:
    """The kills in legs of a few, then each other fault."""
    kills = [[faults.kill] * min(KILLS_A_LEG, plan.kills - done) for done in range(0, plan.kills, KILLS_A_LEG)]
    others = [fault for fault in faults.LONG_COURSE if not plan.only or fault.__name__ in plan.only]
    return kills + [[fault] for fault in others * plan.times]


async def run(plan: argparse.Namespace, folder: Path, redis_url: str) -> Course:
    """Everything that was asked for."""
    task, legs = asyncio.current_task(), legs_of(plan)
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    screen = Screen(len(legs) + 1)
    print(f"seed {plan.seed}; {WORKERS} workers, {plan.rate:.0f} transactions a second", file=sys.stderr, flush=True)
    async with stand(folder, redis_url, seed=plan.seed, rate=plan.rate) as running:
        course = Course(running, screen.passed)
        try:
            for leg in legs:
                screen.leg((leg[0].__doc__ or "") + f" ({len(leg)})" * (len(leg) > 1))
                await course.run(leg)
            await course.end()
        except AssertionError:
            if not course.broke:
                raise
        finally:
            (folder / "examples.json").write_text(json.dumps(course.examples, indent=1))
    return course


def main(given: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    plan = arguments(given)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # that its broker is away is our own doing
    folder = Path(tempfile.mkdtemp(prefix="assay-chaos-"))
    well = False
    try:
        with services(kafka=False) as redis:
            course = asyncio.run(run(plan, folder, redis.redis_url))
        text, figures, well = report.text(course, plan.rate), report.line(course), course.well
        if not plan.json:
            print(f"\n{text}\n")
        for name, about in course.examples.items():
            print(f"{name}:", *about, sep="\n  ", file=sys.stderr)
        if plan.write:
            report.write(text, figures)
        print(json.dumps(figures))
    except AssayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except AssertionError as error:  # workers or broker did not even come up
        print(f"error: {error}", file=sys.stderr)
    except (KeyboardInterrupt, asyncio.CancelledError) as stopped:
        print("\nstopped", file=sys.stderr)
        well = True  # nothing to look for
        return 130 if isinstance(stopped, KeyboardInterrupt) else 143
    finally:
        _tidy(folder, keep=plan.keep or not well)
    return 0 if well else 1


def _tidy(folder: Path, *, keep: bool) -> None:
    """Remove it, but for what tells why something went wrong."""
    if keep:
        kept = folder.with_name(folder.name + "-kept")
        kept.mkdir()
        for pattern in KEPT:
            for path in [*folder.glob(pattern), *folder.glob(f"kafka/{pattern}")]:
                shutil.copy(path, kept / path.name)
        print(f"logs and examples: {kept}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
