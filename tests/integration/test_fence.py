"""Owning source partitions on a real Kafka: a former owner appends nothing after the fence (I2); what it said stands (I3)."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from assay.schemas.errors import Fenced, PublishError, TopologyError
from assay.schemas.source import CONFLICT_HEADER, REPLAY_HEADER, SOURCE_HEADER, OutRecord, Source
from assay.streams import read_back as module
from assay.streams.ownership import Ownership
from assay.streams.publisher import Publisher
from assay.streams.read_back import LogReader, Said, Uncommitted

pytestmark = [pytest.mark.services, pytest.mark.timeout(120)]
PARTITIONS, DEADLINE_S = 2, 20.0
STAMPED = {"message.timestamp.type": "LogAppendTime"}


@dataclass
class Owner:
    """One worker's publisher and claims."""

    publisher: Publisher
    ownership: Ownership

    async def say(self, *records: OutRecord, topic: str = "", partition: int = 0) -> int:
        """Publish; returns where the last record lies."""
        where = (topic or self.publisher.owned[0], partition)
        return (await self.publisher.publish({where: records}))[where]


@dataclass
class Log:
    """Topics of one test, and the owners that it has made."""

    bootstrap: str
    prefix: str
    owners: list[Owner] = field(default_factory=list)

    @property
    def decisions(self) -> str:
        return self.prefix + "decisions"

    @property
    def dead_letters(self) -> str:
        return self.prefix + "dead-letters"

    async def owner(self, prefix: str = "assay") -> Owner:
        """A worker that has claimed nothing yet."""
        options = {"bootstrap_servers": self.bootstrap}
        publisher = Publisher(options, owned=(self.decisions, self.dead_letters), deadline=DEADLINE_S)
        made = Owner(publisher, Ownership(options, self.prefix + prefix, [publisher], DEADLINE_S))
        self.owners.append(made)
        await publisher.start()
        await made.ownership.start()
        return made

    async def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Everything in a partition."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap)
        await consumer.start()
        try:
            where = TopicPartition(topic, partition)
            consumer.assign([where])
            await consumer.seek_to_beginning(where)
            end, found = (await consumer.end_offsets([where]))[where], []
            while await consumer.position(where) < end:
                found += [record.value for record in (await consumer.getmany(timeout_ms=100)).get(where, ())]
            return found
        finally:
            await consumer.stop()


@pytest_asyncio.fixture
async def log(kafka: str, topic_prefix: str) -> AsyncIterator[Log]:
    made = Log(kafka, topic_prefix)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.create_topics(
        [NewTopic(name, PARTITIONS, 1, topic_configs=STAMPED) for name in (made.decisions, made.dead_letters)]
    )
    await admin.close()
    yield made
    for owner in made.owners:
        await owner.publisher.close()
        await owner.ownership.close()


def decision(offset: int, value: bytes = b"verdict", *marks: str) -> OutRecord:
    source = Source("transactions", 0, offset).header()
    return b"user", value, [(SOURCE_HEADER, source), *((mark, b"1") for mark in marks)]


async def test_i2_what_a_former_owner_sends_after_the_fence_is_refused(log: Log):
    former, owner = await log.owner(), await log.owner()
    await former.ownership.take([0])
    await former.say(decision(1, b"before"))
    fences = await owner.ownership.take([0])
    with pytest.raises(Fenced):
        await former.say(decision(2, b"after"))
    await owner.say(decision(2, b"by its owner"))
    assert await log.values(log.decisions) == [None, b"before", None, b"by its owner"]
    assert fences == {(log.decisions, 0): 2, (log.dead_letters, 0): 1}


async def test_i2_what_a_former_owner_has_never_sent_to_a_topic_is_refused_there_too(log: Log):
    former, owner = await log.owner(), await log.owner()
    await former.ownership.take([0])
    await owner.ownership.take([0])
    with pytest.raises(Fenced):
        await former.say(decision(1), topic=log.dead_letters)


async def test_i2_the_other_partitions_of_a_former_owner_are_still_its_own(log: Log):
    former, owner = await log.owner(), await log.owner()
    await former.ownership.take([0, 1])
    await owner.ownership.take([0])
    await former.say(decision(1, b"mine"), partition=1)
    assert await log.values(log.decisions, 1) == [None, b"mine"]


async def test_nothing_is_published_to_a_partition_that_was_not_claimed(log: Log):
    with pytest.raises(PublishError, match="not claimed"):
        await (await log.owner()).say(decision(1))


