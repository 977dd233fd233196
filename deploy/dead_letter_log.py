"""Dead letters as they lie in their topic: read, and sent again to where they came from."""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from assay.deploy.progress_bars import Report
from assay.deploy.rebuild_log import Log
from assay.schemas.errors import InputError, ServiceError
from assay.schemas.headers import ASKING, CORRELATING, Header
from assay.schemas.refusal import CUT_HEADER, DETAIL_HEADER, ERROR_HEADER, WHY_HEADERS
from assay.schemas.refused import RefusalCode
from assay.schemas.source import Source
from assay.streams.decision_reader import source_of
from assay.streams.kafka import client_options
from assay.streams.reading import begin, partitions_of
from assay.streams.settings import Settings

RESUBMITTED_HEADER = "assay-resubmitted"  # partition/offset of the dead letter that was sent again


@dataclass(frozen=True, slots=True)
class Place:
    """Where a dead letter lies in its topic.

    >>> Place.parse("3/41"), str(Place(3, 41))
    (Place(partition=3, offset=41), '3/41')
    """

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InputError."""
        partition, slash, offset = text.partition("/")
        if not (slash and partition.isdecimal() and offset.isdecimal()):
            raise InputError(
                "which dead letter?", expected="PARTITION/OFFSET, as `assay dead-letters list` shows it", got=repr(text)
            )
        return cls(int(partition), int(offset))


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter. `key`, `value` and `headers` are the refused record's; nothing of them where it was `withheld`."""

    place: Place
    code: str
    detail: str
    source: Source
    appended_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    cut: bool  # only the beginning of the value was kept

    @classmethod
    def of(cls, record: ConsumerRecord) -> Self | None:
        """None for what is no dead letter: a fence."""
        source, why = source_of(record), dict(record.headers)
        if source is None:
            return None
        return cls(
            Place(record.partition, record.offset),
            (why.get(ERROR_HEADER) or b"").decode(errors="replace"),
            (why.get(DETAIL_HEADER) or b"").decode(errors="replace"),
            source,
            record.timestamp,
            record.key,
            record.value,
            tuple((name, value) for name, value in record.headers if name not in WHY_HEADERS),
            CUT_HEADER in why,
        )

    @property
    def withheld(self) -> bool:
        return self.code == RefusalCode.CARD_NUMBER

    def summary(self) -> dict[str, Any]:
        """For machines."""
        return {
            "at": str(self.place), "code": self.code, "detail": self.detail, "source": self.source.header().decode(),
            "appended_ms": self.appended_ms, "key": None if self.key is None else self.key.decode(errors="replace"),
            "withheld": self.withheld, "cut": self.cut,
        }  # fmt: skip

    def again(self, value: bytes | None = None) -> tuple[bytes | None, bytes, list[Header]] | None:
        """Key, value and headers to be sent again, with another value if one is given; None where there is nothing to send.

        Its caller has gone, so it asks for no reply and has no deadline; a correlation id goes along unless it was refused.
        """
        whole = value if value is not None else None if self.withheld or self.cut else self.value
        if whole is None:
            return None
        without = ASKING | {RESUBMITTED_HEADER} | (CORRELATING if self.code == RefusalCode.CORRELATION else frozenset())
        headers = [(name, each or b"") for name, each in self.headers if name not in without]
        return self.key, whole, [*headers, (RESUBMITTED_HEADER, str(self.place).encode())]


async def letters(
    log: Log, settings: Settings, since_ms: int | None, report: Report, *, partitions: int
) -> AsyncIterator[Letter]:
    """All dead letters that were appended at `since_ms` (epoch) or later, partition by partition."""
    topic = settings.dead_letters
    for partition in range(partitions):
        first, end = await log.bounds_since(topic, partition, since_ms)
        async for records in log.records(topic, partition, first, end):
            report(f"partition {partition}", records[-1].offset + 1 - first, end - first)
            for record in records:
                if (letter := Letter.of(record)) is not None:
                    yield letter


async def named(log: Log, settings: Settings, places: Iterable[Place], *, partitions: int) -> list[Letter]:
    """The dead letters at these places. Raises InputError where there is none (any more)."""
    found = []
    for place in places:
        first, end = await log.bounds(settings.dead_letters, place.partition) if place.partition < partitions else (0, 0)
        letter = None
        if first <= place.offset < end:
            async for records in log.records(settings.dead_letters, place.partition, place.offset, place.offset + 1):
                letter = Letter.of(records[0])
        if letter is None:
            raise InputError(
                f"there is no dead letter at {place}",
                expected=f"one of {partitions} partitions"
                if place.partition >= partitions
                else f"an offset of {first} to {end}",
                mend="see `assay dead-letters list`",
            )
        found.append(letter)
    return found


async def send_again(settings: Settings, chosen: Sequence[Letter], value: bytes | None, report: Report) -> int:
    """Append them to the topics and partitions that they came from, so that a user's stay together; returns how many.

    Those of which too little was kept are left out. Raises ServiceError.
    """
    options, sent = client_options(settings), 0
    topics = {each.source.topic: _origin(each.source.topic, settings) for each in chosen}
    counts = {topic: await partitions_of(options, topic) for topic in sorted(set(topics.values()))}
    producer = AIOKafkaProducer(**options, enable_idempotence=True)
    await begin(producer, options)
    try:
        for done, letter in enumerate(chosen, 1):
            if (again := letter.again(value)) is None:
                continue
            key, whole, headers = again
            topic, partition = topics[letter.source.topic], letter.source.partition
            at = partition if partition < counts[topic] and topic == letter.source.topic else None
            await producer.send_and_wait(topic, whole, key=key, partition=at, headers=headers)
            sent += 1
            report("sending again", done, len(chosen))
    except KafkaError as error:
        raise ServiceError(
            f"after {sent} of {len(chosen)}, Kafka refused one: {error!r}",
            mend="mend it and run the same again: what is in the topic twice is judged once",
        ) from error
    finally:
        await producer.stop()
    return sent


def _origin(topic: str, settings: Settings) -> str:
    """Where upstream systems put what a letter was made from: a re-keyed copy goes the whole way again."""
    return settings.incoming if topic == settings.transactions else topic


def body_of(letter: Letter) -> Any:
    """The record's value as JSON, or as text where it is none."""
    if letter.value is None:
        return None
    try:
        return orjson.loads(letter.value)
    except orjson.JSONDecodeError:
        return letter.value.decode(errors="replace")
