"""A Faust transport that hands over each partition's fetch as one message: the record batch.

Registered through Faust's own extension point (`app.transport`). Stock Faust spends 110-140 us of bookkeeping a message; a
fetch of hundreds costs that once. It holds for transactions, outcomes and the changelogs; other topics arrive record by
record. Offsets to commit are the flow's own word (`Consumer.finished`), never derived from acknowledged messages, whose
bookkeeping can commit past what is open. Line numbers below are of faust-streaming 0.15.3.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage
from mode.utils.queues import FlowControlEvent

from assay.schemas.errors import DrainError
from assay.schemas.limits import CHANGELOG_FETCHES_WAITING
from assay.streams.ending import end_process
from assay.streams.micro_batches import WaitingRecords
from assay.streams.publisher import OVERTAKEN_MEND

FETCH_MAX_WAIT_MS = 10  # upstream: 1500, hard-coded (drivers/aiokafka.py:615); a drained partition waits for quiet ones
COMMIT_PAUSE_S = 0.005
BACK_PRESSURE_PAUSE_S = 0.001
NOT_IN_ORDER = "partitions could not be given up in order"

log = logging.getLogger("assay.worker")


class FlowControl(FlowControlEvent):
    """Opens once. Upstream's `resume` clears every queue each time (mode/utils/queues.py:97), and recovery calls it two or
    three times with the flow open between: what came meanwhile would be lost without a word."""

    def resume(self) -> None:
        if not self.is_active():
            super().resume()


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """The thread that talks to the brokers, told not to sit on small fetches."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_MAX_WAIT_MS
        consumer._isolation_level = "read_committed"  # an upstream transaction that was aborted is no payment
        return consumer

    async def on_start(self) -> None:
        """Take note of each heartbeat that the group has answered: a paused process can't trust what it believes."""
        await super().on_start()
        coordinator = self._consumer._coordinator
        beat = coordinator._do_heartbeat

        async def noted() -> bool:
            asked_at = time.monotonic()
            heard: bool = await beat()
            if heard:
                self.consumer.heard_at = asked_at
            return heard

        coordinator._do_heartbeat = noted


