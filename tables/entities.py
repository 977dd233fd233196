"""The entity windows in Redis: one round trip per micro-batch, with a deadline, and never an exception for an outage.

Micro-batches overlap, and so do calls of `observe`. They share one connection and take turns under a lock, in the order
in which they came. Pipelining them would save a wait, but what Redis refuses must be sent again before anything later is
applied: the offsets of the later would mark the earlier as applied, too.

What Redis did not take waits in a queue, in order, and goes before what comes later. It may have been applied all the same
(when the answer was late): the function skips offsets that it has seen, so sending again is safe. A task of its own
connects again and catches up. After several failures in a row Redis is left alone for a while, and tried by that task
alone: no transaction spends its deadline on a probe.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from redis.exceptions import ResponseError

from assay.schemas.errors import SettingError
from assay.schemas.limits import (
    FAILURES_TO_REST,
    MAX_CAUGHT_UP_AT_ONCE,
    MAX_REFUSALS,
    MAX_WAITING_OBSERVATIONS,
    REDIS_CATCH_UP_S,
    REDIS_CONNECT_S,
    REDIS_REST_S,
)
from assay.tables.entity_call import Keyspace, Observed, library, observed
from assay.tables.entity_layout import ENTITIES, HEADER_BYTES, WINDOWS_PER_ENTITY
from assay.tables.events import EVENT, Events
from assay.tables.redis_link import OUTAGES, Command, RedisLink


@dataclass(frozen=True, slots=True)
class EntityAnswer:
    """Windows float32 (n, 24), `ABSENT` where the transaction has no such entity; sequence numbers int64 (n, 4), there 0.

    Where Redis did not answer in time, available is False, windows are NaN, numbers 0, and reason is one of: deadline,
    unreachable, refused, unreadable, behind (too much is to be sent first), resting (it failed too often), not_a_member
    (the group may have given our partitions to others).
    """

    values: npt.NDArray[np.float32]
    sequences: npt.NDArray[np.int64]
    available: bool
    reason: str = ""

    def of(self, rows: npt.NDArray[np.bool_]) -> "EntityAnswer":
        """The same for some of the transactions: bool (n,)."""
        return EntityAnswer(self.values[rows], self.sequences[rows], self.available, self.reason)


class Entities:
    """What instruments, merchants, devices and addresses have seen.

    deadline: seconds from the call of `observe` to its answer. source: identity of the source topic, such as its Kafka
    topic id, since offsets are compared. may_write: whether our partitions are still ours; while they are not, nothing is
    sent. clock: seconds that never go back. Raises SettingError.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str,
        shards: int = 1,
        deadline: float = 0.02,
        source: str = "",
        rest: float = REDIS_REST_S,
        may_write: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not set(prefix).isdisjoint("{}"):
            raise SettingError(
                "the prefix of the entity keys can't be used",
                expected="no braces, which mark what a Redis Cluster hashes",
                got=prefix,
                mend="choose another topic prefix",
            )
        self._link = RedisLink(url, (library(),))
        self._keyspace = Keyspace(prefix, source, shards)
        self._deadline, self._rest, self._may_write, self._clock = deadline, rest, may_write, clock
        self._lock = asyncio.Lock()  # held by whoever uses the connection
        self._queue: deque[Observed] = deque()  # in the order of the calls; the first is the next to be applied
        self._recovery: asyncio.Task[None] | None = None
        self._failures = 0  # in a row
        self._rests_until = 0.0
        self.waiting = 0  # transactions that were answered without Redis, and that it is still to learn of
        self.dropped = 0  # transactions that it will never learn of

    @property
    def resting(self) -> bool:
        """Whether Redis failed so often that it is left alone for a while."""
        return self._failures >= FAILURES_TO_REST

    async def start(self) -> None:
        """Compile, connect, load the function. Raises ServiceError; `observe` works all the same, as in an outage."""
        warm = np.zeros(1, EVENT)
        warm["instrument"] = 1
        observed(warm, np.zeros(1, np.int64), self._keyspace).read([[bytes(HEADER_BYTES), b""]])
        try:
            async with self._lock:
                if not self._link.connected:
                    await self._link.connect()
        except OUTAGES as error:
            self._failed()
            raise self._link.start_error(error) from error

    async def close(self) -> None:
        """Send what waits, if Redis takes it within two seconds, and disconnect. What is left counts as dropped."""
        if self.waiting and not self.resting:
            await asyncio.wait({self._recover()}, timeout=REDIS_CONNECT_S + REDIS_CATCH_UP_S)
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.wait({self._recovery})
        await self._link.disconnect()
        while self._queue:
            self._drop(self._queue[0])

    async def observe(self, events: Events, partitions: Sequence[int] | npt.NDArray[np.integer[Any]]) -> EntityAnswer:
        """Let the entities of events (n,) see them, one after another, and say what each event's have seen by then.

        partitions (n,) are those of the source. Within one, offsets ascend, from event to event and from call to call;
        offsets that were applied before change nothing and are answered with the windows as they stand.
        """
        until = asyncio.get_running_loop().time() + self._deadline
        batch = observed(events, np.asarray(partitions, np.int64), self._keyspace)
        if not batch.calls:
            return self._answer(batch)
        self._queue.append(batch)
        try:
            return await self._turn(batch, until)
        finally:
            if not batch.done:
                batch.give_up()
                self.waiting += batch.transactions
                while self.waiting > MAX_WAITING_OBSERVATIONS and self._queue[0].given_up:
                    self._drop(self._queue[0])

    async def _turn(self, batch: Observed, until: float) -> EntityAnswer:
        if not self._may_write():
            return _unavailable(batch, "not_a_member")
        if self.resting:
            if self._clock() >= self._rests_until:
                self._recover()
            return _unavailable(batch, "resting")
        if self.waiting > MAX_CAUGHT_UP_AT_ONCE:
            self._recover()
            return _unavailable(batch, "behind")
        try:
            async with asyncio.timeout_at(until):
                if not self._link.connected:
                    await asyncio.wait({self._recover()})
                await self._lock.acquire()
        except TimeoutError:
            if self._link.connected:  # those before us took all the time; whether that is a failure, they know
                return _unavailable(batch, "deadline")
            self._failed()
            return _unavailable(batch, "unreachable")
        try:
            if asyncio.get_running_loop().time() >= until:  # our turn came too late, which says nothing about Redis
                return _unavailable(batch, "deadline")
            while not batch.done:
                await self._send(self._queue[0], until)
            return self._answer(batch)
        except OUTAGES as error:
            self._failed()
            if not self.resting:
                self._recover()
            return _unavailable(batch, _reason(error))
        finally:
            self._lock.release()

    async def _send(self, batch: Observed, until: float) -> None:
        """Send the first of the queue, with the lock held. Raises one of OUTAGES."""
        try:
            batch.replies = await self._link.exchange([Command(call.tag, call.command()) for call in batch.calls], until)
        except ResponseError as error:
            # An error from within the function comes back each time; others (read only, out of memory) pass.
            batch.refusals += "script:" in str(error)
            if batch.refusals >= MAX_REFUSALS and batch.given_up:
                self._drop(batch)
            raise
        self._failures = 0
        self._leave(batch)

    def _recover(self) -> asyncio.Task[None]:
        if self._recovery is None or self._recovery.done():
            self._recovery = asyncio.create_task(self._catch_up())
        return self._recovery

    async def _catch_up(self) -> None:
        """Connect, then send what nobody waits for, giving way to others between two micro-batches."""
        try:
            async with self._lock:
                if not self._link.connected:
                    await self._link.connect()
            while self._queue and self._queue[0].given_up and self._may_write():
                async with self._lock:
                    if self._queue and self._queue[0].given_up:
                        await self._send(self._queue[0], asyncio.get_running_loop().time() + REDIS_CATCH_UP_S)
            self._failures = 0
        except OUTAGES:
            self._failed()

    def _failed(self) -> None:
        self._failures += 1
        if self.resting:
            self._rests_until = self._clock() + self._rest

    def _leave(self, batch: Observed) -> None:
        if batch.done:  # dropped while it was on its way
            return
        assert self._queue[0] is batch
        self._queue.popleft()
        batch.done = True
        if batch.given_up:
            self.waiting -= batch.transactions

    def _drop(self, batch: Observed) -> None:
        self._leave(batch)
        self.dropped += batch.transactions

    def _answer(self, batch: Observed) -> EntityAnswer:
        read = batch.read(batch.replies)
        return _unavailable(batch, "unreadable") if read is None else EntityAnswer(*read, available=True)


def _unavailable(batch: Observed, reason: str) -> EntityAnswer:
    values = np.full((batch.transactions, len(ENTITIES) * WINDOWS_PER_ENTITY), np.nan, np.float32)
    return EntityAnswer(values, np.zeros((batch.transactions, len(ENTITIES)), np.int64), available=False, reason=reason)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "deadline"
    return "refused" if isinstance(error, ResponseError) else "unreachable"
