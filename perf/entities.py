"""What entities cost in Redis and in a Redis Cluster: `python perf/entities.py --help`. `perf/README.md` says more."""

import argparse
import asyncio
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import report
from command import ended
from entity_payments import Payments
from redis import Redis

from assay.deploy.redis_cluster import local_cluster
from assay.deploy.services import Running, services
from assay.schemas.errors import ServiceError
from assay.tables.entities import Entities
from assay.tables.entity_layout import ENTITIES
from assay.tables.events import Events
from assay.tables.keyspace import Keyspace
from assay.tables.lookups import row_key
from assay.tables.redis_link import Command, RedisLink, urls_of

SIZES = (64, 256)
PER_S = 5_000.0  # payments, in event time
MASTERS = 3
PREFIX = "bench"  # of the cluster, which is always new: the same shares of it each time
LOADED_AT_ONCE = 256  # payments; and rows
DEADLINE_S = 30.0  # for one call: here nobody waits
ROW_BYTES = 100
ROWS_EXPIRE_S = 3_600
LOOKED_UP = ("user", "instrument", "merchant", "device", "address")
SKETCH = "The design's sketch (4 windows, two tiles rewritten, no look-ups): 10 us an entity in Redis, 192 entities 2 to 4 ms."

EXAMPLES = """\
examples:
  python perf/entities.py                some two minutes
  python perf/entities.py --quick        a look; figures that mean little
  python perf/entities.py --shards 24    on the cluster; one server always has one

Redis is started for the run, unless ASSAY_REDIS_URL names one; the cluster always is.
The last line of stdout is one JSON object.
"""


class Rows:
    """A family of rows (`tables.lookups.Family`) that fills no column: what looking up alone costs."""

    marker = b"x"
    kinds = LOOKED_UP
    columns = slice(0, 0)

    def read(self, *_: object) -> None:
        """Nothing to read out of them."""


@dataclass
class Contender:
    """Entities on one server or on several, with or without look-ups.

    Attributes:
        urls: of each server, for what it says of itself. stream: what it observes, shared by all contenders of one server.
        ms, own_ms: by size of the micro-batch, the median of each round by the clock, and our own CPU in it.
        redis_us, function_us: by size, an entity: CPU of all servers, and what the function took of it by their account.
    """

    name: str
    entities: Entities
    urls: Sequence[str]
    stream: Payments
    ms: dict[int, list[float]] = field(default_factory=dict)
    own_ms: dict[int, list[float]] = field(default_factory=dict)
    redis_us: dict[int, list[float]] = field(default_factory=dict)
    function_us: dict[int, list[float]] = field(default_factory=dict)

    async def observe(self, events: Events, partitions: npt.NDArray[np.int64]) -> tuple[float, float]:
        """One micro-batch: milliseconds by the clock, and of our own CPU. Raises ServiceError."""
        began, began_computing = time.perf_counter(), time.thread_time()
        answer = await self.entities.observe(events, partitions)
        took, computed = time.perf_counter() - began, time.thread_time() - began_computing
        if not answer.available:
            raise ServiceError("Redis did not answer", expected=f"that within {DEADLINE_S:.0f} s", got=answer.reason)
        return took * 1e3, computed * 1e3

    async def round(self, size: int, micro_batches: int) -> None:
        """So many micro-batches, and take note of them."""
        before = self._spent()
        took = [await self.observe(*self.stream.present(size, PER_S)) for _ in range(micro_batches)]
        cpu, function = (after - start for after, start in zip(self._spent(), before, strict=True))
        observed = size * micro_batches * len(ENTITIES)
        self.ms.setdefault(size, []).append(statistics.median(ms for ms, _ in took))
        self.own_ms.setdefault(size, []).append(statistics.median(ms for _, ms in took))
        self.redis_us.setdefault(size, []).append(cpu / observed)
        self.function_us.setdefault(size, []).append(function / observed)

    def _spent(self) -> tuple[float, float]:
        """Microseconds so far of all servers: CPU of the process, and the time within functions."""
        cpu = function = 0.0
        for url in self.urls:
            with Redis.from_url(url) as client:
                usage, calls = client.info("cpu"), client.info("commandstats")
            cpu += (usage["used_cpu_user"] + usage["used_cpu_sys"]) * 1e6
            function += calls.get("cmdstat_fcall", {}).get("usec", 0)
        return cpu, function


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="perf/entities.py",
        description="Measure what entities cost in Redis, on one server and on a cluster of three.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="two days of history, short")
    add("--users", type=int, default=5_000, help="each with a payment a day (%(default)s)")
    add("--merchants", type=int, default=1_000, help="(%(default)s)")
    add("--days", type=int, help="of history before it is measured: windows are as full as they get (31; quick: 2)")
    add("--rounds", type=int, help="of every contender and size, in turn (20; quick: 4)")
    add("--payments", type=int, default=5_120, help="in each round, of every size (%(default)s)")
    add("--shards", type=int, default=4 * MASTERS, help="of the cluster (%(default)s)")
    add("--write", action="store_true", help="put the result into perf/RESULTS.md")
    add("--json", action="store_true", help="nothing on stdout but the JSON line")
    plan = parser.parse_args(given)
    plan.days = plan.days or (2 if plan.quick else 31)
    plan.rounds = plan.rounds or (4 if plan.quick else 20)
    if min(plan.users, plan.merchants, plan.days, plan.rounds, plan.shards) < 1 or plan.payments < max(SIZES):
        parser.error(f"numbers have to be above 0, and --payments {max(SIZES)} or more")
    return plan


