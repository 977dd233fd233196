"""What a profile costs by how many users there are on disk: `python perf/users.py --help`. `perf/README.md` says more."""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from command import ended
from user_rows import folded_rows, keys_of, other_rows, packed

from assay.schemas.errors import SettingError
from assay.schemas.limits import MAX_BATCH_TRANSACTIONS
from assay.tables.profile import ROW_BYTES, Rows
from assay.tables.store import RowStore

SIZES = (1_000, 100_000, 10_000_000)
QUICK_SIZES = (1_000, 100_000)
PARTITIONS = 4
LOADED_AT_ONCE = 10_000
HOT_SHARE = 0.1  # of the users ...
HOT_TRAFFIC = 0.9  # ... who make this share of the payments
ROOM = 2.0  # times the bytes of all rows: what loading and compaction take at most
SEED = 5

EXAMPLES = """\
examples:
  python perf/users.py                          1,000, 100,000 and 10 million users: some minutes and 20 GB of disk
  python perf/users.py --quick                  without the ten millions
  python perf/users.py --sizes 1000 1000000     others
  python perf/users.py --folder /somewhere      where there is room; what is made there is removed

The last line of stdout is one JSON object.
"""


@dataclass
class Population:
    """The profiles of so many users on disk, in a store of their own.

    Attributes:
        get_us, write_us: microseconds a row, of each round.
        cpu_us: CPU microseconds of the calling thread for both, a row, of each round: what a busy machine spoils less.
    """

    size: int
    store: RowStore
    generator: np.random.Generator
    changelog_offset: int = 0
    get_us: list[float] = field(default_factory=list)
    write_us: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    @property
    def us(self) -> list[float]:
        """Of a row, got and written."""
        return [get + write for get, write in zip(self.get_us, self.write_us, strict=True)]

    def load(self, folded: Rows) -> None:
        """Write a row for every user, in the order of the keys, as a changelog is recovered: in large batches."""
        for partition in range(PARTITIONS):
            keys = sorted(keys_of(np.arange(partition, self.size, PARTITIONS)))
            for start in range(0, len(keys), LOADED_AT_ONCE):
                some = keys[start : start + LOADED_AT_ONCE]
                rows = packed(other_rows(folded, len(some), self.generator))
                self.changelog_offset += len(some)
                self.store.apply(partition, list(zip(some, rows, strict=True)), self.changelog_offset)

    def micro_batch(self, rows: int) -> dict[int, list[bytes]]:
        """The keys of so many distinct users by partition, most of them hot: which those are has nothing to do with keys."""
        hot = max(1, int(self.size * HOT_SHARE))
        wanted = min(rows, self.size)
        drawn: npt.NDArray[np.int64] = np.empty(0, np.int64)
        while len(drawn) < wanted:
            below = np.where(self.generator.random(wanted) < HOT_TRAFFIC, hot, self.size)
            drawn = np.unique(np.concatenate([drawn, self.generator.integers(0, below)]))
        drawn = self.generator.permutation(drawn)[:wanted]
        return {p: keys for p in range(PARTITIONS) if (keys := keys_of(drawn[drawn % PARTITIONS == p]))}

    def round(self, micro_batches: int, rows: int, *, counted: bool = True) -> None:
        """Get the rows of so many micro-batches and write them, and take note of what it took where that is counted."""
        got_s = written_s = computed_s = 0.0
        count = 0
        for partition, keys in [each for _ in range(micro_batches) for each in self.micro_batch(rows).items()]:
            began, began_computing = time.perf_counter(), time.thread_time()
            found = self.store.get(partition, keys)
            got_s += time.perf_counter() - began
            computed_s += time.thread_time() - began_computing
            folded = {key: row for key, row in zip(keys, found, strict=True) if row is not None}
            count += len(folded)
            self.changelog_offset += len(folded)
            began, began_computing = time.perf_counter(), time.thread_time()
            self.store.write(partition, folded, self.changelog_offset)
            written_s += time.perf_counter() - began
            computed_s += time.thread_time() - began_computing
        if not counted:
            return
        for figures, seconds in ((self.get_us, got_s), (self.write_us, written_s), (self.cpu_us, computed_s)):
            figures.append(seconds / count * 1e6)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="perf/users.py",
        description="Measure what getting and writing a profile row costs, by the number of users on disk.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--sizes", type=int, nargs="+", help="numbers of users (1000 100000 10000000; quick: 1000 100000)")
    add("--quick", action="store_true", help="small and short")
    add("--rounds", type=int, help="of every size, in turn (20; quick: 5)")
    add("--micro-batches", type=int, default=200, help="in each round (%(default)s)")
    add("--rows", type=int, default=MAX_BATCH_TRANSACTIONS, help="of distinct users in a micro-batch (%(default)s)")
    add("--warm-up", type=int, help="rounds that are not counted: hot rows come back into the page cache (60; quick: 2)")
    add("--folder", type=Path, help="where the databases are made and removed (the system's place for temporary files)")
    add("--json", action="store_true", help="nothing on stdout but the JSON line")
    plan = parser.parse_args(given)
    plan.sizes = sorted(plan.sizes or (QUICK_SIZES if plan.quick else SIZES))
    plan.rounds = plan.rounds or (5 if plan.quick else 20)
    plan.warm_up = (2 if plan.quick else 60) if plan.warm_up is None else plan.warm_up
    if plan.warm_up < 0:
        parser.error("--warm-up has to be 0 or more")
    if min(*plan.sizes, plan.rounds, plan.micro_batches, plan.rows) < 1:
        parser.error("numbers have to be above 0")
    return plan


