"""Bounds on a real worker (invariant I5): sizes at their limits and beyond, clocks that jump, one partition, one user."""

import asyncio
import struct
import time
from typing import Any, NamedTuple

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import ConsumerRecord

from assay.schemas import limits
from assay.schemas.source import Source

from .conftest import START_MS
from .logged import assert_profiles_as_replayed, made_from_each
from .topics import PARTITIONS, Header, Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]
HOUR_MS, YEAR_MS = 3_600_000, 365 * 86_400_000
KAFKA_TAKES = 1_048_588  # max.message.bytes by default, of a whole batch
BATCH_OVERHEAD = 200
SMALL = {"max.message.bytes": str(limits.LEAST_TOPIC_BYTES)}
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
TOPICS = {
    "decisions": SMALL | APPEND_TIME,
    "evidence": SMALL,
    "assay-profiles-changelog": SMALL | {"cleanup.policy": "compact"},
}


@pytest.fixture(scope="module")
def environment(environment: dict[str, str]) -> dict[str, str]:
    """Of a deployment whose topics take no more than they have to, less than a micro-batch; dead letters as much as Kafka."""

    async def make() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=environment["ASSAY_BOOTSTRAP_SERVERS"])
        await admin.start()
        prefix = environment["ASSAY_TOPIC_PREFIX"]
        await admin.create_topics([NewTopic(prefix + name, PARTITIONS, 1, topic_configs=how) for name, how in TOPICS.items()])
        await admin.close()

    asyncio.run(make())
    return environment


def padded(body: dict[str, Any], size: int) -> bytes:
    """It, in a value of so many bytes."""
    value = orjson.dumps(body)
    return value + b" " * (size - len(value))


def headers_of(size: int, correlation: int) -> list[Header]:
    """Headers of so many bytes, one of them a correlation id of so many."""
    rest = size - len("correlation-id") - correlation - len("x")
    return [("correlation-id", b"c" * correlation), ("x", b"x" * rest)]


async def fate(topics: Topics, source: Source) -> tuple[ConsumerRecord, str]:
    """What became of a record, and its dead letter's code."""
    await topics.until(lambda: verdicts(topics, source), f"a verdict on {source}")
    [record] = verdicts(topics, source)
    return record, dict(record.headers).get("assay-error", b"").decode()


def verdicts(topics: Topics, source: Source) -> list[ConsumerRecord]:
    return topics.made_from(source, "decisions") + topics.made_from(source, "dead-letters")


# -- sizes


async def test_i5_a_record_at_every_limit_of_size_is_decided_and_one_byte_more_of_each_is_refused(
    topics: Topics, worker: WorkerProcess
) -> None:
    most = {
        "value": limits.MAX_VALUE_BYTES,
        "key": limits.MAX_KEY_BYTES,
        "headers": limits.MAX_HEADER_BYTES,
        "correlation-id": limits.MAX_CORRELATION_BYTES,
    }
    for beyond in ("", *most):
        sizes = most | ({beyond: most[beyond] + 1} if beyond else {})
        source = await topics.send(
            padded(transaction(f"full-{beyond}", "full"), sizes["value"]),
            key=b"k" * sizes["key"],
            headers=headers_of(sizes["headers"], sizes["correlation-id"]),
        )
        record, code = await fate(topics, source)
        assert code == ("" if not beyond else "correlation" if beyond == "correlation-id" else "too_large"), beyond
        if beyond:
            assert dict(record.headers)["assay-error-detail"].decode().partition(":")[0] == beyond
            assert len(record.value or b"") == sizes["value"], "a letter that fits is whole"
    assert worker.running


class Large(NamedTuple):
    """A record that is refused, by the bytes of its parts, and which of them its dead letter keeps whole."""

    key: int
    value: int
    headers: int
    kept: str


LARGE = {
    "all that a letter may have": Large(1_000, limits.MAX_PUBLISHED_BATCH_BYTES - 20_000, 10_000, "key value headers"),
    "a value as large as Kafka takes": Large(10, KAFKA_TAKES - BATCH_OVERHEAD, 10, "key headers"),
    "a key as large as Kafka takes": Large(KAFKA_TAKES - BATCH_OVERHEAD, 10, 10, "value headers"),
    "headers as large as Kafka takes": Large(10, 10, KAFKA_TAKES - BATCH_OVERHEAD, "key value"),
    "a third of each": Large(340_000, 340_000, 340_000, "value"),
}


@pytest.mark.parametrize("name", LARGE)
async def test_i1_a_record_as_large_as_kafka_takes_leaves_one_letter_that_fits(
    topics: Topics, worker: WorkerProcess, name: str
) -> None:
    large = LARGE[name]
    parts = {"key": b"k" * large.key, "value": b"v" * large.value, "headers": [("h", b"h" * large.headers)]}
    source = await topics.send(parts["value"], key=parts["key"], headers=parts["headers"], partition=0)
    after = await topics.send(transaction(f"after {name}", "neighbour"), partition=0)
    letter, _ = await fate(topics, source)
    said = dict(letter.headers)
    whole = {"key": letter.key == parts["key"], "value": letter.value == parts["value"], "headers": "h" in said}
    assert {part for part, kept in whole.items() if kept} == set(large.kept.split())
    assert ("assay-cut" in said) == ("assay-digest" in said) == (large.kept != "key value headers")
    assert (await fate(topics, after))[1] == ""


