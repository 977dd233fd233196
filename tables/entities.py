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
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from redis.exceptions import NoPermissionError, ResponseError

from assay.schemas.errors import SettingError
from assay.schemas.limits import (
    FAILURES_TO_REST,
    LOOK_UPS_REST_S,
    MAX_CAUGHT_UP_AT_ONCE,
    MAX_REFUSALS,
    MAX_WAITING_OBSERVATIONS,
    REDIS_CATCH_UP_S,
    REDIS_CONNECT_S,
    REDIS_REST_S,
)
from assay.tables.applied import Applied
from assay.tables.entity_answer import REDIS_FEATURES, EntityAnswer, unavailable
from assay.tables.entity_call import NEW_ROW, Observed, library, observed
from assay.tables.events import EVENT, Events
from assay.tables.features import ENTITY_FEATURES
from assay.tables.key_marks import KeyedLink, KeyMarks
from assay.tables.keyspace import Keyspace, Part
from assay.tables.lookups import NO_LOOK_UPS, Family, LookUps, look_ups
from assay.tables.redis_link import OUTAGES, Command
from assay.tables.redis_node import OtherKeyError

MEND_LOST = "stop the workers, `assay rebuild entities`, `assay rebuild outcomes`, and load batch features again"

log = logging.getLogger("assay.entities")


@dataclass(slots=True, eq=False)
class _Asked:
    """One micro-batch on its way: what entities are to learn, what is looked up beside it, and when it came (`clock`)."""

    observed: Observed
    look_ups: LookUps
    since: float
    found: Sequence[object] | None = None  # replies to the look-ups, where they were sent


