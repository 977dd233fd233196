"""Replies: to where they were asked for, and no topic that a caller names slows another's."""

import asyncio

import orjson
import pytest
from aiokafka.errors import KafkaError
from faust.agents.models import ReqRepResponse

from assay.schemas.answer_format import PROTOBUF_SUBJECT
from assay.schemas.formats import Format
from assay.schemas.headers import Dialect, ReplyAddress
from assay.schemas.protobuf import message_class
from assay.schemas.reply_topics import ReplyTopics
from assay.streams import replies as module
from assay.streams.metrics import Metrics
from assay.streams.replies import Replies

PROTOBUF = Format(b"application/protobuf", is_protobuf=True)


class Batch(list):
    def append(self, *, timestamp, key, value, headers):
        super().append((key, value, headers))
        return object()

    def close(self) -> None:
        pass


class Cluster:
    def __init__(self, partitions: dict[str, int]) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, topic: str):
        return set(range(self._partitions[topic])) if topic in self._partitions else None


class Producer:
    """A cluster with topics of so many partitions; sends to `dead` never end."""

    def __init__(self, topics: dict[str, int], dead: str = "") -> None:
        self.topics, self.dead = topics, dead
        self.sent: list[tuple[str, int, list]] = []
        self.looks, self.look_s = 0, 0.0
        self.client = self

    def create_batch(self) -> Batch:
        return Batch()

    async def send_batch(self, batch, topic, partition):
        if topic == self.dead:
            await asyncio.sleep(3600)
        self.sent.append((topic, partition, list(batch)))
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def fetch_all_metadata(self) -> Cluster:
        self.looks += 1
        await asyncio.sleep(self.look_s)
        if not self.topics:
            raise KafkaError
        return Cluster(self.topics)

    async def stop(self) -> None:
        pass


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "REPLY_DEADLINE_S", 0.05)
    monkeypatch.setattr(module, "LEAST_LOOK_PAUSE_S", 0.0)


class Signer:
    def header(self, value: bytes) -> tuple[str, bytes]:
        return "assay-signature", value


class Desk:
    """Replies over a fake producer, and what was counted."""

    def __init__(self, producer: Producer) -> None:
        self.metrics, self.producer = Metrics(), producer
        self.replies = Replies({}, ReplyTopics(), self.metrics)
        self.replies._producer = producer
        self.replies._outbox.start()

    async def reply(self, topic: str, partition: int | None = 0, key: bytes = b"u-1") -> None:
        address = ReplyAddress(topic, partition, None, Dialect.ASSAY)
        self.replies.send([(address, (key, b"{}", []))])
        await asyncio.sleep(0.01)

    def counted(self, result: str) -> float:
        return self.metrics.registry.get_sample_value("assay_replies_total", {"result": result}) or 0.0


async def test_a_reply_goes_to_the_partition_that_was_asked_for():
    desk = Desk(Producer({"shop.reply": 4}))
    await desk.reply("shop.reply", 3)
    assert [(topic, partition) for topic, partition, _ in desk.producer.sent] == [("shop.reply", 3)]
    assert desk.counted("sent") == 1


async def test_without_a_partition_the_key_decides_as_java_clients_do():
    desk = Desk(Producer({"shop.reply": 4}))
    await desk.reply("shop.reply", None, b"u-1")
    await desk.reply("shop.reply", None, b"u-1")
    assert len({partition for _, partition, _ in desk.producer.sent}) == 1


async def test_a_caller_in_faust_gets_the_envelope_that_its_ask_waits_for():
    desk = Desk(Producer({"f-reply-1": 1}))
    address = ReplyAddress("f-reply-1", None, ("Faust-Ag-CorrelationId", b"c-1"), Dialect.FAUST)
    desk.replies.send([(address, (b"u-1", b'{"action":"approve"}', []))])
    await asyncio.sleep(0.01)
    [(_, _, [(_, value, _)])] = desk.producer.sent
    response = ReqRepResponse.from_data(orjson.loads(value))
    assert (response.correlation_id, response.value) == ("c-1", {"action": "approve"})