async def test_a_renewed_claim_goes_on_publishing_and_still_fences(log: Log):
    former, owner = await log.owner(), await log.owner()
    await former.ownership.take([0])
    await owner.ownership.take([0])
    await owner.say(decision(1))
    await owner.ownership.renew()
    await owner.say(decision(2))
    with pytest.raises(Fenced):
        await former.say(decision(3))
    assert await log.values(log.decisions) == [None, None, b"verdict", None, b"verdict"]


async def test_i2_a_renewal_never_takes_a_partition_back(log: Log):
    former, owner = await log.owner(), await log.owner()
    await former.ownership.take([0])
    await owner.ownership.take([0])
    with pytest.raises(Fenced):
        await former.ownership.renew()
    await owner.say(decision(1))


async def test_i2_a_claim_that_another_prefix_holds_is_shut_out(log: Log):
    former, owner = await log.owner("before"), await log.owner("after")
    await former.ownership.take([0])
    await former.say(decision(1))
    await owner.ownership.take([0])
    with pytest.raises(Fenced):
        await former.say(decision(2, b"late"))
    await owner.say(decision(2))
    assert b"late" not in await log.values(log.decisions)


async def test_i2_an_idempotent_producer_without_a_claim_is_shut_out(log: Log):
    stranger = AIOKafkaProducer(bootstrap_servers=log.bootstrap, enable_idempotence=True)
    await stranger.start()
    try:
        await stranger.send_and_wait(log.decisions, b"before", partition=0)
        owner = await log.owner()
        await owner.ownership.take([0])
        with pytest.raises(Exception, match=r"(?i)epoch|fenced"):
            await asyncio.wait_for(stranger.send_and_wait(log.decisions, b"after", partition=0), DEADLINE_S)
        assert b"after" not in await log.values(log.decisions)
    finally:
        await stranger.stop()


async def read_back(log: Log, owner: Owner, commit: int, *, since_ms: int = 0) -> Any:
    fences = await owner.ownership.take([0])
    ends = fences[log.decisions, 0], fences[log.dead_letters, 0]
    reader = LogReader({"bootstrap_servers": log.bootstrap}, "transactions", log.decisions, log.dead_letters, DEADLINE_S)
    return (await reader.read_back({0: Uncommitted(commit, since_ms, *ends)}))[0]


async def test_i3_everything_said_after_the_commit_is_read_back_whatever_lies_between(log: Log):
    former, owner = await log.owner(), await log.owner()
    await former.ownership.take([0])
    said = [decision(3, b"a"), decision(1, b"old", REPLAY_HEADER), decision(5, b"b", CONFLICT_HEADER), decision(4, b"c")]
    await former.say(*said, decision(3, b"a"))
    await former.say(decision(6), decision(2), topic=log.dead_letters)
    found = await read_back(log, owner, commit=3)
    assert found.decisions == {3: Said(b"a"), 5: Said(b"b", conflict=True), 4: Said(b"c")}
    assert found.dead_letters == {6}


async def test_i3_a_read_back_begins_where_the_first_uncommitted_transaction_was_appended(
    log: Log, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "CLOCK_MARGIN_MS", 0)
    former, owner = await log.owner(), await log.owner()
    await former.ownership.take([0])
    await former.say(decision(3, b"a"))
    await asyncio.sleep(0.01)  # so that append times differ
    between_ms = int(time.time() * 1000)
    await former.say(decision(4, b"b"))
    assert (await read_back(log, owner, commit=0, since_ms=between_ms)).decisions == {4: Said(b"b")}


async def test_i1_a_fence_that_seems_older_than_the_transactions_is_refused_instead_of_read_past(log: Log):
    much_later_ms = int(time.time() * 1000) + 60_000
    with pytest.raises(TopologyError, match="clocks"):
        await read_back(log, await log.owner(), commit=0, since_ms=much_later_ms)


async def test_what_another_topic_made_is_not_read_back(log: Log):
    former, owner = await log.owner(), await log.owner()
    await former.ownership.take([0])
    await former.say(
        (b"user", b"x", [(SOURCE_HEADER, b"elsewhere:0:7")]), (b"user", b"y", [(SOURCE_HEADER, b"transactions:1:7")])
    )
    assert (await read_back(log, owner, commit=0)).decisions == {}


async def test_a_topic_that_is_made_anew_has_another_id(log: Log, kafka: str):
    owner = await log.owner()
    before = await owner.ownership.topic_id(log.decisions)
    assert before == await owner.ownership.topic_id(log.decisions)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.delete_topics([log.decisions])
        await until_gone(admin, log.decisions)
        await admin.create_topics([NewTopic(log.decisions, PARTITIONS, 1)])
    finally:
        await admin.close()
    assert before != await owner.ownership.topic_id(log.decisions)


async def until_gone(admin: AIOKafkaAdminClient, topic: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while topic in await admin.list_topics():
            await asyncio.sleep(0.05)
