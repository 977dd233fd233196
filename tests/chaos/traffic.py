"""Steady, open-loop traffic as checkouts make it: payments, some of them sent twice, some changed, and what is no payment."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Iterator
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Self

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from assay.schemas.limits import MAX_VALUE_BYTES
from assay.streams.simulator import simulate

TICK_S = 0.02
STOP_TIMEOUT_S = 5.0
USERS, MOST, DAYS = 300, 2_000_000, 365
RECENT = 400  # payments that may come again: about one and a half of each user
REPEATS, CHANGED, NO_PAYMENT = 0.04, 0.01, 0.01  # shares
ASKING = 0.5  # share that names a reply topic
CARD = "4111111111111111"
REQUEST_TIMEOUT_MS = 120_000  # no broker is away for so long

Record = tuple[bytes, bytes | None]  # key and value


class Traffic:
    """Use it as an async context manager; it sends between `resume` and `pause`.

    Attributes:
        sent: kind of record -> how many the broker has taken.
        failed: how many it has not.
    """

    def __init__(self, bootstrap: str, prefix: str, *, seed: int, rate: float, start_ms: int) -> None:
        self._rate, self._random = rate, Random(seed)
        self._topic, self._reply_topic = f"{prefix}transactions", f"{prefix}checkout.reply".encode()
        payments = simulate(seed=seed, transactions=MOST, start_ms=start_ms, users=USERS, days=DAYS)
        self._payments: Iterator[dict[str, Any]] = (payment.transaction for payment in payments)
        self._recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5, request_timeout_ms=REQUEST_TIMEOUT_MS
        )
        self._making: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._made: asyncio.Queue[tuple[str, Record]] = asyncio.Queue()
        self._unacknowledged: set[asyncio.Future[Any]] = set()
        self._number = 0
        self.sent: Counter[str] = Counter()
        self.failed = 0

    async def __aenter__(self) -> Self:
        await self._producer.start()
        self._sending = asyncio.ensure_future(self._send())
        return self

    async def __aexit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        for task in (self._making, self._sending):
            if task is not None:
                task.cancel()
        stopping = asyncio.ensure_future(self._producer.stop())  # which would flush for ever where the broker has gone
        if (await asyncio.wait([stopping], timeout=STOP_TIMEOUT_S))[1]:
            stopping.cancel()
            await asyncio.wait([stopping])

    def resume(self) -> None:
        """Go on sending."""
        self._making = asyncio.ensure_future(self._make())

    async def pause(self) -> None:
        """Send no more, and return once the broker has what was sent. Raises what the sending failed with."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait([self._making])
            if not self._making.cancelled():
                self._making.result()
            self._making = None
        await self._made.join()
        while self._unacknowledged:
            await asyncio.wait(self._unacknowledged)

    async def _make(self) -> None:
        """Records fall due whatever became of those before them."""
        began, count = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - began) * self._rate)
            for _ in range(due - count):
                self._made.put_nowait(self._next())
            count = due
            await asyncio.sleep(TICK_S)

    async def _send(self) -> None:
        while True:
            kind, (key, value) = await self._made.get()
            headers = []
            if self._random.random() < ASKING:
                self._number += 1
                headers = [("reply-to", self._reply_topic), ("correlation-id", b"c-%d" % self._number)]
            try:
                sending = await self._producer.send(self._topic, value, key=key, headers=headers)
            except KafkaError:  # where its leader is could not be learnt in time
                self.failed += 1
            else:
                self._unacknowledged.add(sending)
                sending.add_done_callback(partial(self._done, kind))
            self._made.task_done()

    def _done(self, kind: str, sending: "asyncio.Future[Any]") -> None:
        self._unacknowledged.discard(sending)
        if sending.cancelled() or sending.exception() is not None:
            self.failed += 1
        else:
            self.sent[kind] += 1

    def _next(self) -> tuple[str, Record]:
        draw = self._random.random()
        if self._recent and draw < REPEATS:
            return "repeats", _record(self._random.choice(self._recent))
        if self._recent and draw < REPEATS + CHANGED:
            return "changed", _record(self._random.choice(self._recent) | {"amount": "1.00", "currency": "EUR"})
        payment = next(self._payments)
        if draw > 1 - NO_PAYMENT:
            return self._no_payment(payment)
        self._recent.append(payment)
        return "payments", _record(payment)

    def _no_payment(self, payment: dict[str, Any]) -> tuple[str, Record]:
        key, value = _record(payment)
        spoilt: dict[str, bytes | None] = {
            "bad JSON": value[:-1] if value else None,
            "card number": orjson.dumps(payment | {"merchant": {"id": CARD}}),
            "too large": b" " * (MAX_VALUE_BYTES + 1),
            "tombstone": None,
        }
        kind = self._random.choice(list(spoilt))
        return kind, (key, spoilt[kind])


def _record(payment: dict[str, Any]) -> Record:
    return payment["user_id"].encode(), orjson.dumps(payment)
