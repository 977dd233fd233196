"""The client library over a fake exchange: deadlines, duplicates, refusals, failures."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import orjson
import pytest
from aiokafka.partitioner import DefaultPartitioner, murmur2

from assay.schemas.decision import Action, Tier, encode_decision, encode_digests
from assay.schemas.errors import DecisionRefused, DecisionTimeout, ServiceError
from assay.schemas.source import Source
from assay.schemas.transaction import Transaction
from assay.streams.client import DecisionClient

TRANSACTION = {
    "transaction_id": "t-1",
    "user_id": "u-1",
    "amount": "12.50",
    "currency": "EUR",
    "timestamp": 1_767_225_600_000,
    "merchant": {"id": "m-1"},
}


@dataclass
class Record:
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    key: bytes | None = None
    topic: str = "assay.reply"
    partition: int = 0
    offset: int = 0
    timestamp: int = 0


@dataclass
class FakeExchange:
    """Answers what `answers` makes of each sent transaction, at once."""

    answers: Callable[[bytes, bytes, dict[str, bytes]], Sequence[Record]] = lambda key, value, headers: []
    sent: list[tuple[bytes, bytes, dict[str, bytes]]] = field(default_factory=list)
    delivery_error: Exception | None = None
    closed: bool = False
    arrived: asyncio.Queue[Sequence[Record] | Exception] = field(default_factory=asyncio.Queue)

    async def start(self) -> None: ...

    async def send(self, key: bytes, value: bytes, headers: list[tuple[str, bytes]]) -> "asyncio.Future[Any]":
        self.sent.append((key, value, dict(headers)))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.delivery_error is not None:
            future.set_exception(self.delivery_error)
        else:
            future.set_result(None)
            self.arrived.put_nowait(self.answers(*self.sent[-1]))
        return future

    async def receive(self) -> Sequence[Record]:
        arrived = await self.arrived.get()
        if isinstance(arrived, Exception):
            raise arrived
        return arrived

    async def close(self) -> None:
        self.closed = True


def decision_bytes(transaction_id: str = "t-1", user_id: str = "u-1", action: Action = Action.DECLINE) -> bytes:
    return encode_decision(
        transaction_id=transaction_id,
        user_id=user_id,
        fraud_score=0.91,
        action=action,
        reasons=[("amount_zscore", "amount far above the usual", 1.5)],
        rules=[],
        model=None,
        digests=encode_digests(None, None, None, None, None),
        tier=Tier.FULL,
        late_event=False,
        deadline_missed=False,
        decided_ms=1_767_225_600_040,
        appended_ms=1_767_225_600_000,
        worker="w",
        generation=1,
        source=Source("transactions", 0, 1),
    )


def answer(key: bytes, value: bytes, headers: dict[str, bytes]) -> list[Record]:
    sent = orjson.loads(value)
    body = decision_bytes(sent["transaction_id"], sent["user_id"])
    return [Record(body, [("content-type", b"application/json"), ("correlation-id", headers["correlation-id"])])]


async def test_a_decision_comes_back_to_its_caller() -> None:
    exchange = FakeExchange(answer)
    async with DecisionClient(exchange=exchange) as client:
        decision = await client.decide(TRANSACTION, timeout=1)
    assert (decision.transaction_id, decision.action, decision.tier) == ("t-1", Action.DECLINE, Tier.FULL)
    assert exchange.closed


async def test_the_request_carries_key_correlation_and_deadline() -> None:
    exchange = FakeExchange(answer)
    async with DecisionClient(exchange=exchange) as client:
        await client.decide(TRANSACTION, timeout=0.2, headers=[("traceparent", b"00-1-2-01")])
    key, value, headers = exchange.sent[0]
    assert key == b"u-1"
    assert orjson.loads(value) == TRANSACTION
    assert len(headers["correlation-id"]) == 16
    assert headers["assay-timeout-ms"] == b"150"
    assert headers["traceparent"] == b"00-1-2-01"


async def test_a_transaction_object_and_decimals_keep_their_digits() -> None:
    exchange = FakeExchange(answer)
    async with DecisionClient(exchange=exchange) as client:
        await client.decide(Transaction.model_validate(TRANSACTION), timeout=1)
        await client.decide(TRANSACTION | {"amount": Decimal("12.50")}, timeout=1)
    assert [orjson.loads(value)["amount"] for _, value, _ in exchange.sent] == ["12.50", "12.50"]
    assert [key for key, _, _ in exchange.sent] == [b"u-1", b"u-1"]


async def test_hundreds_wait_at_once_and_each_gets_its_own() -> None:
    held: list[Record] = []

    def hold(key: bytes, value: bytes, headers: dict[str, bytes]) -> list[Record]:
        held.extend(answer(key, value, headers))
        if len(held) < 500:
            return []
        return held[::-1]

    async with DecisionClient(exchange=FakeExchange(hold)) as client:
        decisions = await asyncio.gather(
            *(client.decide(TRANSACTION | {"transaction_id": f"t-{i}"}, timeout=30) for i in range(500))
        )
    assert [decision.transaction_id for decision in decisions] == [f"t-{i}" for i in range(500)]


async def test_no_answer_in_time_says_what_to_do_instead() -> None:
    async with DecisionClient(exchange=FakeExchange()) as client:
        with pytest.raises(DecisionTimeout, match="fallback action"):
            await client.decide(TRANSACTION, timeout=0.01)


async def test_late_duplicate_and_orphaned_replies_are_counted_apart() -> None:
    exchange = FakeExchange()
    async with DecisionClient(exchange=exchange) as client:
        with pytest.raises(DecisionTimeout):
            await client.decide(TRANSACTION, timeout=0.01)
        exchange.answers = lambda *sent: answer(*sent) * 2 + answer(*exchange.sent[0]) + [Record(b"{}", [])]
        await client.decide(TRANSACTION, timeout=1)
        await asyncio.sleep(0)
        assert client.counts.as_dict() == {"first": 1, "duplicate": 1, "late": 1, "orphaned": 1}


async def test_a_decision_of_another_payload_is_counted() -> None:
    def of_another(key: bytes, value: bytes, headers: dict[str, bytes]) -> list[Record]:
        [record] = answer(key, value, headers)
        return [Record(record.value, [*record.headers, ("assay-conflict", b"1")])]

    async with DecisionClient(exchange=FakeExchange(of_another)) as client:
        await client.decide({"transaction_id": "t-1", "user_id": "u-1"}, timeout=1)
        assert client.conflicts == 1


async def test_a_refusal_is_raised_with_code_and_field() -> None:
    body = {
        "action": "review",
        "tier": "refused",
        "error": {"code": "currency", "message": "currency: expected an ISO 4217 code", "field": "currency"},
        "transaction_id": "t-1",
    }

    def refuse(key: bytes, value: bytes, headers: dict[str, bytes]) -> list[Record]:
        return [Record(orjson.dumps(body), [("correlation-id", headers["correlation-id"]), ("assay-error", b"currency")])]

    async with DecisionClient(exchange=FakeExchange(refuse)) as client:
        with pytest.raises(DecisionRefused, match="currency") as refused:
            await client.decide(TRANSACTION, timeout=1)
    assert (refused.value.code, refused.value.field) == ("currency", "currency")


async def test_a_reply_that_is_no_decision_is_an_error_of_that_call_alone() -> None:
    exchange = FakeExchange(lambda key, value, headers: [Record(b"\xff", [("correlation-id", headers["correlation-id"])])])
    async with DecisionClient(exchange=exchange) as client:
        with pytest.raises(ServiceError, match="neither"):
            await client.decide(TRANSACTION, timeout=1)
        exchange.answers = answer
        assert (await client.decide(TRANSACTION, timeout=1)).action is Action.DECLINE


async def test_a_transaction_that_could_not_be_delivered_fails_without_waiting_for_the_deadline() -> None:
    exchange = FakeExchange(delivery_error=RuntimeError("no leader"))
    async with DecisionClient(exchange=exchange) as client:
        with pytest.raises(ServiceError, match="no leader"):
            await client.decide(TRANSACTION, timeout=600)


async def test_when_replies_can_no_longer_be_read_waiting_and_new_calls_fail() -> None:
    exchange = FakeExchange()
    async with DecisionClient(exchange=exchange) as client:
        call = asyncio.create_task(client.decide(TRANSACTION, timeout=600))
        await asyncio.sleep(0)
        exchange.arrived.put_nowait(RuntimeError("connection lost"))
        with pytest.raises(ServiceError, match="connection lost"):
            await call
        with pytest.raises(ServiceError, match="connection lost"):
            await client.decide(TRANSACTION, timeout=600)


async def test_closing_the_client_ends_calls_that_wait() -> None:
    client = DecisionClient(exchange=FakeExchange())
    async with client:
        call = asyncio.create_task(client.decide(TRANSACTION, timeout=600))
        await asyncio.sleep(0)
    with pytest.raises(ServiceError, match="closed"):
        await call


@pytest.mark.parametrize(
    ("key", "hashed"),  # of org.apache.kafka.common.utils.UtilsTest.testMurmur2
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_the_default_partitioner_hashes_as_java_clients_do(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed % 2**32
    assert DefaultPartitioner()(key, list(range(7)), []) == (hashed % 2**31) % 7