def tell(text: str) -> None:
    """Progress, for somebody who waits."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


@contextmanager
def populations(sizes: Sequence[int], folder: Path) -> Iterator[list[Population]]:
    """Loaded stores, closed at the end. Raises SettingError where the disk has no room for them."""
    needed, free = sum(sizes) * ROW_BYTES * ROOM, shutil.disk_usage(folder).free
    if needed > free:
        raise SettingError(
            f"{folder} has no room for so many profiles",
            expected=f"{needed / 1e9:.0f} GB",
            got=f"{free / 1e9:.0f} GB",
            mend="name another --folder, or smaller --sizes",
        )
    folded = folded_rows()
    with ExitStack() as stack:
        loaded = []
        for size in sizes:
            store = RowStore(folder / str(size), ROW_BYTES)
            stack.callback(store.close)
            loaded.append(Population(size, store, np.random.default_rng(SEED)))
            began = time.perf_counter()
            loaded[-1].load(folded)
            tell(f"{size:,} users loaded, {size / (time.perf_counter() - began):,.0f} rows a second")
        yield loaded


def run(plan: argparse.Namespace) -> list[Population]:
    """Every size in turn, so often. What was made is removed. Raises SettingError."""
    with tempfile.TemporaryDirectory(prefix="assay-users-", dir=plan.folder, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with populations(plan.sizes, folder) as measured:
            for number in range(1 - plan.warm_up, plan.rounds + 1):
                for population in measured:
                    population.round(plan.micro_batches, plan.rows, counted=number > 0)
                if number > 0:
                    latest = ", ".join(f"{population.us[-1]:.1f}" for population in measured)
                    tell(f"round {number} of {plan.rounds}: {latest} us a row; {_used(folder) / 1e9:.1f} GB")
            return measured


def _used(folder: Path) -> int:
    """Bytes of the files; some go while we look."""
    total = 0
    for path in folder.rglob("*.sst"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def table(measured: Sequence[Population]) -> str:
    """For people, in Markdown."""
    lines = [
        "| users | us a row: min / median / max | get | write | CPU us a row: min / median / max |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in measured:
        get, write = statistics.median(one.get_us), statistics.median(one.write_us)
        lines.append(f"| {one.size:,} | {_spread(one.us)} | {get:.1f} | {write:.1f} | {_spread(one.cpu_us)} |")
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.1f}" for value in (min(values), statistics.median(values), max(values)))


def line(measured: Sequence[Population]) -> Mapping[str, object]:
    """For scripts: medians, and the ratio of ten million to a thousand; None where one of them was not measured."""
    elapsed = {one.size: statistics.median(one.us) for one in measured}
    computed = {one.size: statistics.median(one.cpu_us) for one in measured}
    return {
        "us_per_row": {str(size): round(us, 2) for size, us in elapsed.items()},
        "cpu_us_per_row": {str(size): round(us, 2) for size, us in computed.items()},
        "ratio_10m_to_1k": _ratio(elapsed),
        "cpu_ratio_10m_to_1k": _ratio(computed),
    }


def _ratio(medians: Mapping[int, float]) -> float | None:
    few, many = medians.get(SIZES[0]), medians.get(SIZES[-1])
    return round(many / few, 2) if few and many else None


def main(given: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 2 after an error, 130 after Ctrl-C."""
    plan = arguments(given)
    return ended(lambda: _figures(plan))


def _figures(plan: argparse.Namespace) -> Mapping[str, object]:
    measured = run(plan)
    if not plan.json:
        print(f"{table(measured)}\n")
    return line(measured)


if __name__ == "__main__":
    sys.exit(main())