def tell(text: str) -> None:
    """Progress, for somebody who waits."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


@contextmanager
def servers() -> Iterator[tuple[Running, str]]:
    """One Redis, and the URL of a cluster. Raises ServiceError."""
    with (
        services(kafka=False, tell=tell) as running,
        tempfile.TemporaryDirectory(prefix="assay-entities-") as folder,
        local_cluster(Path(folder), masters=MASTERS) as cluster,
    ):
        yield running, cluster.url


@asynccontextmanager
async def loaded(plan: argparse.Namespace, name: str, url: str, prefix: str, shards: int) -> AsyncIterator[list[Contender]]:
    """Two contenders on the same rows, the second with look-ups, after so many days of payments."""
    keyspace = Keyspace(prefix, "", shards)
    stream = Payments(plan.users, plan.merchants)
    contenders = []
    for title, families in ((name, ()), (f"{name}, with look-ups", (Rows(),))):
        entities = Entities(url, prefix=prefix, shards=shards, deadline=DEADLINE_S, families=families)
        await entities.start()
        contenders.append(Contender(title, entities, urls_of(url), stream))
    began = time.perf_counter()
    payments = plan.users * plan.days
    for _ in range(0, payments, LOADED_AT_ONCE):
        await contenders[0].observe(*stream.past(LOADED_AT_ONCE))
    tell(f"{name}: {payments:,} payments of history, {payments / (time.perf_counter() - began):,.0f} a second")
    await _write_rows(url, keyspace, stream)
    try:
        yield contenders
    finally:
        for contender in contenders:
            await contender.entities.close()


async def _write_rows(url: str, keyspace: Keyspace, stream: Payments) -> None:
    """A row for each entity that is looked up."""
    link = RedisLink(url)
    await link.connect()
    keys = [row_key(keyspace, Rows.marker, name, digest) for name in LOOKED_UP for digest in stream.known(name).tolist()]
    for start in range(0, len(keys), LOADED_AT_ONCE):
        commands = [Command(tag, (_set(key),)) for tag, key in keys[start : start + LOADED_AT_ONCE]]
        await link.exchange(commands, asyncio.get_running_loop().time() + DEADLINE_S)
    await link.disconnect()


def _set(key: bytes) -> bytes:
    words = (b"SET", key, bytes(ROW_BYTES), b"EX", b"%d" % ROWS_EXPIRE_S)
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


async def run(plan: argparse.Namespace, url: str, cluster_url: str) -> list[Contender]:
    """Every contender in turn, so often. Raises ServiceError."""
    async with (
        loaded(plan, "one server", url, f"bench-{secrets.token_hex(4)}", 1) as alone,
        loaded(plan, f"cluster of {MASTERS}, {plan.shards} shards", cluster_url, PREFIX, plan.shards) as together,
    ):
        measured = [*alone, *together]
        for number in range(1, plan.rounds + 1):
            for size in SIZES:
                for contender in measured:
                    await contender.round(size, plan.payments // size)
            latest = ", ".join(f"{one.redis_us[SIZES[0]][-1]:.1f}" for one in measured)
            tell(f"round {number} of {plan.rounds}: {latest} us an entity")
        return measured


def table(measured: Sequence[Contender]) -> str:
    """For people, in Markdown."""
    lines = [
        f"| micro-batch of {len(ENTITIES)} entities a payment | payments | ms: min / median / max | our own CPU in it, ms | "
        "us an entity, CPU of Redis: min / median / max | of it the function |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in measured:
        for size in SIZES:
            own, function = statistics.median(one.own_ms[size]), statistics.median(one.function_us[size])
            by_clock, redis = _spread(one.ms[size], 2), _spread(one.redis_us[size], 1)
            lines.append(f"| {one.name} | {size} | {by_clock} | {own:.2f} | {redis} | {function:.1f} |")
    looked_up = f"Look-ups: one row of {ROW_BYTES} bytes for each distinct {', '.join(LOOKED_UP)} of the micro-batch."
    return "\n".join([*lines, "", looked_up, SKETCH])


def _spread(values: Sequence[float], digits: int) -> str:
    return " / ".join(f"{value:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))


def line(measured: Sequence[Contender]) -> Mapping[str, Any]:
    """For scripts: medians, of micro-batches of 64 unless it says otherwise; CPU of Redis on one server, without look-ups."""
    few, many = SIZES
    alone, looking, together, together_looking = measured

    def ms(one: Contender, size: int) -> float:
        return round(statistics.median(one.ms[size]), 2)

    return {
        "us_per_entity": round(statistics.median(alone.redis_us[few]), 2),
        f"ms_per_batch_{few}": ms(alone, few),
        f"cluster_ms_per_batch_{few}": ms(together, few),
        f"ms_per_batch_{few}_looking_up": ms(looking, few),
        f"cluster_ms_per_batch_{few}_looking_up": ms(together_looking, few),
        f"ms_per_batch_{many}": ms(alone, many),
        f"cluster_ms_per_batch_{many}": ms(together, many),
    }


def main(given: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 2 after an error, 130 after Ctrl-C."""
    plan = arguments(given)
    return ended(lambda: _figures(plan))


def _figures(plan: argparse.Namespace) -> Mapping[str, Any]:
    with servers() as (running, cluster_url):
        measured = asyncio.run(run(plan, running.redis_url, cluster_url))
        figures, asked = (
            line(measured),
            (
                f"`perf/entities.py`: {plan.users:,} users and {plan.merchants:,} merchants, {plan.days} days of history, "
                f"{plan.rounds} rounds of {plan.payments:,} payments."
            ),
        )
        if not plan.json:
            print(f"\n{asked}\n\n{table(measured)}\n")
        if plan.write:
            report.write(table(measured), figures, asked, running)
            tell(f"written to {report.RESULTS}")
    return figures


if __name__ == "__main__":
    sys.exit(main())
