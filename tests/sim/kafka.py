"""What the streams layer asks of aiokafka, over the brokers in memory: a producer, a consumer without a group, a client.

`installed` puts them where `assay.streams` looks for aiokafka's, so that publisher, ownership and readers run as they are.
Each takes the world's network as the client option `network`.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

from aiokafka import TopicPartition
from aiokafka.errors import CoordinatorLoadInProgressError, KafkaTimeoutError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import OffsetAndTimestamp

from assay.schemas.source import OutRecord
from assay.streams.protocol import DescribeProducers, InitProducerId, TopicMetadata
from assay.streams.publisher import UNKNOWN

from .broker import Broker, Producer, Record, Wire

RETRY_S = 1.0
REQUEST_S = 4.0
LOADS_EVERY = 11  # requests: then a coordinator is loading
FETCH_RECORDS = 7  # few, so that what is read back takes several fetches
COORDINATOR, FETCH = "coordinator", "fetch"
TOPIC_ID = "00000000-0000-0000-0000-000000000001"
NO_IDENTITY = (-1, -1, -1)

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Network:
    """What a client option points at."""

    broker: Broker
    wire: Wire


class SimulatedProducer:
    """Sends a batch as soon as it is given; the publisher has one under way for each partition."""

    def __init__(self, *, network: Network, max_batch_size: int = 16_384, **options: Any) -> None:
        self._network = network
        self._message_accumulator = SimpleNamespace(
            _batch_size=max_batch_size, _compression_type=0, _batch_ttl=0.0, fail_all=lambda error: None
        )
        self._sending: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # cancelled: nothing leaves any more
        self._sender, self._closed = SimpleNamespace(sender_task=self._sending), False
        self.client = self

    async def start(self) -> None:
        await self._network.wire.ask(COORDINATOR, lambda: None)

    async def close(self) -> None:
        """Nothing is open."""

    def create_batch(self) -> BatchBuilder:
        return BatchBuilder(self._message_accumulator._batch_size, 0)

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> "asyncio.Future[Any]":
        return asyncio.ensure_future(self._send(batch, topic, partition))

    async def _send(self, batch: BatchBuilder, topic: str, partition: int) -> Any:
        if self._sending.done():
            await asyncio.get_running_loop().create_future()
        batch._set_producer_state(*NO_IDENTITY)
        producer, records = _read(batch)
        log, loop = self._network.broker.logs[topic, partition], asyncio.get_running_loop()
        sent = loop.time()
        offset = await self._network.wire.ask(f"{topic}/{partition}", lambda: log.append(records, producer))
        if producer is not None and loop.time() - sent > RETRY_S and offset % 3 == 0:
            offset = UNKNOWN  # it was sent again meanwhile, and the broker no longer knew where the first one lies
        return SimpleNamespace(offset=offset)


def _read(batch: BatchBuilder) -> tuple[Producer | None, list[OutRecord]]:
    """What the bytes of a batch say."""
    read = MemoryRecords(bytes(batch._build())).next_batch()
    producer = Producer(read.producer_id, read.producer_epoch, read.base_sequence) if read.producer_id >= 0 else None
    return producer, [(record.key, record.value, list(record.headers)) for record in read]


class SimulatedConsumer:
    """Reads partitions that are assigned by hand."""

    def __init__(self, *, network: Network, **options: Any) -> None:
        self._network = network
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()

    async def start(self) -> None:
        await self._network.wire.ask(FETCH, lambda: None)

    async def stop(self) -> None:
        self._positions = {}

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._positions, self._paused = dict.fromkeys(partitions, 0), set()

    def seek(self, where: TopicPartition, offset: int) -> None:
        self._positions[where] = offset

    def pause(self, *partitions: TopicPartition) -> None:
        self._paused.update(partitions)

    async def position(self, where: TopicPartition) -> int:
        return self._positions[where]

    async def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        logs = self._network.broker.logs

        def look_up() -> dict[TopicPartition, OffsetAndTimestamp | None]:
            found = {where: logs[where].offset_at(time) for where, time in times.items()}
            return {where: None if offset is None else OffsetAndTimestamp(offset, 0) for where, offset in found.items()}

        return await self._ask(look_up)

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        logs = self._network.broker.logs
        return await self._ask(lambda: {where: logs[where].end for where in partitions})

    async def getmany(self, *partitions: TopicPartition, timeout_ms: int) -> dict[TopicPartition, list[Record]]:
        logs, wanted = self._network.broker.logs, [where for where in self._positions if where not in self._paused]
        if partitions:
            wanted = [where for where in wanted if where in partitions]

        def fetch() -> dict[TopicPartition, tuple[list[Record], int]]:
            return {where: logs[where].read(self._positions[where], FETCH_RECORDS) for where in wanted}

        fetched = await self._network.wire.ask(FETCH, fetch)
        if all(following == self._positions[where] for where, (_, following) in fetched.items()):
            await asyncio.sleep(timeout_ms / 1000)
        for where, (_, following) in fetched.items():
            self._positions[where] = following
        return {where: records for where, (records, _) in fetched.items() if records}

    async def _ask(self, act: Callable[[], Found]) -> Found:
        """Raises KafkaTimeoutError."""
        try:
            return await asyncio.wait_for(self._network.wire.ask(FETCH, act), REQUEST_S)
        except TimeoutError:
            raise KafkaTimeoutError from None


class SimulatedClient:
    """The three calls that claims are made of."""

    def __init__(self, *, network: Network, **options: Any) -> None:
        self._network = network
        self._asked = 0
        self.cluster = SimpleNamespace(leader_for_partition=lambda where: f"{where.topic}/{where.partition}")

    async def bootstrap(self) -> None:
        await self._network.wire.ask(COORDINATOR, lambda: None)

    async def set_topics(self, topics: set[str]) -> None:
        """Every topic is known."""

    async def close(self) -> None:
        """Nothing is open."""

    async def coordinator_lookup(self, kind: object, name: str) -> str:
        return COORDINATOR

    def get_random_node(self) -> str:
        return COORDINATOR

    def force_metadata_update(self) -> None:
        """Leaders don't move."""

    async def send(self, node: str, request: Any, *, group: object = None) -> Any:
        self._asked += 1
        return await self._network.wire.ask(node, lambda: self._answer(request))

    def _answer(self, request: Any) -> Any:
        broker = self._network.broker
        if isinstance(request, InitProducerId):
            if self._asked % LOADS_EVERY == 0:
                return SimpleNamespace(error_code=CoordinatorLoadInProgressError.errno)
            name, _, producer_id, epoch, _ = request._fields
            claimed = broker.claim(name, (producer_id, epoch))
            return SimpleNamespace(error_code=0, producer_id=claimed[0], producer_epoch=claimed[1])
        if isinstance(request, DescribeProducers):
            [(topic, [partition], _)] = request._topics
            known = [(id_, state.epoch) for id_, state in broker.logs[topic, partition].producers.items()]
            return SimpleNamespace(topics=[(topic, [(partition, 0, None, known, {})], {})])
        assert isinstance(request, TopicMetadata), request
        return SimpleNamespace(topics=[(0, request._topics[0][1], TOPIC_ID)])


@contextmanager
def installed() -> Iterator[None]:
    """aiokafka's places are taken while this lasts."""
    with (
        patch("assay.streams.publisher.AIOKafkaProducer", SimulatedProducer),
        patch("assay.streams.reading.AIOKafkaConsumer", SimulatedConsumer),
        patch("assay.streams.ownership.AIOKafkaClient", SimulatedClient),
    ):
        yield
