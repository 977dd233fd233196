"""How fast a changelog is read back into RocksDB: by our app and table, and by stock Faust, in turns."""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Any

import numpy as np
from aiokafka import AIOKafkaProducer
from contenders import PEERS, Stand
from kafka_log import topics_of
from peers.recovery_job import RecoveryJob
from processes import Watched, running
from user_rows import folded_rows, keys_of, other_rows, packed

from assay.streams.kafka import client_options
from assay.streams.reading import connect
from assay.streams.settings import Settings
from assay.tables.profile import ROW_BYTES

BATCH_BYTES = 900_000
DIFFERENT_ROWS = 20_000  # then they come again, under other keys: RocksDB compresses within 4 KB only
SHORT_ROW_BYTES = 1_000
RECOVERY_TIMEOUT_S, LOOK_S = 180.0, 0.2

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Contender:
    """Who reads back, and what.

    Attributes:
        program: its file in `peers/`.
        row_bytes: ours are cut off where it is less.
    """

    name: str
    program: str
    row_bytes: int
    rows: int


@dataclass(frozen=True)
class Recovery:
    """One contender, once: rows a second, CPU microseconds a row, and the most memory that its process had."""

    contender: Contender
    rows_per_s: float
    cpu_us: float
    rss_mb: float


def contenders(rows: int, faust_rows: int) -> list[Contender]:
    """Ours with our rows, ours with short ones, and stock Faust with our rows."""
    return [
        Contender("assay", "own_table", ROW_BYTES, rows),
        Contender("assay, short rows", "own_table", SHORT_ROW_BYTES, rows),
        Contender("stock Faust", "stock_table", ROW_BYTES, faust_rows),
    ]


async def recover_all(stand: Stand, rows: int, faust_rows: int, repeat: int, prefix: str, tell: Tell) -> list[Recovery]:
    """Each contender in turn, `repeat` times, each time with an empty disk. Raises ServiceError."""
    found = []
    async with AsyncExitStack() as stack:
        who = []
        for number, each in enumerate(contenders(rows, faust_rows)):
            settings = stand.settings(f"{prefix}{number}-")
            await stack.enter_async_context(topics_of(settings))
            tell(f"writing {each.rows:,} rows of {each.row_bytes:,} bytes for {each.name}")
            await fill(settings, each)
            who.append((each, settings))
        for turn in range(1, repeat + 1):
            for each, settings in who:
                one = await recover(stand, settings, each)
                tell(f"recovery {turn} of {repeat}: {each.name}, {one.rows_per_s:,.0f} rows/s, {one.cpu_us:.1f} us of CPU each")
                found.append(one)
    return found


async def fill(settings: Settings, contender: Contender) -> None:
    """A changelog as workers write it: every user once, in no order, over all partitions."""
    producer = AIOKafkaProducer(acks="all", max_batch_size=BATCH_BYTES, **client_options(settings))
    await connect(producer.start(), client_options(settings))
    try:
        for partition in range(settings.partitions):
            users = np.arange(partition, contender.rows, settings.partitions, dtype=np.int64)
            batch = producer.create_batch()
            for key, row in zip(keys_of(users), _rows(contender.row_bytes), strict=False):
                if batch.append(key=key, value=row, timestamp=None) is None:
                    await _send(producer, batch, settings.changelog, partition)
                    batch = producer.create_batch()
                    batch.append(key=key, value=row, timestamp=None)
            await _send(producer, batch, settings.changelog, partition)
    finally:
        await producer.stop()


async def _send(producer: AIOKafkaProducer, batch: Any, topic: str, partition: int) -> None:
    batch.close()
    await (await producer.send_batch(batch, topic, partition=partition))


def _rows(row_bytes: int) -> Iterator[bytes]:
    pool = [row[:row_bytes] for row in packed(other_rows(folded_rows(), DIFFERENT_ROWS, np.random.default_rng(1)))]
    return cycle(pool)


async def recover(stand: Stand, settings: Settings, contender: Contender) -> Recovery:
    """One contender, once, as a process of its own. Raises ServiceError."""
    with tempfile.TemporaryDirectory(dir=stand.folder) as data_dir:
        job = RecoveryJob(
            bootstrap_servers=settings.bootstrap_servers,
            prefix=settings.topic_prefix,
            partitions=settings.partitions,
            row_bytes=contender.row_bytes,
            rows=contender.rows,
            data_dir=data_dir,
        )
        command = [sys.executable, str(PEERS / f"{contender.program}.py"), json.dumps(asdict(job))]
        with running(f"{settings.topic_prefix}peer", command, stand.folder, os.environ) as process:
            return Recovery(contender, **await _result(process))


async def _result(process: Watched) -> dict[str, float]:
    """What it prints. Raises ServiceError."""
    give_up = time.monotonic() + RECOVERY_TIMEOUT_S
    while time.monotonic() < give_up:
        for line in process.log_lines():
            if line.startswith("{"):
                found: dict[str, float] = json.loads(line)
                return found
        process.must_run()
        await asyncio.sleep(LOOK_S)
    raise process.failure(f"has not recovered within {RECOVERY_TIMEOUT_S:.0f} s")
