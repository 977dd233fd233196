"""A member of the group of those who copy: it copies what is its own, commits what is copied, and lets go of what is not."""

import time
from collections.abc import Sequence
from typing import Any, NoReturn

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError

from assay.schemas.errors import Fenced
from assay.streams import rekeying
from assay.streams.metrics import Metrics
from assay.streams.rekeying import RENEW_CLAIMS_S, Rekeyer
from assay.streams.settings import Settings

HERE, THERE = TopicPartition("transactions", 0), TopicPartition("transactions", 1)


class Ended(Exception):
    """Instead of the end of the process."""


class Group:
    """The group's coordinator, and the topic: one generation at a time may commit."""

    def __init__(self) -> None:
        self.generation, self.committed = 1, dict[TopicPartition, int]()
        self.fetched: dict[TopicPartition, list[Any]] = {}
        self.copied: list[tuple[int, int]] = []  # (partition, offset)
        self.did: list[str] = []


class Consumer:
    """One member's."""

    def __init__(self, group: Group) -> None:
        self._group, self.generation, self.sought = group, group.generation, dict[TopicPartition, int]()

    async def committed(self, where: TopicPartition) -> int | None:
        return self._group.committed.get(where)

    async def beginning_offsets(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(wanted, 3)

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        self._group.did.append("commit")
        if self.generation != self._group.generation:
            raise CommitFailedError
        self._group.committed.update(offsets)

    def seek(self, where: TopicPartition, offset: int) -> None:
        self.sought[where] = offset

    async def getmany(self, **_: Any) -> dict[TopicPartition, list[Any]]:
        fetched, self._group.fetched = self._group.fetched, {}
        return fetched

    def highwater(self, _: TopicPartition) -> int:
        return 100


class Source:
    async def readable(self, partitions: set[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, 100)

    async def first_append(self, *_: int) -> None: ...


def record(where: TopicPartition, offset: int) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord(*where, offset, 0, 1, None, b"{}", None, 0, 0, ())


async def round_of(member: Any) -> None:
    """One round, with a commit."""
    member._commit_due = 0.0
    await member._round()


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def member(group: Group, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes members of the group, whose lanes say what they do."""

    class Lane:
        def __init__(self, *_: Any) -> None:
            self.next = 0

        async def take(self) -> None:
            group.did.append("take")

        async def renew(self) -> None:
            group.did.append("renew")

        async def go_on(self, committed: int | None, earliest: int, *_: Any) -> None:
            group.did.append("go on")
            self.next = earliest if committed is None else committed

        async def copy(self, records: Sequence[ConsumerRecord[bytes, bytes]]) -> None:
            group.copied += [(each.partition, each.offset) for each in records]
            self.next = records[-1].offset + 1

        async def close(self) -> None:
            group.did.append("close")

    def end(reason: str, error: BaseException) -> NoReturn:
        raise Ended(f"{reason}: {error}")

    monkeypatch.setattr(rekeying, "Lane", Lane)
    monkeypatch.setattr(rekeying, "end_process", end)

    def make() -> Rekeyer:
        rekeyer: Any = Rekeyer(Settings.load(rekey=True), 2, {}, Metrics())
        rekeyer._consumer, rekeyer._client, rekeyer._source = Consumer(group), None, Source()
        return rekeyer

    return make


async def test_a_member_goes_on_at_what_is_committed_and_commits_what_it_has_copied(group: Group, member: Any) -> None:
    group.committed, group.fetched = {HERE: 7}, {HERE: [record(HERE, 7), record(HERE, 8)]}
    ours = member()
    await ours.on_partitions_assigned([HERE, THERE])
    assert ours._consumer.sought == {HERE: 7, THERE: 3}
    await round_of(ours)
    assert group.committed == {HERE: 9, THERE: 3}


async def test_i3_a_member_claims_then_confirms_its_membership_then_reads_back(group: Group, member: Any) -> None:
    await member().on_partitions_assigned([HERE])
    assert group.did == ["take", "commit", "go on"]


async def test_i3_a_sleeper_that_has_woken_up_lets_go_and_copies_nothing(group: Group, member: Any) -> None:
    sleeper, group.generation = member(), 2
    await sleeper.on_partitions_assigned([HERE])
    group.fetched = {HERE: [record(HERE, 3)]}
    await round_of(sleeper)
    assert (group.did, group.copied, group.committed) == (["take", "commit", "close"], [], {})


async def test_what_is_revoked_is_committed_and_let_go_and_the_next_member_goes_on_there(group: Group, member: Any) -> None:
    first, second = member(), member()
    await first.on_partitions_assigned([HERE])
    group.fetched = {HERE: [record(HERE, 3)]}
    await round_of(first)
    await first.on_partitions_revoked([HERE])
    await second.on_partitions_assigned([HERE])
    group.fetched = {HERE: [record(HERE, 4)]}
    await round_of(first)
    assert second._consumer.sought == {HERE: 4}
    assert group.copied == [(HERE.partition, 3)]


async def test_a_commit_that_the_group_refuses_ends_nobody_and_is_tried_again(group: Group, member: Any) -> None:
    ours = member()
    await ours.on_partitions_assigned([HERE])
    group.generation, group.fetched = 2, {HERE: [record(HERE, 3)]}
    await round_of(ours)
    assert group.committed == {HERE: 3}
    ours._consumer.generation = 2
    await round_of(ours)
    assert group.committed == {HERE: 4}


async def test_claims_are_renewed_before_brokers_forget_them(group: Group, member: Any) -> None:
    ours = member()
    await ours.on_partitions_assigned([HERE, THERE])
    await round_of(ours)
    assert "renew" not in group.did
    ours._renewal_due -= RENEW_CLAIMS_S
    await round_of(ours)
    await round_of(ours)
    assert group.did.count("renew") == 2
    assert ours._renewal_due > time.monotonic() + RENEW_CLAIMS_S / 2


async def test_whoever_was_overtaken_ends(member: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def take(_: Any) -> None:
        raise Fenced("another has claimed")

    monkeypatch.setattr(rekeying.Lane, "take", take)
    with pytest.raises(Ended, match="another has claimed"):
        await member().on_partitions_assigned([HERE])
