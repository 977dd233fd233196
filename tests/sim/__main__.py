"""Simulate workers, from seeds: `python -m tests.sim --help`."""

import argparse
import json
import os
import sys

from .campaign import all_defects, all_seeds, replay
from .defects import DEFECTS

EXAMPLES = """examples:
  make sim SEEDS=1000            a thousand seeds, and whether each defect is found
  make sim SEEDS=100000 FROM=1000
  make sim SEED=17               one seed with its trace; the shortest that fails, if it does
  make sim SEED=17 ARGS="--defect fold_twice"
"""


def main() -> int:
    """Exit status: 1 where an invariant did not hold, or a defect was not found."""
    arguments = _arguments()
    if arguments.seed is not None:
        return _one(arguments.seed, arguments.defect)
    failed = crashes = 0
    for number, seen in enumerate(all_seeds(arguments.first, arguments.seeds, arguments.jobs), 1):
        crashes += seen.crashes
        if seen.failure:
            failed += 1
            _say(f"seed {seen.seed}: {seen.failure}  (make sim SEED={seen.seed})", arguments.json)
        _progress(f"{number} of {arguments.seeds} seeds, {failed} failed")
    found = 0
    for hunt in all_defects(arguments.jobs) if not arguments.no_defects else ():
        found += hunt.seed is not None
        _say(f"{hunt.defect}: {'NOT FOUND' if hunt.seed is None else f'seed {hunt.seed}: {hunt.failure}'}", arguments.json)
    wanted = 0 if arguments.no_defects else len(DEFECTS)
    print(json.dumps({"seeds": arguments.seeds, "failed": failed, "crashes": crashes, "defects_found": found}))
    return int(failed > 0 or found < wanted)


def _one(seed: int, defect: str | None) -> int:
    plan, outcome = replay(seed, defect)
    print(plan, "\n", sep="")
    print(*outcome.trace, sep="\n")
    print("\nall invariants hold" if outcome.failure is None else f"\n{outcome.failure!r}")
    return int(outcome.failure is not None)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.sim", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1_000, help="how many (default: %(default)s)")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="SEED", help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone, with its trace")
    parser.add_argument("--defect", choices=DEFECTS, help="with --seed: put this defect into the code")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    parser.add_argument("--no-defects", action="store_true", help="don't look for defects")
    parser.add_argument("--json", action="store_true", help="nothing but the last line on standard output")
    return parser.parse_args()


def _say(line: str, only_json: bool) -> None:
    _progress("")
    print(line, file=sys.stderr if only_json else sys.stdout, flush=True)


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        status = main()
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
