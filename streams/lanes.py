"""One source partition that is copied to the topic keyed by user: its identity, what is copied already, and the copying."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, ProducerFenced
from aiokafka.structs import ConsumerRecord

from assay.schemas import limits
from assay.schemas.errors import Fenced, PublishError, TopologyError
from assay.schemas.mapping import Mapped
from assay.schemas.rekeyed import copy_of
from assay.schemas.source import ORIGIN_HEADER, OutRecord, origin_of
from assay.streams.claims import Claim, claim
from assay.streams.decision_reader import CLOCK_MARGIN_MS
from assay.streams.metrics import Metrics
from assay.streams.partitioning import kind_of, partitions_of_keys
from assay.streams.publisher import OVERTAKEN, OVERTAKEN_MEND, UNKNOWN, Placed, Publisher
from assay.streams.read_back import read_up_to
from assay.streams.reading import FETCH_MAX_WAIT_MS, reader, stop
from assay.streams.settings import Settings


class Lane:
    """Copies the records of one source partition, each once, in their order.

    Args:
        client: connected; claims the lane's identity.
        options: aiokafka's client options.
        partitions: of the topic of the copies.
        publisher: its own, not yet started, which owns the topic of the copies and stamps with `appended_ms`.

    Attributes:
        next: the source offset that it goes on at.
    """

    def __init__(
        self,
        source: TopicPartition,
        settings: Settings,
        client: AIOKafkaClient,
        options: Mapping[str, Any],
        partitions: int,
        publisher: Publisher,
        metrics: Metrics,
        mapped: Mapped | None = None,
    ) -> None:
        self._mapped = mapped
        self.source, self.next = source, 0
        self._client, self._options, self._partitions, self._publisher = client, options, partitions, publisher
        self._topic, self._deadline = settings.transactions, settings.publish_timeout_s
        self._name = f"{settings.rekeying_group}-{source.partition}"
        self._hash_key, self._metrics = settings.hash_key.get_secret_value().encode(), metrics
        self._claim: Claim | None = None
        self._fences: Placed = {}
        self._done: set[int] = set()

    async def take(self) -> None:
        """Fence whoever copied this partition, in every partition of the copies. Raises PublishError."""
        await self._publisher.start()
        await self.renew()
        if UNKNOWN in self._fences.values():
            raise PublishError("a fence was taken for a duplicate, so it can't be said up to where there are copies")

    async def renew(self) -> None:
        """Claim and fence, and again before brokers forget it. Raises Fenced where another has claimed since, PublishError."""
        try:
            async with asyncio.timeout(self._deadline):
                self._claim = await claim(self._client, self._name, self._claim)
        except ProducerFenced as error:
            raise Fenced(OVERTAKEN, mend=OVERTAKEN_MEND) from error
        except (KafkaError, TimeoutError) as error:
            mend = f"see that Kafka answers, and that this client may WRITE to transactional ids {self._name}"
            raise PublishError(f"claiming {self._name}: {error!r}", mend=mend) from error
        self._fences = await self._publisher.fence(dict.fromkeys(range(self._partitions), self._claim))

    async def go_on(self, committed: int | None, earliest: int, end: int, first_append: Callable[[int, int], Any]) -> None:
        """Find out what has been copied already of what is not committed.

        Args:
            earliest, end: of what can be read.
            first_append: awaited with (first, end): when the first record there was appended (epoch, ms), or None.

        Raises TopologyError, TimeoutError, KafkaError, ServiceError.
        """
        self.next = earliest if committed is None else committed
        if not earliest <= self.next <= end:
            raise TopologyError(
                f"{self.source.topic}/{self.source.partition}: the offset up to which it is copied is outside of the topic: "
                "records expired before they were copied, or the topic was made anew and has fewer by now",
                expected=f"{earliest} to {end}",
                got=str(self.next),
                mend=f"to take the loss, set the offset of group {self._name.rpartition('-')[0]} to {earliest}",
            )
        since_ms = await first_append(self.next, end)
        self._done = set() if since_ms is None else await self._copied(since_ms)

    async def copy(self, records: Sequence[ConsumerRecord]) -> None:
        """Return once all are acknowledged; those that had been copied are left out. Raises PublishError."""
        fresh = [record for record in records if record.offset not in self._done]
        if len(fresh) < len(records):
            self._done.difference_update(record.offset for record in records)
        copies = [copy_of(record, self._hash_key, self._mapped) for record in fresh]
        own = self.source.partition % self._partitions
        where = partitions_of_keys([each.user or b"" for each in copies], self._partitions).tolist()
        batches: dict[tuple[str, int], list[OutRecord]] = {}
        for record, each, partition in zip(fresh, copies, where, strict=True):
            placed = own if each.user is None else partition
            batches.setdefault((self._topic, placed), []).append((each.key, each.value, each.headers))
            kind = kind_of(record.key or b"", each.user) if each.user is not None else "unreadable"
            self._metrics.rekeyed.labels(kind if kind != "partitioner" or placed != self.source.partition else "in_place").inc()
        if batches:
            await self._publisher.publish(batches)
        self.next = records[-1].offset + 1

    async def close(self) -> None:
        await self._publisher.close()

    async def _copied(self, since_ms: int) -> set[int]:
        """Source offsets from `next` on whose copies lie before our fences.

        A copy has the time of its record, so none of these lies before the first copy that is as young as the first record,
        less what clocks of two leaders differ by.
        """
        ends = {TopicPartition(*where): offset for where, offset in self._fences.items()}
        done: set[int] = set()
        since = max(0, since_ms - CLOCK_MARGIN_MS)
        consumer = await reader(self._options, fetch_max_wait_ms=FETCH_MAX_WAIT_MS, auto_offset_reset="none")
        try:
            consumer.assign(list(ends))
            begins = await asyncio.wait_for(consumer.offsets_for_times(dict.fromkeys(ends, since)), self._deadline)
            for where, end in ends.items():
                consumer.seek(where, end if begins[where] is None else min(begins[where].offset, end))
            async for _, records in read_up_to(consumer, ends, self._deadline):
                done.update(offset for record in records if (offset := self._offset_in(record)) is not None)
                if len(done) > limits.MAX_COPIES_READ_BACK:
                    raise _too_many()
        finally:
            await stop(consumer)
        return done

    def _offset_in(self, record: ConsumerRecord) -> int | None:
        """The source offset that a copy was made from, if it is not committed."""
        origin = origin_of(record)
        ours = origin is not None and origin.source[:2] == self.source and origin.source.offset >= self.next
        return origin.source.offset if ours and origin is not None else None


def appended_ms(headers: Sequence[tuple[str, Any]]) -> int | None:
    """The time that a copy gets: that of its record; None for a fence."""
    name, value = headers[-1]
    return int(value.rpartition(b":")[2]) if name == ORIGIN_HEADER else None


def _too_many() -> TopologyError:
    return TopologyError(
        "more was copied since the committed offset than can be held",
        expected=f"at most {limits.MAX_COPIES_READ_BACK} transactions of one partition",
        mend="see why nothing was committed, and whether somebody has set the group's offset back",
    )
