"""Copying transactions to a topic keyed by user, in front of the workers, so that no profile is split (setting `rekey`).

Each source partition is copied under an identity of its own (`streams.lanes`): whoever takes it over fences the former owner
in every partition of the copies, and reads back what has been copied since the committed offset. So each record is copied once,
and those of one source partition stay in order. No Kafka transactions: each would leave in the log what workers step over.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import CommitFailedError, IllegalStateError

from assay.schemas.limits import MAX_WAITING_RECORDS
from assay.schemas.mapping import Mapped
from assay.streams.ending import end_process
from assay.streams.header_names import read_any_header_name
from assay.streams.kafka import client_options
from assay.streams.lanes import Lane, appended_ms
from assay.streams.metrics import Metrics
from assay.streams.publisher import Publisher
from assay.streams.reading import FETCH_MAX_WAIT_MS, connect
from assay.streams.settings import Settings
from assay.streams.source_log import SourceLog

POLL_MS = 50
RENEW_CLAIMS_S = 6 * 3600.0  # brokers forget a quiet producer after a day
FAILED = "transactions can't be re-keyed any more"

log = logging.getLogger("assay.rekeying")


class Rekeyer(ConsumerRebalanceListener):
    """A member of the group of those who copy. Call `run`; whatever it fails of ends the process.

    Args:
        partitions: of the topic of the copies.
        max_bytes: by topic, as `Publisher` takes it.
        mapped: as `decode` takes it.
    """

    def __init__(
        self,
        settings: Settings,
        partitions: int,
        max_bytes: Mapping[str, int],
        metrics: Metrics,
        mapped: Mapped | None = None,
    ) -> None:
        self._mapped = mapped
        self._settings, self._partitions, self._metrics = settings, partitions, metrics
        self._options, deadline = client_options(settings), settings.publish_timeout_s
        self._publisher = partial(
            Publisher, self._options, owned=(settings.transactions,), deadline=deadline, max_bytes=max_bytes, stamp=appended_ms
        )
        self._source = SourceLog(None, self._options, settings.incoming, deadline)
        self._lanes: dict[TopicPartition, Lane] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._turn = asyncio.Lock()
        self._commit_due, self._renewal_due = 0.0, time.monotonic() + RENEW_CLAIMS_S

    async def run(self, stopping: asyncio.Event) -> None:
        """Copy until `stopping` is set, then commit and leave the group."""
        try:
            await self._start()
            while not stopping.is_set():
                async with self._turn:
                    await self._round()
            async with self._turn:
                await self._give_up()
            await self._consumer.stop()
            await asyncio.gather(self._client.close(), self._source.close())
        except Exception as error:
            end_process(FAILED, error)

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        try:
            async with self._turn:
                await self._give_up()
        except Exception as error:  # aiokafka would log it and go on
            end_process(FAILED, error)

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        try:
            async with self._turn:
                await asyncio.gather(*(self._take(where) for where in assigned))
        except Exception as error:
            end_process(FAILED, error)
        log.info("copying partitions %s to %s", sorted(where.partition for where in assigned), self._settings.transactions)

    async def _start(self) -> None:
        read_any_header_name()
        settings, session_ms = self._settings, int(self._settings.session_timeout_s * 1000)
        self._client = AIOKafkaClient(**self._options)
        await connect(self._client.bootstrap(), self._options)
        self._consumer = AIOKafkaConsumer(
            **self._options, group_id=settings.rekeying_group, enable_auto_commit=False, auto_offset_reset="none",
            isolation_level="read_committed", fetch_max_wait_ms=FETCH_MAX_WAIT_MS, session_timeout_ms=session_ms,
            heartbeat_interval_ms=session_ms // 3,
        )  # fmt: skip
        self._consumer.subscribe([settings.incoming], listener=self)
        await connect(self._consumer.start(), self._options)

    async def _take(self, where: TopicPartition) -> None:
        """In this order: fence, then ask what is committed, what a former owner could still copy would not be seen else; then
        commit it again, as only a member of this generation can: a sleeper that has woken up lets go."""
        lane = Lane(
            where, self._settings, self._client, self._options, self._partitions, self._publisher(), self._metrics, self._mapped
        )
        await lane.take()
        committed = await self._consumer.committed(where)
        earliest = (await self._consumer.beginning_offsets([where]))[where]
        if not await self._confirm({where: earliest if committed is None else committed}):
            await lane.close()
            return
        end = (await self._source.readable({where.partition}))[where.partition]
        await lane.go_on(committed, earliest, end, partial(self._source.first_append, where.partition))
        self._consumer.seek(where, lane.next)
        self._lanes[where] = lane

    async def _round(self) -> None:
        fetched = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=MAX_WAITING_RECORDS)
        # What has no lane yet is read again: a lane seeks where it goes on.
        ours = [(self._lanes[where], records) for where, records in fetched.items() if where in self._lanes]
        await asyncio.gather(*(lane.copy(records) for lane, records in ours))
        now = time.monotonic()
        if now >= self._commit_due:
            self._commit_due = now + self._settings.commit_interval_s
            await self._commit()
            for where in self._lanes:
                behind = (self._consumer.highwater(where) or 0) - self._lanes[where].next
                self._metrics.rekeying_lag.labels(where.partition).set(max(0, behind))
        if now >= self._renewal_due:
            self._renewal_due = now + RENEW_CLAIMS_S
            await asyncio.gather(*(lane.renew() for lane in self._lanes.values()))

    async def _commit(self) -> None:
        """What is copied; where the group has gone on without us, its new member reads back what we have copied."""
        offsets = {where: lane.next for where, lane in self._lanes.items() if self._committed.get(where) != lane.next}
        if offsets and await self._confirm(offsets):
            self._committed.update(offsets)

    async def _confirm(self, offsets: dict[TopicPartition, int]) -> bool:
        """Commit these with the generation of our membership: False where the group has gone on without us."""
        try:
            await self._consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError) as error:
            log.info("the group has gone on: %r", error)
            return False
        return True

    async def _give_up(self) -> None:
        await self._commit()
        lanes, self._lanes, self._committed = self._lanes, {}, {}
        self._metrics.rekeying_lag.clear()
        await asyncio.gather(*(lane.close() for lane in lanes.values()))


class RekeyingThread:
    """A re-keyer beside a worker, in a thread with an event loop of its own: it waits for nothing that the worker computes."""

    def __init__(self, make: Callable[[], Rekeyer]) -> None:
        self._make = make
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="rekeying", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._thread.start()

    async def close(self, within_s: float) -> None:
        """Commit and leave the group, if that takes no longer; what is copied is read back by whoever goes on."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            await asyncio.to_thread(self._thread.join, within_s)

    async def _run(self) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        await self._make().run(self._stopping)
