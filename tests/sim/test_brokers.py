"""The brokers in memory do what Kafka does where the fence, the read-back and the commits depend on it."""

import pytest
from aiokafka.errors import (
    CommitFailedError,
    InvalidProducerEpoch,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    UnknownMemberIdError,
)

from .broker import Broker, Log, Producer
from .disk import Disk
from .group import Coordinator
from .loop import VirtualLoop

RECORD = (b"key", b"value", [])


@pytest.fixture
def log() -> Log:
    return Log("decisions", 0, VirtualLoop(), lambda records: None)


def test_a_former_owner_is_refused_once_its_successor_has_appended(log):
    assert log.append([RECORD], Producer(1, 0, 0)) == 0
    assert log.append([RECORD], Producer(1, 0, 1)) == 1  # whoever has claimed meanwhile
    assert log.append([RECORD], Producer(1, 1, 0)) == 2
    with pytest.raises(InvalidProducerEpoch):
        log.append([RECORD], Producer(1, 0, 2))


def test_a_batch_that_is_there_already_is_answered_with_where_it_lies(log):
    log.append([RECORD, RECORD], Producer(1, 0, 0))
    log.append([RECORD], Producer(1, 0, 2))
    assert log.append([RECORD, RECORD], Producer(1, 0, 0)) == 0
    assert log.end == 3


@pytest.mark.parametrize("producer", [Producer(1, 0, 2), Producer(1, 1, 1)], ids=["a gap", "a new epoch that goes on"])
def test_a_batch_out_of_order_is_refused(log, producer):
    log.append([RECORD], Producer(1, 0, 0))
    with pytest.raises(OutOfOrderSequenceNumber):
        log.append([RECORD], producer)


def test_compaction_leaves_the_last_of_each_key_and_all_that_is_new(log):
    for key in (b"a", b"b", b"a", b"b"):
        log.append([(key, b"", [])])
    log.compact(3)
    assert [(record.offset, record.key) for record in log.records] == [(1, b"b"), (2, b"a"), (3, b"b")]
    assert log.read(0, 2) == (log.records[:2], 3)


def test_reading_passes_what_holds_no_record(log):
    log.append([RECORD])
    log.skip()
    assert log.read(1, 10) == ([], 2)


def test_the_last_to_claim_wins_and_a_renewal_never_does():
    broker = Broker(VirtualLoop(), iter([]), lambda records: None)
    first = broker.claim("assay-0", (-1, -1))
    second = broker.claim("assay-0", (-1, -1))
    assert (second[0], second[1]) == (first[0], first[1] + 1)
    with pytest.raises(ProducerFenced):
        broker.claim("assay-0", first)


@pytest.fixture
def group() -> Coordinator:
    def all_to_the_first(generation, members):
        return {members[0]: [0]}

    return Coordinator(VirtualLoop(), all_to_the_first, 6.0, 10.0, lambda partition, offset: None)


def test_a_commit_counts_until_the_next_generation_is_there(group):
    group.join("a")
    group.commit("a", 1, {0: 3})
    joining = group.join("b")
    group.commit("a", 1, {0: 5})  # it has yet to join again
    assert not joining.done()
    group.join("a")
    with pytest.raises(CommitFailedError):
        group.commit("a", 1, {0: 7})
    assert group.committed == {0: 5}


def test_a_silent_member_is_given_up(group):
    async def main() -> None:
        loop = group._loop
        group.join("a")
        await wait(loop, 4.0)
        assert group.heartbeat("a", 1)
        await wait(loop, 5.9)
        assert group.heartbeat("a", 1)
        await wait(loop, 6.1)
        with pytest.raises(UnknownMemberIdError):
            group.heartbeat("a", 1)

    group._loop.run(main())


async def wait(loop: VirtualLoop, seconds: float) -> None:
    until = loop.create_future()
    loop.call_later(seconds, until.set_result, None)
    await until


def test_a_crash_takes_the_last_writes_whole():
    disk = Disk(lambda partition, rows, offset: None)
    disk.write(0, {b"a": b"1"}, 1)
    disk.close()
    disk.write(0, {b"a": b"2", b"b": b"2"}, 3)
    disk.write(0, {b"a": b"3"}, 4)
    disk.crash(lambda partition: 0.5)
    assert (disk.rows(0), disk.offset(0)) == ({b"a": b"2", b"b": b"2"}, 3)
