"""What a worker needs to take over: how fast profiles are read back, and how long a killed worker's payments wait.

`make bench-recovery`, or `python perf/recovery.py --help`. `perf/README.md` says what is measured, and how.
"""

import argparse
import asyncio
import secrets
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import tell, train_bundle
from command import ended
from contenders import Stand
from recovery_rate import Recovery, recover_all
from takeover import TakeOver, take_over_all

from assay.deploy.services import services

PARTS = ("rate", "takeover")
HISTORY = 5_000

EXAMPLES = """\
examples:
  make bench-recovery                                everything: some five minutes
  make bench-recovery ARGS=--quick                   a look: figures that mean little
  python perf/recovery.py --only rate --rows 1000000
  python perf/recovery.py --only takeover --repeat 5

Kafka and Redis are started for the run, unless ASSAY_BOOTSTRAP_SERVERS and ASSAY_REDIS_URL name some.
Progress goes to stderr, tables to stdout; the last line of stdout is one JSON object, null for what was not run.
"""


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="perf/recovery.py",
        description="Measure recovery: rows a second from the changelog, and the take-over after a kill.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", choices=PARTS, action="append", help="a part (default: both)")
    add("--rows", type=int, default=300_000, metavar="N", help="rows in the changelog for ours (%(default)s)")
    add("--faust-rows", type=int, default=30_000, metavar="N", help="the same for stock Faust, which is slower (%(default)s)")
    add(
        "--profiles",
        type=int,
        default=100_000,
        metavar="N",
        help="profiles of the workers of which one is killed (%(default)s)",
    )
    add("--repeat", type=int, default=3, metavar="N", help="how often each is measured (%(default)s)")
    add("--quick", action="store_true", help="a tenth of that, once")
    plan = parser.parse_args(given)
    if plan.quick:
        plan.rows, plan.faust_rows, plan.profiles, plan.repeat = plan.rows // 10, plan.faust_rows // 10, plan.profiles // 10, 1
    plan.only = plan.only or list(PARTS)
    return plan


def run(plan: argparse.Namespace) -> dict[str, float | None]:
    """Everything that was asked for. Raises AssayError; whatever was started has ended then."""
    redis = "takeover" in plan.only
    with tempfile.TemporaryDirectory(prefix="assay-recovery-") as name, services(redis=redis, tell=tell) as running:
        folder = Path(name)
        stand = Stand(running, folder / "bundle", folder)
        prefix = f"recovery-{secrets.token_hex(3)}-"
        recoveries: list[Recovery] = []
        kills: list[TakeOver] = []
        if "rate" in plan.only:
            recoveries = asyncio.run(recover_all(stand, plan.rows, plan.faust_rows, plan.repeat, prefix, tell))
            print(rate_table(recoveries))
        if "takeover" in plan.only:
            train_bundle(HISTORY, stand.bundle)
            kills = asyncio.run(take_over_all(stand, plan.profiles, plan.repeat, prefix, tell))
            print(takeover_table(kills))
        return line(recoveries, kills)


def rate_table(recoveries: Sequence[Recovery]) -> str:
    """Minimum, median and maximum of each contender."""
    rows = [f"\n{'recovery':20}{'rows':>10}{'bytes':>8}{'rows/s: min / median / max':>32}{'CPU us a row':>22}{'most MB':>9}"]
    for who in dict.fromkeys(one.contender for one in recoveries):
        own = [one for one in recoveries if one.contender == who]
        rows.append(
            f"{who.name:20}{who.rows:>10,}{who.row_bytes:>8,}{_spread([one.rows_per_s for one in own], '{:,.0f}'):>32}"
            f"{_spread([one.cpu_us for one in own], '{:.1f}'):>22}{max(one.rss_mb for one in own):>9.0f}"
        )
    return "\n".join(rows)


def takeover_table(kills: Sequence[TakeOver]) -> str:
    """The same of the take-overs."""
    measured = {
        "until the group has noticed (its session timeout)": [one.noticed_s for one in kills],
        "from then to the first verdict of a lost partition": [one.takeover_s for one in kills],
    }
    rows = [f"{what:52}{_spread(values, '{:.2f}'):>24}" for what, values in measured.items()]
    return "\n".join([f"\n{'after kill -9, with a standby':52}{'s: min / median / max':>24}", *rows])


def line(recoveries: Sequence[Recovery], kills: Sequence[TakeOver]) -> dict[str, float | None]:
    """The line for scripts: medians; of the rates, those of rows as wide as ours."""

    def rate(name: str) -> float | None:
        return _median([one.rows_per_s for one in recoveries if one.contender.name == name])

    ours, faust, short = (rate(name) for name in ("assay", "stock Faust", "assay, short rows"))
    takeover = _median([one.takeover_s for one in kills])
    return {
        "rows_per_s": round(ours) if ours else None,
        "rows_per_s_1kb": round(short) if short else None,
        "vs_faust": round(ours / faust, 1) if ours and faust else None,
        "takeover_s": round(takeover, 3) if takeover else None,
    }


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _spread(values: Sequence[float], form: str) -> str:
    shown: Callable[[float], str] = form.format
    return " / ".join(map(shown, (min(values), statistics.median(values), max(values))))


def main(given: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 2 after an error, 130 after Ctrl-C."""
    plan = arguments(given)
    return ended(lambda: run(plan))


if __name__ == "__main__":
    sys.exit(main())
