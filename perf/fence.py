"""What the fence costs: taking partitions over, and publishing under claims. `python perf/fence.py --help`."""

import argparse
import asyncio
import statistics
import sys
import time
import uuid
from collections.abc import Mapping, Sequence

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from command import ended

from assay.deploy.services import services
from assay.streams.ownership import Ownership
from assay.streams.publisher import Publisher

TOPICS = ("decisions", "dead-letters", "changelog")
MOST_PARTITIONS = 64
RECORD_BYTES, BATCH_RECORDS = 500, 128
DEADLINE_S = 60.0

EXAMPLES = """\
examples:
  python perf/fence.py                 about a minute, on a Kafka of its own (or that of ASSAY_BOOTSTRAP_SERVERS)
  python perf/fence.py --repeats 20

Both ways of publishing take turns in one run. The last line of stdout is one JSON object.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10, metavar="N", help="of every measurement (default: 10)")
    parser.add_argument("--batches", type=int, default=200, metavar="N", help="published one after another (default: 200)")
    options = parser.parse_args()
    return ended(lambda: run(options))


def run(options: argparse.Namespace) -> dict[str, float]:
    """Medians, on a Kafka that is there for as long as it lasts."""
    with services(redis=False, tell=lambda line: print(line, file=sys.stderr)) as running:
        return asyncio.run(measure(running.bootstrap_servers, options.repeats, options.batches))


async def measure(bootstrap: str, repeats: int, batches: int) -> dict[str, float]:
    """Medians; tables go to stdout."""
    prefix = f"fence-{uuid.uuid4().hex[:8]}-"
    topics = [prefix + name for name in TOPICS]
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, MOST_PARTITIONS, 1) for topic in topics])
        taken = await taking(bootstrap, prefix, topics, repeats)
        published = await publishing(bootstrap, prefix, topics, repeats, batches)
    finally:
        await admin.delete_topics(topics)
        await admin.close()
    show("taking partitions over (claim, fence, look for strangers), ms", taken)
    show(f"publishing {BATCH_RECORDS} records of {RECORD_BYTES} bytes to one partition, acknowledged, ms a batch", published)
    claimed, plain = (statistics.median(published[name]) for name in ("under a claim", "without"))
    ms = {f"take_{count}_ms": round(statistics.median(taken[f"{count} partitions"]), 1) for count in (1, 8, MOST_PARTITIONS)}
    return {**ms, "publish_ratio": round(claimed / plain, 3)}


async def taking(bootstrap: str, prefix: str, topics: Sequence[str], repeats: int) -> dict[str, list[float]]:
    """Two owners take the same partitions from each other."""
    owners = [await owner(bootstrap, prefix, topics) for _ in range(2)]
    found: dict[str, list[float]] = {}
    try:
        for count in (1, 8, MOST_PARTITIONS):
            for turn in range(2 * repeats):
                owners[turn % 2] = await fresh(owners[turn % 2], bootstrap, prefix, topics)
                began = time.perf_counter()
                await owners[turn % 2][1].take(range(count))
                took = (time.perf_counter() - began) * 1000
                if turn >= 2:  # the first append to a partition makes its files
                    found.setdefault(f"{count} partitions", []).append(took)
    finally:
        for each in owners:
            await close(each)
    return found


async def publishing(bootstrap: str, prefix: str, topics: Sequence[str], repeats: int, batches: int) -> dict[str, list[float]]:
    """The same publisher with a claim on the topic, and without, in turns; each has a partition of its own."""
    claimed, plain = await owner(bootstrap, prefix, topics), await owner(bootstrap, prefix, ())
    await claimed[1].take([0])
    record = (b"user", bytes(RECORD_BYTES), [("assay-source", b"transactions:0:1234567")])
    found: dict[str, list[float]] = {"under a claim": [], "without": []}
    try:
        for repeat in range(repeats + 1):
            for name, (publisher, _), partition in (("under a claim", claimed, 0), ("without", plain, 1)):
                began = time.perf_counter()
                for _ in range(batches):
                    await publisher.publish({(topics[0], partition): [record] * BATCH_RECORDS})
                if repeat:  # the first one warms up
                    found[name].append((time.perf_counter() - began) * 1000 / batches)
    finally:
        await close(claimed)
        await close(plain)
    return found


Owner = tuple[Publisher, Ownership]


async def owner(bootstrap: str, prefix: str, owned: Sequence[str]) -> Owner:
    options = {"bootstrap_servers": bootstrap}
    publisher = Publisher(options, owned=owned, deadline=DEADLINE_S)
    ownership = Ownership(options, prefix + "claim", [publisher], DEADLINE_S)
    await publisher.start()
    await ownership.start()
    return publisher, ownership


async def fresh(former: Owner, bootstrap: str, prefix: str, owned: Sequence[str]) -> Owner:
    """A worker that was fenced ends; the next one connects before it takes over."""
    await close(former)
    return await owner(bootstrap, prefix, owned)


async def close(each: Owner) -> None:
    await each[0].close()
    await each[1].close()


def show(title: str, found: Mapping[str, Sequence[float]]) -> None:
    print(f"\n{title}\n{'':18}{'minimum':>9}{'median':>9}{'maximum':>9}")
    for name, values in found.items():
        print(f"{name:18}{min(values):9.2f}{statistics.median(values):9.2f}{max(values):9.2f}")


if __name__ == "__main__":
    sys.exit(main())
