"""Replies: to the topic and partition that a request names, after its decision is acknowledged, never before.

Replies don't decide anything: one that can't be delivered is counted, and the decision stands where it was published.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from aiokafka.partitioner import murmur2

from assay.schemas import limits
from assay.schemas.headers import ReplyAddress
from assay.schemas.reply_topics import ReplyTopics
from assay.schemas.source import OutRecord
from assay.streams.metrics import Metrics
from assay.streams.outbox import Outbox
from assay.streams.publisher import Batches, Publisher

MISSING_PAUSE_S = 5.0  # until a topic that was not there is looked for again
LEAST_PAUSE_S = 0.1  # between two looks, whatever is asked for

Reply = tuple[ReplyAddress, OutRecord]


class Replies:
    """Routes replies and sends them off the answer path."""

    def __init__(self, publisher: Callable[[], Publisher], allowed: ReplyTopics, metrics: Metrics) -> None:
        self._allowed, self._metrics = allowed, metrics
        self._outbox = Outbox(publisher, limits.MAX_WAITING_REPLY_BATCHES, on_result=self._count)
        self._partitions: dict[str, int] = {}
        self._missing: dict[str, float] = {}  # until when (monotonic) a topic is taken not to be there
        self._looked_at = 0.0

    async def start(self) -> None:
        await self._outbox.start()

    async def close(self, within_s: float) -> None:
        await self._outbox.close(within_s)

    async def send(self, replies: Sequence[Reply]) -> None:
        """Queue replies; waits only while the queue is full."""
        if replies:
            await self._outbox.put(lambda: self._route(replies))

    async def _route(self, replies: Sequence[Reply]) -> Batches:
        wanted = {address.topic for address, _ in replies if self._allowed.allows(address.topic)}
        await self._look_for(wanted - self._partitions.keys())
        batch: dict[tuple[str, int], list[OutRecord]] = {}
        for address, record in replies:
            where = self._where(address, record[0])
            if where is not None:
                batch.setdefault(where, []).append(record)
        return batch

    def _where(self, address: ReplyAddress, key: bytes | None) -> tuple[str, int] | None:
        count = self._partitions.get(address.topic)
        if not self._allowed.allows(address.topic):
            self._count("not_allowed", 1)
        elif count is None:
            self._count("no_topic", 1)
        elif address.partition is None:
            return address.topic, (murmur2(key) & 0x7FFFFFFF) % count if key is not None else 0
        elif address.partition >= count:
            self._count("no_partition", 1)
        else:
            return address.topic, address.partition
        return None

    async def _look_for(self, topics: set[str]) -> None:
        """Learn of topics not seen before. One that is not there is looked for again only after a pause: a made-up topic must
        not cost a request each time."""
        now = time.monotonic()
        if all(self._missing.get(topic, 0.0) > now for topic in topics):
            return
        await asyncio.sleep(max(0.0, self._looked_at + LEAST_PAUSE_S - now))
        self._looked_at = time.monotonic()
        found = await self._outbox.publisher.topics()
        allowed = {topic: count for topic, count in found.items() if self._allowed.allows(topic)}
        self._partitions = dict(sorted(allowed.items())[: limits.MAX_REPLY_TOPICS])
        self._missing = {topic: until for topic, until in self._missing.items() if until > now}
        for topic in list(topics - self._partitions.keys())[: limits.MAX_REPLY_TOPICS - len(self._missing)]:
            self._missing[topic] = now + MISSING_PAUSE_S

    def _count(self, result: str, number: int) -> None:
        self._metrics.replies.labels(result).inc(number)