async def test_i1_transactions_may_be_larger_than_dead_letters_take(topics: Topics, worker: WorkerProcess) -> None:
    larger = {"max.message.bytes": "5000000"} | APPEND_TIME
    await topics._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topics.name("transactions"), larger)])
    value = b"v" * 3_500_000
    source = await topics.send(value, key=b"k", partition=0)
    after = await topics.send(transaction("after 3.5 MB", "neighbour"), partition=0)
    letter, code = await fate(topics, source)
    assert code == "too_large"
    assert dict(letter.headers)["assay-cut"] == b"%d" % len(value)
    assert value.startswith(letter.value)
    assert (await fate(topics, after))[1] == ""


class OddNames(AIOKafkaProducer):
    """A producer whose header names are not UTF-8, as librdkafka lets them be: what is sent as `replaced` is."""

    async def send_odd(self, topic: str, body: dict[str, Any], headers: list[Header]) -> Source:
        batch = self.create_batch()
        batch.append(timestamp=None, key=b"odd", value=orjson.dumps(body), headers=[("replaced", b"x"), *headers])
        batch.close()
        batch._builder = _Odd(batch._builder)
        placed = await (await self.send_batch(batch, topic, partition=0))
        return Source(placed.topic, placed.partition, placed.offset)


class _Odd:
    def __init__(self, builder: Any) -> None:
        self._builder = builder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def build(self) -> bytearray:
        built = bytearray(self._builder.build()).replace(b"replaced", b"\xff\xfe\xc3\x28\x80\x81\xf8\x88")
        struct.pack_into(">I", built, 17, calc_crc32c(memoryview(built)[21:]))
        return built


async def test_i1_a_header_name_that_is_not_utf8_stops_nobody(
    topics: Topics, worker: WorkerProcess, environment: dict[str, str]
) -> None:
    async with OddNames(bootstrap_servers=environment["ASSAY_BOOTSTRAP_SERVERS"]) as producer:
        name = topics.name("transactions")
        decided = await producer.send_odd(name, transaction("odd-name", "odd"), [("correlation-id", b"c-1")])
        refused = await producer.send_odd(name, {"user_id": "odd"}, [])
    record, code = await fate(topics, decided)
    assert (code, dict(record.headers)["correlation-id"]) == ("", b"c-1")
    assert (await fate(topics, refused))[1] == "missing"
    assert worker.running


# -- clocks


async def test_i4_clocks_that_jump_back_are_scored_and_marked_and_one_too_far_ahead_is_refused(topics: Topics) -> None:
    now_ms = time.time_ns() // 1_000_000
    ahead = limits.MAX_FUTURE_MS - HOUR_MS // 60
    times = [now_ms, now_ms - 7 * HOUR_MS, now_ms - 30 * YEAR_MS, 0, now_ms + ahead, now_ms - HOUR_MS, now_ms + 1]
    bodies = [transaction(f"jump-{number}", "jumper", timestamp=moment) for number, moment in enumerate(times)]
    sources = await topics.send_all(bodies)
    too_far = await topics.send(transaction("too-far", "jumper", timestamp=now_ms + limits.MAX_FUTURE_MS + HOUR_MS // 60))
    sources += await topics.send_all([last := transaction("jump-last", "jumper", timestamp=now_ms)])
    decisions = [orjson.loads(record.value) for record in await made_from_each(topics, sources, "decisions")]
    late = [moment < now_ms - limits.LATE_AFTER_MS for moment in [*times, now_ms]]
    assert [decision["late_event"] for decision in decisions] == late
    assert (await fate(topics, too_far))[1] == "timestamp_ahead"
    await assert_profiles_as_replayed(topics, sources, [*bodies, last])


# -- shapes of traffic


async def test_i4_traffic_of_one_partition_only_is_decided_as_replayed(topics: Topics) -> None:
    bodies = [
        transaction(f"single-{number}", f"single-{number % 200}", timestamp=START_MS + number * 1_000)
        for number in range(2_000)
    ]
    sources = await topics.send_all(bodies, partition=1)
    await made_from_each(topics, sources, "decisions")
    await assert_profiles_as_replayed(topics, sources, bodies)


async def test_i4_one_user_who_sends_10_000_at_once_gets_10_000_decisions_as_replayed(
    topics: Topics, worker: WorkerProcess
) -> None:
    bodies = [
        transaction(f"burst-{number}", "hasty", timestamp=START_MS + number, amount=f"{number % 90 + 1}.25")
        for number in range(10_000)
    ]
    sources = await topics.send_all(bodies)
    decisions = await made_from_each(topics, sources, "decisions")
    assert not any(name == "assay-replay" for record in decisions for name, _ in record.headers)
    await assert_profiles_as_replayed(topics, sources, bodies)
    assert worker.get("/readyz")[0] == 200


# -- the last one: it changes the topics


async def test_i1_a_limit_that_is_lowered_ends_the_worker_once_and_its_successor_writes_what_fits(
    topics: Topics, worker: WorkerProcess
) -> None:
    lowered = ConfigResource(ConfigResourceType.TOPIC, topics.name("dead-letters"), SMALL | APPEND_TIME)
    await topics._admin.alter_configs([lowered])
    value = b"v" * 900_000
    source = await topics.send(value, key=b"k", partition=0)
    async with asyncio.timeout(60):
        while worker.running:
            await asyncio.sleep(0.1)
    assert "max.message.bytes of the topics is read at start" in worker.log
    await asyncio.to_thread(worker.restart)
    letter = await topics.first(source, "dead-letters")
    assert len(letter.value) < limits.LEAST_TOPIC_BYTES
    assert value.startswith(letter.value)
    await topics.settled()
    assert len(topics.made_from(source, "dead-letters")) == 1
    assert worker.running
