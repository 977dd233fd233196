"""Producers as they are: whatever key and partition transactions come with, no profile is split (setting `rekey`)."""

import asyncio
import signal
from binascii import crc32
from collections import Counter
from collections.abc import Iterator

import numpy as np
import orjson
import pytest
from aiokafka.structs import ConsumerRecord
from confluent_kafka import Producer

from assay.schemas.evidence import Evidence
from assay.schemas.source import Origin, Source, origin_of
from assay.schemas.transaction import Transaction
from assay.streams.decision_reader import source_of
from assay.streams.partitioning import partition_of
from assay.streams.read_back import read_up_to
from assay.streams.reading import assigned
from assay.tables.features import PROFILE_FEATURES
from assay.tables.rates import SHIPPED_RATES, Rates
from assay.tables.replay import replay

from .topics import PARTITIONS, Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]
CARD = "4111111111111111"
START_MS = 1_767_225_600_000
ACME = "application/vnd.acme+json"
MAPPING = f"""\
content_types: [{ACME}]
fields:
  transaction_id: ref
  user_id: customer.id
  amount: {{from: cents, as: minor_units}}
  currency: {{constant: EUR}}
  timestamp: {{from: at, as: epoch_seconds}}
  merchant.id: {{constant: acme}}
"""


@pytest.fixture(scope="module")
def worker(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """A worker that re-keys, and commits so seldom that nothing is committed when it is killed."""
    mapping = tmp_path_factory.mktemp("mapping") / "acme.yaml"
    mapping.write_text(MAPPING)
    environment |= {"ASSAY_MAPPING": str(mapping)}
    environment |= {"ASSAY_REKEY": "true", "ASSAY_COMMIT_INTERVAL_S": "60", "ASSAY_SESSION_TIMEOUT_S": "6"}
    process = WorkerProcess("worker", tmp_path_factory.mktemp("worker"), environment)
    process.start()
    process.wait_until_ready()
    yield process
    process.stop()


async def send(topics: Topics, numbers: range, name: str) -> dict[str, Source]:
    """Payments of six users: by librdkafka's default, without a key, keyed by id. {transaction_id: where it was put}"""
    sent: dict[str, Source] = {}
    librdkafka = Producer({"bootstrap.servers": topics.bootstrap, "linger.ms": 0})
    for number in numbers:
        body = transaction(f"{name}-{number}", f"{name}-{number // 3 % 6}", timestamp=START_MS + number * 60_000)
        value, user, own = orjson.dumps(body), body["user_id"].encode(), body["transaction_id"].encode()
        if number % 3 == 0:
            put: list[Source] = []
            librdkafka.produce(
                topics.name("transactions"), value, user,
                on_delivery=lambda _, m, put=put: put.append(Source(m.topic(), m.partition(), m.offset())),
            )  # fmt: skip
            librdkafka.flush(10)
            [sent[body["transaction_id"]]] = put
        else:
            key, partition = [(None, crc32(own) % PARTITIONS), (own, partition_of(own, PARTITIONS))][number % 3 - 1]
            sent[body["transaction_id"]] = await topics.send(value, key=key, partition=partition)
    return sent


async def copies(topics: Topics, environment: dict[str, str]) -> list[ConsumerRecord]:
    """All that the internal topic holds, but for fences; each partition in order."""
    options = {"bootstrap_servers": environment["ASSAY_BOOTSTRAP_SERVERS"]}
    partitions = range(PARTITIONS)
    consumer = await assigned(options, topics.name("transactions-by-user"), partitions, from_beginning=True)
    try:
        ends = await consumer.end_offsets(consumer.assignment())
        found = [record async for _, records in read_up_to(consumer, ends, 10.0) for record in records]
    finally:
        await consumer.stop()
    return sorted((record for record in found if origin_of(record)), key=lambda record: (record.partition, record.offset))


def decisions_of(topics: Topics, sent: dict[str, Source]) -> list[ConsumerRecord]:
    return [record for record in topics.seen["decisions"] if orjson.loads(record.value)["transaction_id"] in sent]


async def decided(topics: Topics, sent: dict[str, Source], *, at_least: int) -> None:
    await topics.until(lambda: len(decisions_of(topics, sent)) >= at_least, f"{at_least} decisions")


async def test_profiles_are_whole_whatever_producers_do(topics: Topics, environment: dict[str, str]) -> None:
    sent = await send(topics, range(36), "whole")
    await topics.until(lambda: len(topics.seen["evidence"]) >= len(sent), "evidence of all")
    payments = [record for record in await copies(topics, environment) if (record.key or b"").startswith(b"whole-")]
    bodies = [Transaction.model_validate_json(record.value) for record in payments]
    expected = replay(bodies, Rates.load(SHIPPED_RATES))[:, :PROFILE_FEATURES]
    evidence = {source_of(record): Evidence.model_validate_json(record.value) for record in topics.seen["evidence"]}
    logged = [evidence[Source(record.topic, record.partition, record.offset)].features for record in payments]
    assert np.array(logged, np.float32)[:, :PROFILE_FEATURES].tobytes() == expected.tobytes()
    assert len(payments) == len(sent)


async def test_a_decision_names_the_record_that_its_caller_has_sent(topics: Topics) -> None:
    sent = await send(topics, range(6), "named")
    await decided(topics, sent, at_least=len(sent))
    for record in decisions_of(topics, sent):
        [origin] = [Origin.parse(value) for name, value in record.headers if name == "assay-origin"]
        decision = orjson.loads(record.value)
        assert origin.source == sent[decision["transaction_id"]]
        assert decision["latency_ms"] <= record.timestamp - origin.appended_ms  # it counts from the first append


async def test_a_refused_record_is_one_dead_letter_that_names_its_own_place(topics: Topics) -> None:
    source = await topics.send(b"no JSON", key=b"whoever", partition=2)
    [letter] = await topics.until(lambda: letters_of(topics, source), "its dead letter")
    assert (letter.value, letter.key, letter.partition) == (b"no JSON", b"whoever", 2)


async def test_i7_a_card_number_does_not_get_into_the_internal_topic(topics: Topics, environment: dict[str, str]) -> None:
    source = await topics.send(transaction("card", "card", instrument={"id": CARD}), partition=0)
    [letter] = await topics.until(lambda: letters_of(topics, source), "its dead letter")
    headers = dict(letter.headers)
    assert headers["assay-error-detail"].startswith(b"instrument.id")
    assert len(headers["assay-digest"]) == 64
    assert not any(CARD.encode() in (record.value or b"") for record in await copies(topics, environment))


async def test_transactions_in_another_shape_are_mapped_and_lie_with_their_user(topics: Topics) -> None:
    body = {"ref": "acme-1", "customer": {"id": "mapped-1"}, "cents": 999, "at": START_MS // 1000}
    headers = [("content-type", ACME.encode())]
    await topics.send(orjson.dumps(body), key=b"acme-1", headers=headers, partition=0)
    refused = await topics.send(orjson.dumps(body | {"cents": "9.99"}), key=b"acme-2", headers=headers, partition=0)
    await decided(topics, {"acme-1": refused}, at_least=1)
    [record] = decisions_of(topics, {"acme-1": refused})
    assert (record.key, record.partition) == (b"mapped-1", partition_of(b"mapped-1", PARTITIONS))
    [letter] = await topics.until(lambda: letters_of(topics, refused), "its dead letter")
    assert dict(letter.headers)["assay-error-detail"].startswith(b"amount: expected a whole number of minor units at cents")


def letters_of(topics: Topics, source: Source) -> list[ConsumerRecord]:
    """Dead letters whose original is this."""
    place = source.partition.to_bytes(4, "big"), source.offset.to_bytes(8, "big")
    names = "kafka_dlt-original-topic", "kafka_dlt-original-partition", "kafka_dlt-original-offset"
    wanted = [source.topic.encode(), *place]
    return [record for record in topics.seen["dead-letters"] if [dict(record.headers)[name] for name in names] == wanted]


async def test_i1_after_a_kill_between_copy_and_commit_each_is_copied_once_and_answered_once(
    topics: Topics, worker: WorkerProcess, environment: dict[str, str]
) -> None:
    sent = await send(topics, range(60), "killed")
    await decided(topics, sent, at_least=20)
    worker.signal(signal.SIGKILL)
    while worker.running:
        await asyncio.sleep(0.02)
    sent |= await send(topics, range(60, 90), "killed")
    await asyncio.to_thread(worker.start)
    await asyncio.to_thread(worker.wait_until_ready)
    await decided(topics, sent, at_least=len(sent))
    ours = [record for record in await copies(topics, environment) if (record.key or b"").startswith(b"killed-")]
    origins = [origin_of(record) for record in ours]
    assert Counter(origin.source for origin in origins if origin) == Counter(sent.values())
    assert all(record.partition == partition_of(record.key, PARTITIONS) for record in ours)
    assert Counter(orjson.loads(record.value)["transaction_id"] for record in decisions_of(topics, sent)) == Counter(list(sent))
