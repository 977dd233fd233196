"""Open-loop load: transactions leave when they are due, whatever has been answered, and latency counts from when they were due.

So a system that stalls is charged for all that should have been sent meanwhile, which a closed loop would hide. One process
sends and listens, cheaply: prepared batches per partition, payloads encoded before the run, fates kept by number.
"""

import asyncio
import gc
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord

from assay.schemas.headers import TIMEOUT_HEADER
from assay.streams.client import CORRELATION_HEADER
from assay.streams.load_results import Results, Snapshot
from assay.streams.partitioning import partition_of
from assay.streams.reading import REPLY_TOPIC, assigned, begin, partitions_of
from assay.streams.sending import Sending

TICK_S = 0.005
STOP_TIMEOUT_S = 5.0  # aiokafka's producer would flush for ever
_STAMP = b'"timestamp":0}'  # what is cut off
Headers = list[tuple[str, bytes]]


class Payload(NamedTuple):
    """A transaction, encoded but for its timestamp where `stamped` (then the value lacks its end)."""

    key: bytes
    value: bytes
    stamped: bool


def prepare(transactions: Iterable[Mapping[str, Any]], *, stamped: bool) -> list[Payload]:
    """Encode transactions; with `stamped`, each will say that it happened when it was due to be sent."""
    payloads = []
    for transaction in transactions:
        key = str(transaction["user_id"]).encode()
        if stamped:
            rest = {name: value for name, value in transaction.items() if name != "timestamp"}
            payloads.append(Payload(key, orjson.dumps(rest | {"timestamp": 0})[: -len(_STAMP)], True))
        else:
            payloads.append(Payload(key, orjson.dumps(transaction), False))
    return payloads


@dataclass(frozen=True)
class Topics:
    """Full names. `decisions` is watched too where it is named; then each reply is compared with the record there."""

    transactions: str
    replies: str
    decisions: str | None = None


