"""Taking partitions over: where each goes on, and what is refused instead of being skipped or judged anew."""

import pytest
from faust.types import TP

from assay.agents.take_over import TakeOver
from assay.schemas.errors import TopologyError


class Log:
    def __init__(self, committed, earliest=0, end=100) -> None:
        self._committed, self._earliest, self._end = committed, earliest, end

    async def committed(self, partitions):
        return dict.fromkeys(partitions, self._committed)

    async def earliest(self, partitions):
        return dict.fromkeys(partitions, self._earliest)

    async def ends(self, partitions):
        return dict.fromkeys(partitions, self._end)


async def taken(log: Log, sources: set[int], changelogs: set[int]) -> dict[int, int]:
    begun: dict[int, int] = {}

    async def begin(starts) -> None:
        begun.update(starts)

    await TakeOver(log, lambda: sources, begin)(1, {TP("changelog", p) for p in changelogs}, set())
    return begun


async def test_it_goes_on_at_the_commit():
    assert await taken(Log(committed=42), {0, 1}, {0, 1}) == {0: 42, 1: 42}


async def test_without_a_commit_it_begins_at_the_earliest_record():
    assert await taken(Log(committed=None, earliest=7), {0}, {0}) == {0: 7}


@pytest.mark.parametrize(("committed", "earliest", "end"), [(5, 10, 100), (101, 0, 100)], ids=["expired", "recreated"])
async def test_i1_a_commit_outside_of_the_topic_is_refused(committed, earliest, end):
    with pytest.raises(TopologyError, match="outside of the transactions topic"):
        await taken(Log(committed, earliest, end), {0}, {0})


async def test_source_and_changelog_must_come_together():
    with pytest.raises(TopologyError, match="not assigned together"):
        await taken(Log(committed=0), {0, 1}, {0})
