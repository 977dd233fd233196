"""The doctor's check of where transactions lie: on the partitions of their users, or where another partitioner has put them."""

from binascii import crc32
from collections.abc import Iterable
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition

from assay.deploy.check import Check, ok, warn
from assay.schemas.decode import body_of, user_in
from assay.schemas.mapping import Mapped
from assay.schemas.mapping_file import load_mapping
from assay.schemas.refused import Refused
from assay.schemas.source import SourceRecord
from assay.streams.header_names import read_any_header_name
from assay.streams.kafka import client_options
from assay.streams.partitioning import kind_of, partition_of
from assay.streams.reading import stop
from assay.streams.settings import Settings

SAMPLE_PER_PARTITION = 200
_MEND = "producers: key = user_id, partitioner murmur2 (librdkafka: partitioner=murmur2_random); or set ASSAY_REKEY=true"


@dataclass(slots=True)
class Placed:
    """Where the transactions of a sample lie.

    Attributes:
        no_key, other_key, partitioner: those on another partition than their user's, by what their key tells.
        crc32: those of the last that lie where librdkafka's default puts their key.
    """

    looked: int = 0
    no_key: int = 0
    other_key: int = 0
    partitioner: int = 0
    crc32: int = 0

    @property
    def elsewhere(self) -> int:
        return self.no_key + self.other_key + self.partitioner

    def note(self, records: Iterable[SourceRecord], partitions: int, mapped: Mapped | None = None) -> None:
        """Add these of a topic with so many partitions. What can't be read is taken for the user's that the key names, and is
        nobody's without a key."""
        for record in records:
            key = record.key or b""
            if not (user := _user_of(record, mapped) or key):
                continue
            self.looked += 1
            if record.partition == partition_of(user, partitions):
                continue
            kind = kind_of(key, user)
            setattr(self, kind, getattr(self, kind) + 1)
            # CONFIGURATION.md of librdkafka, "partitioner": consistent_random is the CRC32 of the key, random without one.
            self.crc32 += kind == "partitioner" and crc32(key) % partitions == record.partition


async def key_placement(settings: Settings, count: int) -> Check:
    """Whether the latest transactions lie where their users belong: murmur2(user_id) mod `count` partitions."""
    read_any_header_name()
    consumer = AIOKafkaConsumer(**client_options(settings), enable_auto_commit=False)
    mapped = load_mapping(settings.mapping)
    partitions, placed = [TopicPartition(settings.incoming, number) for number in range(count)], Placed()
    try:
        await consumer.start()
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        starts = await consumer.beginning_offsets(partitions)
        for partition in partitions:
            consumer.seek(partition, max(starts[partition], ends[partition] - SAMPLE_PER_PARTITION))
        while unread := [partition for partition in partitions if await consumer.position(partition) < ends[partition]]:
            for records in (await consumer.getmany(*unread, timeout_ms=500)).values():
                placed.note(records, count, mapped)
    finally:
        await stop(consumer)
    return judge_placement(placed, rekeyed=settings.rekey)


def judge_placement(placed: Placed, *, rekeyed: bool = False) -> Check:
    """What a sample says. `rekeyed`: transactions are copied to where their users belong, so it does no harm."""
    name = "key placement"
    if not placed.elsewhere:
        return ok(
            name, f"{placed.looked} recent transactions lie where their users belong" if placed.looked else "no transactions"
        )
    reasons = {
        "without a key": placed.no_key,
        "with another key": placed.other_key,
        "by another partitioner": placed.partitioner - placed.crc32,
        "by CRC32, librdkafka's default": placed.crc32,
    }
    found = ", ".join(f"{number} {reason}" for reason, number in reasons.items() if number)
    told = f"of {placed.looked} recent transactions {placed.elsewhere} lie on another partition than their user's: {found}"
    return ok(name, f"{told}; they are re-keyed") if rekeyed else warn(name, told, _MEND)


def _user_of(record: SourceRecord, mapped: Mapped | None) -> bytes | None:
    try:
        return user_in(body_of(record, mapped))
    except Refused:
        return None
