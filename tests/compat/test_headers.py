"""Headers as no client should write them, and reply addresses that lead nowhere: each as the wire contract says."""

import asyncio
from collections.abc import AsyncIterator, Callable

import orjson
import pytest
import pytest_asyncio
from aiokafka.structs import ConsumerRecord

from assay.schemas.limits import MAX_CORRELATION_BYTES
from assay.schemas.source import Source
from tests.integration.topics import Header, Topics, transaction

from .stand import PARTITIONS, Stand

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]
MANY_TOPICS = 10_000
NEVER_COPIED = ("__TypeId__", "__KeyTypeId__", "__ContentTypeId__", "spring_json_header_types", "kafka_replyTopic")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def topics(counter: Stand) -> AsyncIterator[Topics]:
    """The topics of that worker."""
    async with Topics(counter.bootstrap, counter.prefix) as watched:
        yield watched


def replies(counter: Stand, result: str) -> float:
    """How many ended so, says the worker."""
    return counter.worker.metric("assay_replies_total", result=result)


async def ask(topics: Topics, name: str, *headers: Header) -> Source:
    return await topics.send(transaction(name, f"user of {name}"), headers=[*headers])


async def answered(topics: Topics, name: str) -> ConsumerRecord:
    """The reply to a question as it should be: nothing that came before holds it up."""
    address = ("reply-to", topics.name("checkout.reply").encode())
    return await topics.first(await ask(topics, name, address, ("correlation-id", b"c")), "checkout.reply")


@pytest.mark.parametrize(
    ("topic_header", "name", "value", "code"),
    [
        ("reply-to", "reply-partition", b"\x00\x00\x00\x01", "reply_address"),
        ("kafka_replyTopic", "kafka_replyPartition", b"12a4", "reply_address"),
        ("REPLY_TOPIC", "REPLY_PARTITION", b"1", "reply_address"),
        ("reply-to", "reply-partition", b"-1", "reply_address"),
        ("reply-to", "reply-to", b"no/topic", "reply_address"),
        ("reply-to", "correlation-id", b"c" * (MAX_CORRELATION_BYTES + 1), "correlation"),
        ("reply-to", "correlation-id", b"c" * 1_000_000, "too_large"),
    ],
)
async def test_a_reply_address_in_the_wrong_form_is_a_dead_letter_without_a_reply(
    topics: Topics, topic_header: str, name: str, value: bytes, code: str
) -> None:
    address = (topic_header, topics.name("checkout.reply").encode())
    source = await ask(topics, f"{name} {value[:8]!r}", address, (name, value))
    letter = await topics.first(source, "dead-letters")
    await answered(topics, f"after {name} {value[:8]!r}")
    assert dict(letter.headers)["assay-error"] == code.encode()
    assert not topics.made_from(source, "checkout.reply") + topics.made_from(source, "decisions")


@pytest.mark.parametrize(
    ("topic", "partition", "result"),
    [("transactions", b"0", "not_allowed"), ("checkout.reply", b"%d" % PARTITIONS, "no_partition")],
)
async def test_a_reply_that_can_not_go_anywhere_is_dropped_and_counted_and_its_decision_published(
    counter: Stand, topics: Topics, topic: str, partition: bytes, result: str
) -> None:
    before = replies(counter, result)
    address = [("reply-to", topics.name(topic).encode()), ("reply-partition", partition)]
    source = await ask(topics, result, *address)
    await topics.first(source, "decisions")
    await until(lambda: replies(counter, result) == before + 1)
    await answered(topics, f"after {result}")
    assert not topics.made_from(source, "checkout.reply")


async def test_ten_thousand_reply_topics_that_are_not_there_cost_nobody_else_a_reply(counter: Stand, topics: Topics) -> None:
    await answered(topics, "before many")
    dropped = replies(counter, "no_topic")
    await asyncio.gather(*(ask(topics, f"many-{n}", ("reply-to", b"nowhere-%d.reply" % n)) for n in range(MANY_TOPICS)))
    await answered(topics, "after many")
    await topics.settled()
    await until(lambda: replies(counter, "no_topic") + replies(counter, "queue_full") >= dropped + MANY_TOPICS)
    decided = [orjson.loads(record.value)["transaction_id"] for record in topics.seen["decisions"]]
    assert sum(name.startswith("t-many-") for name in decided) == MANY_TOPICS


async def test_type_headers_and_addresses_are_not_copied_to_a_reply(topics: Topics) -> None:
    address = [("reply-to", topics.name("checkout.reply").encode()), ("correlation-id", b"c")]
    source = await ask(topics, "typed", *address, *((name, b"evil.Class") for name in NEVER_COPIED))
    for topic in ("checkout.reply", "decisions"):
        assert not {name for name, _ in (await topics.first(source, topic)).headers} & {*NEVER_COPIED, "reply-to"}


async def test_of_two_correlation_headers_the_one_beside_the_reply_topic_comes_back_alone(topics: Topics) -> None:
    spring = [("kafka_replyTopic", topics.name("checkout.reply").encode()), ("kafka_correlationId", b"\xff\x00s")]
    source = await ask(topics, "two dialects", ("correlation-id", b"trace"), *spring)
    headers = (await topics.first(source, "checkout.reply")).headers
    assert [header for header in headers if "correlation" in header[0].lower()] == [spring[1]]


async def test_of_two_values_of_one_correlation_header_the_last_comes_back_alone(topics: Topics) -> None:
    address = ("reply-to", topics.name("checkout.reply").encode())
    source = await ask(topics, "two values", ("correlation-id", b"first"), address, ("correlation-id", b"last"))
    headers = (await topics.first(source, "checkout.reply")).headers
    assert [value for name, value in headers if name == "correlation-id"] == [b"last"]


async def until(condition: Callable[[], bool]) -> None:
    """Return once it is true."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.05)
