"""Signed decisions: what leaves is signed as it leaves; a client that asks for signatures hears nothing else."""

import asyncio

import orjson
import pytest

from assay.schemas.errors import DecisionTimeout, ServiceError
from assay.schemas.formats import AS_JSON, Format
from assay.schemas.headers import Dialect, ReplyAddress
from assay.schemas.reply_topics import ReplyTopics
from assay.schemas.signature import SIGNATURE_HEADER, SigningKey, read_keys, verify
from assay.streams.client import DecisionClient
from assay.streams.metrics import Metrics
from assay.streams.replies import Replies

from .test_client import TRANSACTION, FakeExchange, Record, answer, decision_bytes

KEY, PRODUCER = SigningKey.make(), SigningKey.make(kid="shop", topic="transactions")
KEYS = read_keys(KEY.key_set())


PROTOBUF = Format("application/x-protobuf", is_protobuf=True)


@pytest.mark.parametrize(("dialect", "wanted"), [*((dialect, AS_JSON) for dialect in Dialect), (Dialect.ASSAY, PROTOBUF)])
async def test_a_reply_is_signed_in_the_form_in_which_it_leaves(dialect: Dialect, wanted: Format) -> None:
    replies = Replies({}, ReplyTopics(), Metrics(), KEY)
    replies._partitions["a.reply"] = 1
    address = ReplyAddress("a.reply", 0, ("correlation-id", b"c"), dialect, wanted)
    batches = await replies._route([(address, (b"u", decision_bytes(), []))])
    [(_, value, headers)] = batches["a.reply", 0]
    assert verify(dict(headers)[SIGNATURE_HEADER], value, KEYS) == KEY.kid


async def test_a_client_signs_its_transactions() -> None:
    exchange = FakeExchange(answer)
    async with DecisionClient(exchange=exchange, signing_key=PRODUCER) as client:
        await client.decide(TRANSACTION)
    [(_, value, headers)] = exchange.sent
    assert verify(headers[SIGNATURE_HEADER], value, read_keys(PRODUCER.key_set()), topic="transactions") == "shop"


def by(key: SigningKey | None, **changes: str):
    """Answers, signed by a key."""

    def answers(*sent):
        [record] = answer(*sent)
        record = Record(orjson.dumps(orjson.loads(record.value) | changes), record.headers)
        return [record if key is None else Record(record.value, [*record.headers, key.header(record.value)])]

    return answers


@pytest.mark.parametrize("key", [None, PRODUCER], ids=["nobody", "somebody else"])
async def test_a_client_does_not_hear_what_others_have_signed(key: SigningKey | None) -> None:
    async with DecisionClient(exchange=FakeExchange(by(key)), decision_keys=KEYS) as client:
        with pytest.raises(DecisionTimeout):
            await client.decide(TRANSACTION, timeout=0.05)
        assert client.untrusted == 1


async def test_a_forged_reply_does_not_keep_the_true_one_from_being_heard() -> None:
    exchange = FakeExchange(lambda *sent: [*by(None)(*sent), *by(KEY)(*sent)])
    async with DecisionClient(exchange=exchange, decision_keys=KEYS) as client:
        decision = await asyncio.wait_for(client.decide(TRANSACTION, timeout=5), 5)
        assert (decision.transaction_id, client.untrusted) == ("t-1", 1)


async def test_a_signed_decision_on_another_transaction_is_no_answer() -> None:
    async with DecisionClient(exchange=FakeExchange(by(KEY, transaction_id="t-2")), decision_keys=KEYS) as client:
        with pytest.raises(ServiceError, match="another transaction"):
            await client.decide(TRANSACTION)
