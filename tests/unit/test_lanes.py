"""Copying one source partition: what was copied before a kill is not copied again, and what can't be known is refused."""

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from assay.schemas import limits
from assay.schemas.errors import PublishError, TopologyError
from assay.schemas.source import Origin, Source
from assay.streams import lanes
from assay.streams.lanes import Lane
from assay.streams.metrics import Metrics
from assay.streams.publisher import UNKNOWN
from assay.streams.settings import Settings

SOURCE = TopicPartition("transactions", 1)
COPIES, PARTITIONS, MS = "transactions-by-user", 2, 1_772_362_800_000


class Publisher:
    """Takes note of what it is given; fences lie at the ends of the copies."""

    def __init__(self, ends: dict[int, int]) -> None:
        self.ends, self.published = ends, dict[int, list[bytes]]()

    async def start(self) -> None: ...

    async def fence(self, claims: Any) -> dict[tuple[str, int], int]:
        return {(COPIES, partition): self.ends.get(partition, 0) for partition in claims}

    async def publish(self, batches: Any) -> None:
        for (_, partition), records in batches.items():
            self.published.setdefault(partition, []).extend(value for _, value, _ in records)


class Copies:
    """A reader of the copies that are there."""

    def __init__(self, records: list[ConsumerRecord[bytes, bytes]]) -> None:
        self._records, self._at = records, dict[TopicPartition, int]()

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._at = dict.fromkeys(partitions, 0)

    async def offsets_for_times(self, since: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        young = {where: [r.offset for r in self._of(where) if r.timestamp >= ms] for where, ms in since.items()}
        return {where: SimpleNamespace(offset=offsets[0]) if offsets else None for where, offsets in young.items()}

    def seek(self, where: TopicPartition, offset: int) -> None:
        self._at[where] = offset

    async def getmany(self, *wanted: TopicPartition, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        found = {where: [r for r in self._of(where) if r.offset >= self._at[where]] for where in wanted}
        self._at.update({where: records[-1].offset + 1 for where, records in found.items() if records})
        return {where: records for where, records in found.items() if records}

    async def position(self, where: TopicPartition) -> int:
        return self._at[where]

    def pause(self, *_: TopicPartition) -> None: ...

    def _of(self, where: TopicPartition) -> list[ConsumerRecord[bytes, bytes]]:
        return [record for record in self._records if record.partition == where.partition]


def copied(partition: int, offset: int, source: Source) -> ConsumerRecord[bytes, bytes]:
    ms = MS + source.offset
    headers = (("assay-origin", Origin(source, ms).header()),)
    return ConsumerRecord(COPIES, partition, offset, ms, 0, b"u", b"{}", None, 0, 0, headers)


def incoming(offset: int) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord(*SOURCE, offset, MS + offset, 1, None, b'{"user_id":"u-%d"}' % offset, None, 0, 0, ())


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A lane that has taken its partition over, with so many copies there."""

    async def make(*there: ConsumerRecord[bytes, bytes]) -> tuple[Lane, Publisher]:
        ends = {partition: sum(record.partition == partition for record in there) for partition in range(PARTITIONS)}

        async def claim(*_: Any) -> Any:
            return SimpleNamespace(producer_id=9, epoch=0)

        async def reader(*_: Any, **__: Any) -> Copies:
            return Copies(list(there))

        async def stop(_: Any) -> None: ...

        for name, fake in (("claim", claim), ("reader", reader), ("stop", stop)):
            monkeypatch.setattr(lanes, name, fake)
        publisher: Any = Publisher(ends)
        client: Any = None
        lane = Lane(SOURCE, Settings.load(rekey=True), client, {}, PARTITIONS, publisher, Metrics())
        await lane.take()
        return lane, publisher

    return make


async def test_a_fence_that_lies_nobody_knows_where_is_the_end(taken: Any) -> None:
    lane, publisher = await taken()
    publisher.ends = {0: 3, 1: UNKNOWN}
    with pytest.raises(PublishError, match="duplicate"):
        await lane.take()


async def first_append(first: int, end: int) -> int | None:
    return MS + first if first < end else None


async def test_what_was_copied_and_not_committed_is_left_out_whatever_lies_between(taken: Any) -> None:
    there = [
        copied(0, 0, Source(*SOURCE, 5)), copied(0, 1, Source("transactions", 0, 6)), copied(1, 0, Source(*SOURCE, 4)),
        copied(1, 1, Source(*SOURCE, 7)),
    ]  # fmt: skip
    lane, publisher = await taken(*there)
    await lane.go_on(5, 0, 9, first_append)
    await lane.copy([incoming(offset) for offset in range(5, 9)])
    assert sorted(value for values in publisher.published.values() for value in values) == [
        b'{"user_id":"u-6"}', b'{"user_id":"u-8"}',
    ]  # fmt: skip
    assert lane.next == 9


async def test_a_stranger_among_the_copies_stops_nobody(taken: Any) -> None:
    stranger = ConsumerRecord(COPIES, 0, 0, MS + 9, 0, b"u", b"{}", None, 0, 0, (("assay-origin", b"whatever"),))
    lane, publisher = await taken(stranger, copied(0, 1, Source(*SOURCE, 5)))
    await lane.go_on(5, 0, 7, first_append)
    await lane.copy([incoming(5), incoming(6)])
    assert [value for values in publisher.published.values() for value in values] == [b'{"user_id":"u-6"}']


async def test_where_nothing_is_committed_it_begins_at_the_beginning(taken: Any) -> None:
    lane, _ = await taken()
    await lane.go_on(None, 3, 9, first_append)
    assert lane.next == 3


@pytest.mark.parametrize("committed", [2, 10])
async def test_an_offset_outside_of_the_topic_is_refused(taken: Any, committed: int) -> None:
    lane, _ = await taken()
    with pytest.raises(TopologyError, match="outside of the topic"):
        await lane.go_on(committed, 3, 9, first_append)


async def test_i5_max_copies_read_back_one_more_is_refused(taken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_COPIES_READ_BACK", 3)
    for there, refused in ((3, False), (4, True)):
        lane, _ = await taken(*(copied(0, offset, Source(*SOURCE, offset)) for offset in range(there)))
        if refused:
            with pytest.raises(TopologyError, match="more was copied"):
                await lane.go_on(0, 0, 9, first_append)
        else:
            await lane.go_on(0, 0, 9, first_append)
