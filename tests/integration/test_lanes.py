"""Copying one source partition on a real Kafka: a former owner is fenced, and what it copied is not copied again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient

from assay.schemas.errors import Fenced
from assay.schemas.source import origin_of
from assay.streams.lanes import Lane, appended_ms
from assay.streams.metrics import Metrics
from assay.streams.publisher import Publisher
from assay.streams.read_back import read_up_to
from assay.streams.reading import assigned
from assay.streams.settings import Settings

pytestmark = pytest.mark.services
PARTITIONS, MS = 2, 1_772_362_800_000


@asynccontextmanager
async def lane_of(settings: Settings, options: dict[str, str]) -> AsyncIterator[Lane]:
    """Another process's, as far as Kafka can tell."""
    client = AIOKafkaClient(**options)
    await client.bootstrap()
    publisher = Publisher(options, owned=(settings.transactions,), deadline=20.0, stamp=appended_ms)
    source = TopicPartition(settings.incoming, 0)
    lane = Lane(source, settings, client, options, PARTITIONS, publisher, Metrics())
    try:
        yield lane
    finally:
        await lane.close()
        await client.close()


def record(settings: Settings, offset: int) -> ConsumerRecord:
    value = b'{"user_id":"user-%d"}' % offset
    return ConsumerRecord(settings.incoming, 0, offset, MS + offset, 1, None, value, None, 0, 0, ())


async def first_append(first: int, end: int) -> int | None:
    return MS + first if first < end else None


async def copies(settings: Settings, options: dict[str, str]) -> list[tuple[int, int]]:
    """(source offset, time) of each, in the order of the sources."""
    consumer = await assigned(options, settings.transactions, range(PARTITIONS), from_beginning=True)
    try:
        ends = await consumer.end_offsets(consumer.assignment())
        found = [each async for _, records in read_up_to(consumer, ends, 10.0) for each in records]
    finally:
        await consumer.stop()
    return sorted((origin.source.offset, each.timestamp) for each in found if (origin := origin_of(each)) is not None)


async def test_i1_a_former_owner_copies_nothing_more_and_nothing_that_it_copied_is_copied_again(
    kafka: str, topic_prefix: str
) -> None:
    settings = Settings.load(bootstrap_servers=kafka, topic_prefix=topic_prefix, rekey=True)
    options, at = {"bootstrap_servers": kafka}, partial(record, settings)
    admin = AIOKafkaAdminClient(**options)
    await admin.start()
    kept = {"message.timestamp.type": "CreateTime"}
    await admin.create_topics([NewTopic(settings.transactions, PARTITIONS, 1, topic_configs=kept)])
    await admin.close()
    async with lane_of(settings, options) as former, lane_of(settings, options) as owner:
        await former.take()
        await former.go_on(None, 0, 9, first_append)
        await former.copy([at(0), at(1), at(2), at(3)])
        await owner.take()
        with pytest.raises(Fenced):
            await former.copy([at(4), at(5)])
        await owner.go_on(2, 0, 9, first_append)  # the former one had committed only two
        await owner.copy([at(offset) for offset in range(2, 9)])
    assert await copies(settings, options) == [(offset, MS + offset) for offset in range(9)]