async def test_a_reply_leaves_in_the_format_of_its_request_and_is_signed_as_it_leaves():
    desk = Desk(Producer({"shop.reply": 1}))
    address = ReplyAddress("shop.reply", 0, None, Dialect.ASSAY, PROTOBUF)
    desk.replies._signing_key = Signer()
    desk.replies.send([(address, (b"u-1", b'{"action":"approve"}', []))])
    await asyncio.sleep(0.01)
    [(_, _, [(_, value, headers)])] = desk.producer.sent
    decision = message_class("Decision")()
    decision.ParseFromString(value)
    assert decision.action == "approve"
    assert headers == [("content-type", b"application/protobuf"), ("assay-signature", value)]


@pytest.mark.parametrize("ids", [{}, {PROTOBUF_SUBJECT: 7}], ids=["no id", "an id"])
async def test_a_framed_reply_is_dropped_and_counted_until_its_schema_has_an_id(ids):
    desk = Desk(Producer({"shop.reply": 1}))
    desk.replies._schema_ids = ids
    address = ReplyAddress("shop.reply", 0, None, Dialect.ASSAY, PROTOBUF._replace(is_framed=True))
    desk.replies.send([(address, (b"u-1", b'{"action":"approve"}', []))])
    await asyncio.sleep(0.01)
    assert (desk.counted("no_schema"), desk.counted("sent")) == ((0, 1) if ids else (1, 0))


async def test_a_reply_that_can_not_be_written_costs_only_itself():
    desk = Desk(Producer({"shop.reply": 1}))
    desk.replies._schema_ids = {PROTOBUF_SUBJECT: 2**32}
    framed = ReplyAddress("shop.reply", 0, None, Dialect.ASSAY, PROTOBUF._replace(is_framed=True))
    plain = ReplyAddress("shop.reply", 0, None, Dialect.ASSAY)
    desk.replies.send([(address, (b"u-1", b'{"action":"approve"}', [])) for address in (plain, framed, plain)])
    await asyncio.sleep(0.01)
    assert (desk.counted("failed"), desk.counted("sent")) == (1, 2)


@pytest.mark.parametrize(
    ("topic", "partition", "result"),
    [("transactions", 0, "not_allowed"), ("other.reply", 0, "no_topic"), ("shop.reply", 9, "no_partition")],
)
async def test_what_can_not_be_delivered_is_counted(topic, partition, result):
    desk = Desk(Producer({"shop.reply": 4, "transactions": 4}))
    await desk.reply(topic, partition)
    assert (desk.counted(result), desk.producer.sent) == (1, [])


async def test_a_made_up_topic_costs_one_look_not_one_for_each_reply():
    desk = Desk(Producer({"shop.reply": 4}))
    for _ in range(5):
        await desk.reply("made-up.reply")
    assert (desk.producer.looks, desk.counted("no_topic")) == (1, 5)


async def test_replies_that_come_while_their_topic_is_looked_up_are_sent_too():
    desk = Desk(Producer({"shop.reply": 4}))
    desk.producer.look_s = 0.03
    for _ in range(5):
        await desk.reply("shop.reply")
    await asyncio.sleep(0.1)
    assert desk.counted("sent") == 5


async def test_many_made_up_topics_leave_room_for_one_that_is_there():
    desk = Desk(Producer({"shop.reply": 4}))
    for number in range(1_100):
        desk.replies.send([(ReplyAddress(f"{number}.reply", 0, None, Dialect.ASSAY), (b"k", b"{}", []))])
    await asyncio.sleep(0.05)
    await desk.reply("shop.reply")
    assert desk.counted("sent") == 1


async def test_i6_a_dead_topic_holds_up_nobody_else_and_is_left_alone_for_a_while():
    desk = Desk(Producer({"shop.reply": 4, "dead.reply": 4}, dead="dead.reply"))
    await desk.reply("dead.reply")
    await asyncio.sleep(0.1)
    assert desk.counted("failed") == 1
    await desk.reply("dead.reply")
    await desk.reply("shop.reply")
    assert (desk.counted("paused") + desk.counted("no_topic"), desk.counted("sent")) == (1, 1)


async def test_a_look_that_fails_once_does_not_end_replies():
    desk = Desk(Producer({}))
    await desk.reply("shop.reply")
    assert desk.counted("failed") == 1
    desk.producer.topics = {"shop.reply": 4}
    await desk.reply("shop.reply")
    assert desk.counted("sent") == 1