class Consumer(driver.Consumer):
    """Whole fetches in, our own offsets out, and a drained flow before partitions are given up."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.finished: dict[TP, int] = {}  # next offset to commit; set by the flow, in order
        self.acknowledged: dict[TP, int] = {}  # the offset that the broker has taken
        self.revocations = 0
        self.heard_at = 0.0  # when the group last counted on us (monotonic seconds)
        self.drain: Callable[[], Awaitable[None]] | None = None  # waits for the micro-batches in flight
        self.drain_timeout_s = 4.0

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    def is_member(self) -> bool:
        """Whether the group still counts on us, as far as can be known here; unless it has, others may own our partitions."""
        return bool(time.monotonic() - self.heard_at < self.app.conf.broker_session_timeout)

    # -- whole fetches ------------------------------------------------------------------------------------------------

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Any:
        """No source records while rebalancing, and none of outcomes that have no room: those wait in the brokers, and hold up
        nothing else. A copy, since the set changes under the thread, and empty means "all"."""
        changelogs, held, full = self.app.tables.changelog_topics, self.app.rebalancing, self.app.full
        wanted = {
            tp for tp in active_partitions or () if (not held or tp.topic in changelogs) and not full.get(tp.topic, _never)()
        }
        if not wanted:
            await asyncio.sleep(0.02)
            return {}
        return await super()._getmany(wanted, timeout)

    async def _wait_next_records(self, timeout: float) -> Any:
        """Upstream sleeps for a second where no partition is active (consumer.py:787): the first record after a take-over
        would wait for the rest of it."""
        if not self.flow_active:
            await self.wait(self.can_resume_flow)
        active = self._get_active_partitions()
        return await self._getmany(active, timeout), active

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, ConsumerMessage]]:
        generation = self.app.consumer_generation_id
        fetched, active = await self._wait_next_records(timeout)
        if fetched is None or self.should_stop:
            return
        if generation != self.app.consumer_generation_id:
            await self._rewind(fetched)
            return
        if not self.flow_active:
            try:
                await self.perform_seek()
            except Exception as error:  # IllegalStateError when the assignment has changed meanwhile
                self.log.info("Seek given up, the flow is stopped: %r", error)
            return
        one_by_one = {}
        for tp, records in fetched.items():
            if not self._handed_over_whole(tp):
                one_by_one[tp] = records
                continue
            if tp.topic not in self.app.full:
                await self._wait_for_room(tp)
            if not self.flow_active or self.app.consumer_generation_id != generation:
                return
            if active is None or tp in active or tp in self._buffered_partitions:
                if tp.topic in self.app.batched_topics:
                    self.app.waiting.expect(tp.partition, records)
                yield tp, self._record_batch(tp, records, generation)
        for tp, record in self.scheduler.iterate(one_by_one):
            yield tp, self._to_message(tp, record)

    def _handed_over_whole(self, tp: TP) -> bool:
        topics = self.app.batched_topics | self.app.full.keys() | self.app.tables.changelog_topics
        return tp.topic in topics

    async def _wait_for_room(self, tp: TP) -> None:
        """Back-pressure: upstream lets 4,096 messages wait, here fetches, and then sleeps for a second (consumer.py:808)."""
        waiting: WaitingRecords = self.app.waiting
        changelog = tp.topic in self.app.tables.changelog_topics
        while self.flow_active:
            full = self.app.tables.changelog_queue.qsize() >= CHANGELOG_FETCHES_WAITING if changelog else waiting.full
            if not full:
                return
            await asyncio.sleep(BACK_PRESSURE_PAUSE_S)

    async def _rewind(self, fetched: Any) -> None:
        """A fetch asked for before a rebalance and answered after it: the position is already past what is dropped here."""
        for tp, records in fetched.items():
            try:
                await self.seek(tp, records[0].offset)
            except Exception as error:  # no longer ours
                self.log.info("Not rewound: %r", error)

    def _record_batch(self, tp: TP, records: list[Any], generation: int) -> ConsumerMessage:
        last = records[-1]
        return ConsumerMessage(
            tp.topic, tp.partition, last.offset, last.timestamp / 1000, last.timestamp_type,
            [], b"", records, 0, 0, 0, tp, generation_id=generation,
        )  # fmt: skip

    # -- commits: what the flow says, nothing else ----------------------------------------------------------------------

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> list[TP]:
        return [tp for tp in self.finished if topics is None or tp in topics or tp.topic in topics]

    def _new_offset(self, tp: TP) -> int | None:
        self._acked.pop(tp, None)  # upstream shortens them here; they would grow for ever
        self._acked_index.pop(tp, None)
        return self.finished.get(tp)

    def _should_commit(self, tp: TP, offset: int) -> bool:
        return offset > self.acknowledged.get(tp, -1)

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Gaps are not skipped over: the flow checks that batches follow each other."""

    async def _commit(self, offsets: dict[TP, int]) -> bool:
        committed: bool = await super()._commit(offsets)
        if committed:  # upstream takes note even where it failed (consumer.py:1080)
            self.acknowledged.update(offsets)
        return committed

    # -- giving partitions up, and shutdown -----------------------------------------------------------------------------

    async def wait_empty(self) -> None:
        """Drain the flow and commit, under one deadline, or end the process: Faust would log it and leave a zombie.

        Faust calls it at revocation and at shutdown.
        """
        began = time.monotonic()
        for table in self.app.tables.values():
            await table.abandon_take_over()  # it would open what is closed here
        self.app.waiting.close()
        try:
            await asyncio.wait_for(self._drain_and_commit(), self.drain_timeout_s)
        except TimeoutError:
            late = DrainError(
                f"what was in flight did not end, or could not be committed, within {self.drain_timeout_s} s",
                mend="raise ASSAY_DRAIN_TIMEOUT_S (below ASSAY_SESSION_TIMEOUT_S), or look why Kafka is slow"
                if self.is_member()
                else f"{OVERTAKEN_MEND}. It was paused or cut off for longer than ASSAY_SESSION_TIMEOUT_S",
            )
            end_process(NOT_IN_ORDER, late)
        except Exception as error:  # aiokafka and Faust would log it and go on (group_coordinator.py:421)
            end_process(NOT_IN_ORDER, error)
        if self.finished:
            offsets = {f"{tp.topic}/{tp.partition}": offset for tp, offset in sorted(self.acknowledged.items())}
            log.info("drained and committed in %.3f s: %s", time.monotonic() - began, offsets)

    async def _drain_and_commit(self) -> None:
        if self.drain is not None:
            await self.drain()
        while any(self.acknowledged.get(tp) != offset for tp, offset in self.finished.items()):
            if not self.is_member():  # no commit of ours counts any more: whoever has the partitions repeats what was said
                log.warning("partitions are given up uncommitted: the group has not heard of us for longer than its session")
                return
            await self.commit()  # which does nothing when another one is under way (consumer.py:947)
            await asyncio.sleep(COMMIT_PAUSE_S)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        self.revocations += 1
        for table in self.app.tables.values():
            await table.abandon_take_over()
        if revoked and not self.should_stop:
            self.stop_flow()
            self.app.flow_control.suspend()
            self.app.flow_control.clear()
            await self.wait_empty()
        await super().on_partitions_revoked(revoked)
        for tp in revoked:  # what comes back after the rebalance starts from the broker's word
            self.finished.pop(tp, None)
            self.acknowledged.pop(tp, None)


def _never() -> bool:
    return False


class Transport(driver.Transport):
    """Faust's aiokafka transport with our consumer."""

    Consumer = Consumer
