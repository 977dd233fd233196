"""The client library on a real Kafka."""

import asyncio
from typing import Any

import pytest

from assay.schemas.decision import Action
from assay.schemas.errors import DecisionTimeout, ServiceError
from assay.streams.client import DecisionClient

pytestmark = pytest.mark.services


def transaction(number: int, user: str = "u-1") -> dict[str, Any]:
    return {
        "transaction_id": f"t-{number}",
        "user_id": user,
        "amount": "12.50",
        "currency": "EUR",
        "timestamp": 1_767_225_600_000,
        "merchant": {"id": "m-1"},
    }


@pytest.fixture
def client(echo: Any, topic_prefix: str) -> DecisionClient:
    return DecisionClient(echo.bootstrap, transactions_topic=echo.transactions, reply_topic=f"{topic_prefix}checkout.reply")


async def test_a_transaction_gets_its_decision_and_the_reply_topic_is_made(client: DecisionClient, echo: Any) -> None:
    async with client:
        decision = await client.decide(transaction(1), timeout=20)
    assert (decision.transaction_id, decision.action) == ("t-1", Action.APPROVE)
    assert echo.seen[0].key == b"u-1"


async def test_the_very_first_reply_is_never_missed(echo: Any, topic_prefix: str) -> None:
    for number in range(5):
        new = DecisionClient(echo.bootstrap, transactions_topic=echo.transactions, reply_topic=f"{topic_prefix}first.reply")
        async with new:
            await new.decide(transaction(number), timeout=20)


async def test_hundreds_at_once_on_two_clients_of_one_reply_topic_hear_only_their_own(echo: Any, topic_prefix: str) -> None:
    names = {"transactions_topic": echo.transactions, "reply_topic": f"{topic_prefix}shared.reply"}
    async with DecisionClient(echo.bootstrap, **names) as one, DecisionClient(echo.bootstrap, **names) as two:
        calls = [
            client.decide(transaction(number, f"u-{number % 37}"), timeout=30) for number in range(300) for client in (one, two)
        ]
        decisions = await asyncio.gather(*calls)
        assert [decision.transaction_id for decision in decisions] == [f"t-{n}" for n in range(300) for _ in range(2)]
        assert (one.counts.first, two.counts.first) == (300, 300)
        assert one.counts.duplicate + one.counts.late == two.counts.duplicate + two.counts.late == 0


async def test_keys_lie_where_murmur2_of_the_user_puts_them(client: DecisionClient, echo: Any) -> None:
    async with client:
        await asyncio.gather(*(client.decide(transaction(n, f"user-{n}"), timeout=20) for n in range(20)))
    expected = [1, 2, 2, 2, 1, 1, 2, 2, 0, 2, 2, 1, 0, 1, 2, 2, 0, 0, 2, 1]  # (murmur2(key) & 0x7fffffff) % 3
    assert {record.key: record.partition for record in echo.seen} == {
        f"user-{n}".encode(): partition for n, partition in enumerate(expected)
    }


async def test_silence_ends_at_the_deadline_and_the_reply_that_comes_later_is_counted_late(
    client: DecisionClient, echo: Any
) -> None:
    answers, echo.answers = echo.answers, lambda echo, record: []
    async with client:
        with pytest.raises(DecisionTimeout):
            await client.decide(transaction(1), timeout=0.3)
        echo.answers = answers
        await client.decide(transaction(1), timeout=20)
        assert client.counts.first == 1


async def test_a_second_reply_is_a_duplicate(client: DecisionClient, echo: Any) -> None:
    first = echo.answers
    echo.answers = lambda echo, record: first(echo, record) * 2
    async with client:
        await client.decide(transaction(1), timeout=20)
        await client.decide(transaction(2), timeout=20)
        assert client.counts.first == 2
        assert client.counts.duplicate >= 1


async def test_no_consumer_group_is_made(client: DecisionClient, echo: Any) -> None:
    from aiokafka.admin import AIOKafkaAdminClient

    admin = AIOKafkaAdminClient(bootstrap_servers=echo.bootstrap)
    await admin.start()
    before = {name for name, *_ in await admin.list_consumer_groups()}
    async with client:
        await client.decide(transaction(1), timeout=20)
        groups = {name for name, *_ in await admin.list_consumer_groups()}
    await admin.close()
    assert groups <= before


async def test_missing_topics_are_named(kafka: str, topic_prefix: str) -> None:
    with pytest.raises(ServiceError, match=f"no topic {topic_prefix}transactions"):
        async with DecisionClient(kafka, transactions_topic=f"{topic_prefix}transactions"):
            pass


async def test_a_reply_topic_that_may_not_be_made_is_named(echo: Any, topic_prefix: str) -> None:
    names = {"transactions_topic": echo.transactions, "reply_topic": f"{topic_prefix}absent.reply"}
    with pytest.raises(ServiceError, match=r"absent\.reply"):
        async with DecisionClient(echo.bootstrap, create_reply_topic=False, **names):
            pass


async def test_a_broker_that_is_not_there_is_named() -> None:
    with pytest.raises(ServiceError, match="does not answer"):
        async with DecisionClient("127.0.0.1:1"):
            pass