class Load:
    """One run.

    Args:
        options: aiokafka's client options.
        rate: transactions a second.
        arrivals: "even" gaps, or "poisson": the same on average, in bursts, as in life.
        tick_s: how often what is due is sent. Half of it is in the latency, on average; a shorter one costs more CPU.
        timeout_ms: what the header `assay-timeout-ms` says.
        grace_s: how long to wait for answers after the last transaction.
    """

    def __init__(
        self,
        options: dict[str, Any],
        topics: Topics,
        payloads: Sequence[Payload],
        *,
        rate: float,
        arrivals: Literal["even", "poisson"] = "even",
        tick_s: float = TICK_S,
        timeout_ms: int = 150,
        grace_s: float = 10.0,
        keep_replies: bool = False,
    ) -> None:
        self._options, self._topics, self._payloads = options, topics, payloads
        self._tick_s = tick_s
        self._grace_s = grace_s
        self._run = secrets.token_bytes(8)
        self._headers: Headers = [
            ("reply-to", topics.replies.encode()),
            (TIMEOUT_HEADER, b"%d" % timeout_ms),
        ]
        self._due_s = _schedule(len(payloads), rate, arrivals)
        self._start_s = 0.0
        self._failed = 0
        self.behind_s: list[float] = []  # per tick: how late its oldest transaction was handed over
        self.cpu_s = 0.0  # of this process, from the first transaction to the last answer
        self.elapsed_s = 0.0
        self.results = Results(len(payloads), keep_replies=keep_replies)

    @property
    def started_s(self) -> float:
        """When the first transaction is due, in monotonic seconds; 0 before that is known."""
        return self._start_s

    @property
    def unsent(self) -> int:
        """Transactions whose batch the broker did not take."""
        return self._failed

    async def run(self, report: Callable[[Snapshot], None] | None = None, every_s: float = 1.0) -> Results:
        """Send all, hear all; calls `report` every so often. Raises ServiceError where Kafka is not there."""
        producer = AIOKafkaProducer(**self._options, enable_idempotence=True, max_batch_size=256 * 1024)
        consumers = await self._listen()
        tasks: list[asyncio.Task[None]] = []
        try:
            await begin(producer, self._options)
            partitions = len(await producer.partitions_for(self._topics.transactions))
            topic = self._topics.transactions
            sendings = [
                Sending(producer, topic, partition, make=self.record, ended=self._ended) for partition in range(partitions)
            ]
            tasks = [asyncio.create_task(self._hear(consumer)) for consumer in consumers]
            tasks += [asyncio.create_task(sending.run()) for sending in sendings]
            _settle_memory()
            self._start_s = time.monotonic() + 0.05
            began = time.process_time()
            if report is not None:
                tasks.append(asyncio.create_task(self._report(report, every_s)))
            await self._guarded(self._send(sendings), tasks)
            await self._guarded(self._answers(), tasks)
            self.cpu_s, self.elapsed_s = time.process_time() - began, time.monotonic() - self._start_s
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for client in (producer, *consumers):
                await asyncio.wait([asyncio.create_task(client.stop())], timeout=STOP_TIMEOUT_S)
            gc.unfreeze()
        return self.results

    def record(self, number: int) -> tuple[bytes, bytes, Headers]:
        """Key, value and headers of one transaction, at the moment it is sent."""
        key, value, stamped = self._payloads[number]
        if stamped:
            second, ms = divmod(self.due_ms(number), 1000)
            value = b'%s"timestamp":"%s.%03dZ"}' % (value, _second(second), ms)
        return key, value, [(CORRELATION_HEADER, self._run + number.to_bytes(8, "big")), *self._headers]

    def due_ms(self, number: int) -> int:
        """When the transaction was to be sent: epoch, milliseconds."""
        return int((time.time() - time.monotonic() + self._start_s + self._due_s[number]) * 1000)

    def _ended(self, batch: Sequence[int], failure: BaseException | None) -> None:
        self._failed += 0 if failure is None else len(batch)

    async def _listen(self) -> list[AIOKafkaConsumer]:
        topics = self._topics
        watched = {topics.replies: await partitions_of(self._options, topics.replies, create=REPLY_TOPIC)}
        if topics.decisions is not None:
            watched[topics.decisions] = await partitions_of(self._options, topics.decisions)
        # A partition that was just drained waits for the fetch in flight for the others (aiokafka): keep that short.
        return [
            await assigned(self._options, topic, range(partitions), fetch_max_wait_ms=10, check_crcs=False)
            for topic, partitions in watched.items()
        ]

    async def _send(self, sendings: list[Sending[int]]) -> None:
        by_key: dict[bytes, Sending[int]] = {}
        for key in {payload.key for payload in self._payloads}:
            by_key[key] = sendings[partition_of(key, len(sendings))]
        sending_of = [by_key[payload.key] for payload in self._payloads]
        self._start_s = time.monotonic() + 0.05  # what was just done is not to count
        number, count = 0, len(self._payloads)
        while number < count:
            now = time.monotonic() - self._start_s
            due = int(np.searchsorted(self._due_s, now, side="right"))
            if due > number:
                self.behind_s.append(now - float(self._due_s[number]))
                for next_one in range(number, due):
                    sending_of[next_one].put(next_one)
                number = self.results.sent = due
            next_due = float(self._due_s[number]) if number < count else now
            await asyncio.sleep(max(self._tick_s, next_due - now))

    async def _answers(self) -> None:
        """Until all are answered, or the grace is over."""
        give_up = time.monotonic() + self._grace_s
        results = self.results
        while time.monotonic() < give_up and (
            results.answered < results.sent or (self._topics.decisions and results.undecided > results.refused)
        ):
            await asyncio.sleep(0.02)

    async def _hear(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            batches = await consumer.getmany(timeout_ms=200)
            now = time.monotonic() - self._start_s
            for partition, records in batches.items():
                if partition.topic == self._topics.replies:
                    self._replies(records, now)
                else:
                    self._decisions(records)

    def _replies(self, records: "Sequence[ConsumerRecord[Any, bytes]]", now: float) -> None:
        first, results = [], self.results
        for record in records:
            number = self._number(record.headers)
            if number is None or record.value is None:
                results.foreign += 1
            elif results.reply(number, record.value):
                first.append(number)
        results.arrived(first, now - self._due_s[first])

    def _decisions(self, records: "Sequence[ConsumerRecord[Any, bytes]]") -> None:
        for record in records:
            number = self._number(record.headers)
            if number is not None and record.value is not None:
                self.results.decision(number, record.value)

    def _number(self, headers: Sequence[tuple[str, bytes | None]]) -> int | None:
        for name, value in headers:
            if name == CORRELATION_HEADER:
                return int.from_bytes(value[8:], "big") if value is not None and value[:8] == self._run else None
        return None

    async def _report(self, report: Callable[[Snapshot], None], every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            report(self.results.snapshot(time.monotonic() - self._start_s))

    @staticmethod
    async def _guarded(work: Any, tasks: list[asyncio.Task[None]]) -> None:
        """Await the work, unless one of the tasks fails first: then raise what it raised."""
        main = asyncio.ensure_future(work)
        await asyncio.wait([main, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                main.cancel()
                task.result()
        await main


def _schedule(count: int, rate: float, arrivals: str) -> npt.NDArray[np.float64]:
    """When each is due: seconds after the start, ascending."""
    if arrivals == "even":
        return np.arange(count) / rate
    times: npt.NDArray[np.float64] = np.cumsum(np.random.default_rng(0).exponential(1 / rate, count))
    return times


@lru_cache(maxsize=64)
def _second(epoch: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(epoch)).encode()


def _settle_memory() -> None:
    """A full collection amid the run would look like latency of the system."""
    gc.collect()
    gc.freeze()
