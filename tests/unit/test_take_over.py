"""Taking partitions over: in which order, where each goes on, and what is refused instead of being skipped or judged anew."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from assay.agents.take_over import TakeOver
from assay.schemas.errors import ChangelogError, TopologyError
from assay.schemas.source import SourceTopic
from assay.streams.metrics import Metrics
from assay.streams.read_back import ReadBack, Said, Uncommitted
from assay.tables.digests import OFFLINE
from assay.tables.partition_state import PartitionState

SETTINGS = SimpleNamespace(
    transactions="transactions", decisions="decisions", dead_letters="dead-letters", digests=lambda: OFFLINE
)
LOG = "id id"
STATE = PartitionState("id", 2, 40, 45, log_id=LOG, fingerprint=OFFLINE.fingerprint)
APPENDED_MS = 1_767_225_600_000
FOUND = {0: ReadBack({43: Said(b"{}")}, {44})}


@dataclass
class World:
    """Every port of the take-over at once; notes what is asked of it, in order."""

    committed: int | None = 42
    earliest: int = 0
    end: int = 100
    state: PartitionState | None = STATE
    member: bool = True
    assigned: set[int] = field(default_factory=lambda: {0})
    calls: list[str] = field(default_factory=list)
    confirmed: dict[int, int] = field(default_factory=dict)
    wanted: dict[int, Uncommitted] = field(default_factory=dict)
    begun: tuple[Any, ...] = ()

    async def take_over(self, changelogs: set[int] | None = None) -> bool:
        source = SimpleNamespace(
            committed=self._each("committed", lambda: self.committed),
            earliest=self._each("earliest", lambda: self.earliest),
            readable=self._each("readable", lambda: self.end),
            confirm=self._confirm,
            first_append=self._first_append,
        )
        ports = SimpleNamespace(
            membership=SimpleNamespace(assigned=lambda: self.assigned, begun=lambda starts: self.calls.append("ready")),
            ownership=SimpleNamespace(take=self._take, topic_id=self._topic_id),
            source=source,
            rows=SimpleNamespace(state=lambda partition: self.state),
            reader=SimpleNamespace(read_back=self._read_back),
        )
        return await TakeOver(ports, SETTINGS, Metrics(), 2, self._begin)(
            7, self.assigned if changelogs is None else changelogs
        )

    def _each(self, name: str, value):
        async def ask(partitions):
            self.calls.append(name)
            return dict.fromkeys(partitions, value())

        return ask

    async def _take(self, partitions):
        self.calls.append("fence")
        return {(topic, p): 1_000 + p for topic in ("decisions", "dead-letters", "changelog") for p in partitions}

    async def _topic_id(self, topic: str) -> str:
        return "id"

    async def _confirm(self, offsets) -> bool:
        self.calls.append("confirm")
        self.confirmed = dict(offsets)
        return self.member

    async def _first_append(self, partition: int, first: int, end: int) -> int | None:
        return APPENDED_MS if first < end else None

    async def _read_back(self, wanted):
        self.calls.append("read back")
        self.wanted = dict(wanted)
        return FOUND

    async def _begin(self, topic, starts, found) -> None:
        self.calls.append("begin")
        self.begun = (topic, dict(starts), found)


async def test_i3_former_owners_are_fenced_before_anything_is_asked_and_the_group_confirms_before_anything_is_read_back():
    world = World()
    assert await world.take_over()
    assert world.calls == ["fence", "committed", "earliest", "readable", "confirm", "read back", "begin"]


async def test_it_goes_on_at_the_commit_with_what_was_said_after_it():
    world = World()
    await world.take_over()
    assert world.begun == (SourceTopic("transactions", "id", 2, LOG), {0: 42}, FOUND)
    assert world.confirmed == {0: 42}
    assert world.wanted == {0: Uncommitted(42, APPENDED_MS, 1_000, 1_000)}


async def test_a_worker_without_partitions_is_ready_and_asks_nothing():
    world = World(assigned=set())
    assert await world.take_over()
    assert world.calls == ["ready"]


async def test_nothing_is_read_back_where_everything_is_committed():
    world = World(committed=42, end=42)
    await world.take_over()
    assert world.wanted == {}


async def test_i3_a_sleeper_that_the_group_has_gone_on_without_does_not_begin():
    world = World(member=False)
    assert not await world.take_over()
    assert world.calls[-1] == "confirm"


async def test_a_partition_that_nobody_has_scored_begins_at_the_earliest_record():
    world = World(committed=None, earliest=7, state=None)
    await world.take_over()
    assert world.confirmed == {0: 7}


async def test_a_worker_that_ended_before_its_first_rows_begins_again():
    world = World(committed=7, earliest=7, state=None)
    assert await world.take_over()


async def test_i1_where_the_commit_has_expired_the_state_still_knows_it():
    world = World(committed=None)
    await world.take_over()
    assert world.confirmed == {0: 40}


REFUSED = {
    "records expired before they were scored": (World(earliest=43), "outside of the transactions topic"),
    "records were deleted": (World(end=41), "outside of the transactions topic"),
    "the topic was made anew": (World(state=replace(STATE, topic_id="another")), "made anew"),
    "decisions were made anew": (World(state=replace(STATE, log_id="id another")), "what was said is gone"),
    "partitions were added": (World(state=replace(STATE, partitions=1)), "number of partitions"),
    "the key is another": (World(state=replace(STATE, fingerprint="of another")), "another ASSAY_HASH_KEY"),
    "there was no key yet": (World(state=replace(STATE, fingerprint="")), "another ASSAY_HASH_KEY"),
    "the offset was set back": (World(committed=39), "set by hand, back"),
    "the offset was set forward": (World(committed=46), "set by hand, past"),
    "the changelog is gone": (World(state=None), "the profiles are gone"),
}


@pytest.mark.parametrize(("world", "why"), REFUSED.values(), ids=REFUSED)
async def test_i1_what_would_be_judged_anew_or_skipped_is_refused_with_the_way_out(world: World, why: str):
    with pytest.raises((TopologyError, ChangelogError), match=rf"(?s){why}.*assay rebuild"):
        await world.take_over()
    assert "begin" not in world.calls
    assert "confirm" not in world.calls


async def test_source_and_changelog_must_come_together():
    with pytest.raises(TopologyError, match="not assigned together"):
        await World(assigned={0, 1}).take_over({0})