class Entities:
    """What instruments, BINs, merchants, devices and addresses have seen, and rows of theirs that were written elsewhere.

    families: of rows that are looked up. deadline: seconds from the call of `observe` to its answer. source: identity of the
    source topic, such as its Kafka topic id, since offsets are compared. fingerprint: of the key that digests are under; empty:
    whatever is there is taken for ours. beside: other parts that are read, and so must be under that key. may_write: whether
    our partitions are still ours; while they are not, nothing is sent.
    clock: seconds that never go back. Raises SettingError.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str,
        shards: int = 1,
        deadline: float = 0.02,
        source: str = "",
        fingerprint: str = "",
        beside: tuple[Part, ...] = (Part.OUTCOMES, Part.BATCH),
        families: Sequence[Family] = (),
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
        self._keyspace = Keyspace(prefix, source, shards, fingerprint)
        marks = KeyMarks(self._keyspace, Part.WINDOWS, beside)
        self._link = KeyedLink(url, marks, (library(),), [self._keyspace.tag(shard) for shard in range(shards)])
        self._deadline, self._rest, self._may_write, self._clock = deadline, rest, may_write, clock
        self._lock = asyncio.Lock()  # held by whoever uses the connection
        self._families = tuple(families)
        self._look_up_again = 0.0  # when look-ups may be tried, by the clock
        self._queue: deque[_Asked] = deque()  # in the order of the calls; the first is the next to be applied
        self._recovery: asyncio.Task[None] | None = None
        self._failures = 0  # in a row
        self._other_key = False  # whether the last of them was that Redis is under another key
        self._rests_until = 0.0
        self.waiting = 0  # transactions that were answered without Redis, and that it is still to learn of
        self.dropped = 0  # transactions that it will never learn of, and single entities that had no room for one
        self._compactions: list[Command] = []  # for whatever is sent next: nobody waits for them
        self.unreadable_rows = 0  # that are not what this version writes
        self._applied = Applied()
        self._behind_since: float | None = None  # when the first of what waits came, by the clock
        self.newest_ms: dict[str, float] = {}  # by feature that is looked up: as of when its newest value is, epoch, ms

    @property
    def lost(self) -> int:
        """Times that Redis turned out to have less than it had taken."""
        return self._applied.lost

    @property
    def behind_s(self) -> float:
        """Seconds since the first observation came that Redis did not take in time; 0 once it has taken all that waits.

        What is dropped meanwhile makes nothing younger.
        """
        return 0.0 if self._behind_since is None else max(0.0, self._clock() - self._behind_since)

    @property
    def resting(self) -> bool:
        """Whether Redis failed so often that it is left alone for a while."""
        return self._failures >= FAILURES_TO_REST

    @property
    def under_other_key(self) -> bool:
        """Whether that is why Redis is left alone: what is there was written under another key."""
        return self.resting and self._other_key

    async def start(self) -> None:
        """Compile, connect, load the function. Raises ServiceError; `observe` works all the same, as in an outage."""
        warm = np.zeros(1, EVENT)
        warm["instrument"] = 1
        observed(warm, np.zeros(1, np.int64), self._keyspace).read([NEW_ROW])
        warmed = look_ups(warm, self._families, self._keyspace)
        rows = [[None] * len(places) for places in warmed.places]
        warmed.read(rows, np.zeros((1, REDIS_FEATURES), np.float32))
        try:
            async with self._lock:
                if not self._link.connected:
                    await self._link.connect()
        except OUTAGES as error:
            self._failed(error)
            raise self._link.start_error(error) from error

    async def close(self) -> None:
        """Send what waits, if Redis takes it within two seconds, and disconnect. What is left counts as dropped."""
        if (self.waiting or self._applied.words) and not self.resting:
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
        asked = _Asked(batch, look_ups(events, self._families, self._keyspace), self._clock())
        if not batch.calls and not asked.look_ups.commands:
            return self._answer(asked)
        self._queue.append(asked)
        try:
            return await self._turn(asked, until)
        finally:
            if not batch.done:
                batch.give_up()
                asked.look_ups = NO_LOOK_UPS  # what they would say is of no use to anybody
                self.waiting += batch.transactions
                self._behind_since = asked.since if self._behind_since is None else self._behind_since
                while self.waiting > MAX_WAITING_OBSERVATIONS and self._queue[0].observed.given_up:
                    self._drop(self._queue[0])

    async def _turn(self, asked: _Asked, until: float) -> EntityAnswer:
        batch = asked.observed
        if not self._may_write():
            return unavailable(batch.transactions, "not_a_member")
        if self.resting:
            if self._clock() >= self._rests_until:
                self._recover()
            return unavailable(batch.transactions, "other_key" if self._other_key else "resting")
        if self.waiting > MAX_CAUGHT_UP_AT_ONCE:
            self._recover()
            return unavailable(batch.transactions, "behind")
        try:
            async with asyncio.timeout_at(until):
                if not self._link.connected:
                    await asyncio.wait({self._recover()})
                await self._lock.acquire()
        except TimeoutError:
            if self._link.connected:  # those before us took all the time; whether that is a failure, they know
                return unavailable(batch.transactions, "deadline")
            self._failed()
            return unavailable(batch.transactions, "unreachable")
        try:
            if asyncio.get_running_loop().time() >= until:  # our turn came too late, which says nothing about Redis
                return unavailable(batch.transactions, "deadline")
            while not batch.done:
                await self._send(self._queue[0], until)
            return self._answer(asked)
        except OUTAGES as error:
            self._failed(error)
            if not self.resting:
                self._recover()
            return unavailable(batch.transactions, _reason(error))
        finally:
            self._lock.release()

    async def _send(self, asked: _Asked, until: float) -> None:
        """Send the first of the queue, with the lock held. Raises one of OUTAGES."""
        batch, calls = asked.observed, len(asked.observed.calls)
        words, compactions = list(self._applied.words), self._compactions
        unasked, self._compactions = [*words, *compactions], []
        commands = unasked + [Command(call.tag, call.command()) for call in batch.calls]
        reads = not batch.given_up and self._clock() >= self._look_up_again
        if reads:
            commands += asked.look_ups.commands
        try:
            replies = (await self._link.exchange(commands, until))[len(unasked) :]
            batch.replies, asked.found = replies[:calls], replies[calls:] if reads else None
        except ResponseError as error:
            if isinstance(error, NoPermissionError):  # it may be about the look-ups alone: the windows go on without
                self._look_up_again = self._clock() + LOOK_UPS_REST_S
            # An error from within the function comes back each time; others (read only, out of memory) pass.
            batch.refusals += "script:" in str(error)
            if batch.refusals >= MAX_REFUSALS and batch.given_up:
                self._drop(asked)
            raise
        self._failures = 0
        self._applied.told(words)
        if batch.given_up:
            for call, reply in zip(batch.calls, batch.replies, strict=True):
                call.tidy(reply)
            self._note(batch)
        self._leave(asked)

    def _note(self, batch: Observed) -> None:
        """What the rows that a micro-batch was answered with want done, and what they had no room for."""
        self._compactions += [call.compaction for call in batch.calls if call.compaction is not None]
        self.dropped += sum(call.full for call in batch.calls)
        self.unreadable_rows += sum(call.unreadable for call in batch.calls)
        lost = [self._applied.note(call) for call in batch.calls]
        if any(lost):
            log.error("Redis has lost observations that it had taken. Mend: %s", MEND_LOST)
            self._recover()  # which leaves word of it

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
            while self._queue and self._queue[0].observed.given_up and self._may_write():
                async with self._lock:
                    if self._queue and self._queue[0].observed.given_up:
                        await self._send(self._queue[0], asyncio.get_running_loop().time() + REDIS_CATCH_UP_S)
            if words := list(self._applied.words):
                async with self._lock:
                    await self._link.exchange(words, asyncio.get_running_loop().time() + REDIS_CATCH_UP_S)
                self._applied.told(words)
            self._failures = 0
        except OUTAGES as error:
            self._failed(error)

    def _failed(self, error: BaseException | None = None) -> None:
        self._other_key = isinstance(error, OtherKeyError)
        self._failures = FAILURES_TO_REST if self._other_key else self._failures + 1
        self._compactions = []  # whoever answers next may be another, with other rows
        if self.resting:
            self._rests_until = self._clock() + self._rest

    def _leave(self, asked: _Asked) -> None:
        batch = asked.observed
        if batch.done:  # dropped while it was on its way
            return
        assert self._queue[0] is asked
        self._queue.popleft()
        batch.done = True
        if batch.given_up:
            self.waiting -= batch.transactions
            if not self.waiting:
                self._behind_since = None

    def _drop(self, asked: _Asked) -> None:
        self._leave(asked)
        self.dropped += asked.observed.transactions

    def _answer(self, asked: _Asked) -> EntityAnswer:
        batch = asked.observed
        read = batch.read(batch.replies)
        if read is None:
            return unavailable(batch.transactions, "unreadable")
        windows, sequences = read
        self._note(batch)
        values = np.full((batch.transactions, REDIS_FEATURES), np.nan, np.float32)
        values[:, :ENTITY_FEATURES] = windows
        found = asked.look_ups.read(asked.found, values)
        self.unreadable_rows += found.unreadable
        for name, as_of in found.newest_ms.items():
            self.newest_ms[name] = max(as_of, self.newest_ms.get(name, as_of))
        return EntityAnswer(values, sequences, available=True, ages_ms=found.ages_ms, row_sequences=found.sequences)


def _reason(error: BaseException) -> str:
    if isinstance(error, OtherKeyError):
        return "other_key"
    if isinstance(error, TimeoutError):
        return "deadline"
    return "refused" if isinstance(error, ResponseError) else "unreachable"
