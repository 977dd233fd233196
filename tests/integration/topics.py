"""The topics of one deployment: written to as callers do, and watched whole, from their beginning."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import ConsumerRecord

from assay.schemas.evidence import is_change
from assay.schemas.source import SOURCE_HEADER, Source

PARTITIONS = 3
PATIENCE_S = 60.0
MAX_REQUEST_BYTES = 4_000_000
WATCHED = ("decisions", "dead-letters", "evidence", "assay-profiles-changelog", "checkout.reply")
Header = tuple[str, bytes]


def transaction(number: object, user: str, **changes: Any) -> dict[str, Any]:
    """A small valid transaction."""
    plain = {
        "transaction_id": f"t-{number}",
        "user_id": user,
        "amount": "12.50",
        "currency": "EUR",
        "timestamp": 1_767_225_600_000,
        "merchant": {"id": "m-1", "category": "5411", "country": "DE"},
        "instrument": {"id": f"tok-{user}", "issuer_country": "DE"},
        "channel": "ecom",
    }
    return plain | changes


def source_of(record: ConsumerRecord) -> Source:
    """Which record made this one."""
    return Source.parse(dict(record.headers)[SOURCE_HEADER])


def _bookkeeping(record: ConsumerRecord) -> bool:
    return record.key is not None and record.key.startswith(b"\0")


def _source(placed: Any) -> Source:
    return Source(placed.topic, placed.partition, placed.offset)


class Topics:
    """Use it as an async context manager once a worker has made the topics.

    Attributes:
        seen: topic (without the prefix) -> all its records so far, in order within each partition, but for fences and
            what the changelog keeps beside rows. Evidence of changes stands apart from that of decisions, as "changes".
    """

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap, self._prefix = bootstrap, prefix
        self._admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        self._producer = AIOKafkaProducer(bootstrap_servers=bootstrap, max_request_size=MAX_REQUEST_BYTES, linger_ms=2)
        self._consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=20)
        self.seen: dict[str, list[ConsumerRecord]] = {name: [] for name in (*WATCHED, "changes")}
        self._read = 0
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        await asyncio.gather(self._admin.start(), self._producer.start(), self._consumer.start())
        await self._admin.create_topics([NewTopic(self.name("checkout.reply"), PARTITIONS, 1)])
        self._watched = [TopicPartition(self.name(topic), p) for topic in WATCHED for p in range(PARTITIONS)]
        self._consumer.assign(self._watched)
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._watching.cancel()
        await asyncio.wait([self._watching])
        await asyncio.gather(self._admin.close(), self._producer.stop(), self._consumer.stop())

    def name(self, topic: str) -> str:
        """Its full name."""
        return self._prefix + topic

    async def send(
        self,
        body: dict[str, Any] | bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
    ) -> Source:
        """Append one record to the transactions topic; its key is the user's id unless one is given."""
        return _source(await (await self._append(body, key, headers, partition)))

    async def send_all(
        self, bodies: Iterable[dict[str, Any]], *, headers: Sequence[Header] = (), partition: int | None = None
    ) -> list[Source]:
        """The same for many, in one go and in their order."""
        placed = [await self._append(body, None, headers, partition) for body in bodies]
        return [_source(await one) for one in placed]

    async def tell(self, *outcomes: dict[str, Any] | bytes) -> None:
        """Append outcomes, those of a user to one partition."""
        placed = [
            await self._producer.send(
                self.name("outcomes"),
                outcome if isinstance(outcome, bytes) else orjson.dumps(outcome),
                key=None if isinstance(outcome, bytes) else outcome["user_id"].encode(),
            )
            for outcome in outcomes
        ]
        await asyncio.gather(*placed)

    async def learnt(self) -> None:
        """Return once all outcomes have been committed."""
        await self._all_committed("outcomes")

    async def _append(
        self, body: dict[str, Any] | bytes | None, key: bytes | None, headers: Sequence[Header], partition: int | None
    ) -> Any:
        if isinstance(body, dict):
            key, body = key or body["user_id"].encode(), orjson.dumps(body)
        return await self._producer.send(self.name("transactions"), body, key=key, headers=headers, partition=partition)

    def made_from(self, source: Source, topic: str) -> list[ConsumerRecord]:
        """The records of a topic that this source record made."""
        return [record for record in self.seen[topic] if source_of(record) == source]

    async def until(self, condition: Callable[[], Any], waiting_for: str) -> Any:
        """Return what the condition says once that is true; it is asked again whenever records have come."""
        try:
            async with asyncio.timeout(PATIENCE_S), self._changed:
                return await self._changed.wait_for(condition)
        except TimeoutError:
            counts = {topic: len(records) for topic, records in self.seen.items()}
            raise AssertionError(f"{waiting_for} did not come; seen so far: {counts}") from None

    async def first(self, source: Source, topic: str) -> ConsumerRecord:
        """The first record of a topic that this source record made."""
        found = await self.until(lambda: self.made_from(source, topic), f"a record of {topic} made from {source}")
        return found[0]

    async def settled(self) -> None:
        """Return once all that was sent has been committed, and all that was written until then has been seen."""
        await self._all_committed("transactions")
        written = sum((await self._consumer.end_offsets(self._watched)).values())
        await self.until(lambda: self._read >= written, "what was written")

    async def _all_committed(self, topic: str) -> None:
        partitions = [TopicPartition(self.name(topic), p) for p in range(PARTITIONS)]
        ends = {tp: end for tp, end in (await self._consumer.end_offsets(partitions)).items() if end}
        committed: dict[TopicPartition, int] = {}
        try:
            async with asyncio.timeout(PATIENCE_S):
                while any(committed.get(tp, 0) < end for tp, end in ends.items()):
                    await asyncio.sleep(0.05)
                    committed = await self._committed()
        except TimeoutError:
            raise AssertionError(f"commits did not reach the ends: {committed} of {ends}") from None

    async def _committed(self) -> dict[TopicPartition, int]:
        offsets = await self._admin.list_consumer_group_offsets(self.name("assay"))
        return {tp: found.offset for tp, found in offsets.items()}

    async def _watch(self) -> None:
        while True:
            fetched = await self._consumer.getmany(timeout_ms=100)
            async with self._changed:
                for tp, records in fetched.items():
                    self._read += len(records)
                    for record in records:
                        if not _bookkeeping(record):
                            name = "changes" if is_change(record.headers) else tp.topic.removeprefix(self._prefix)
                            self.seen[name].append(record)
                if fetched:
                    self._changed.notify_all()
