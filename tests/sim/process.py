"""One process of a worker: what Faust does around the core. Membership, recovery, fetches, commits, giving partitions up.

It follows `streams.transport` and `tables.profile_table` step by step, where those override Faust.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from aiokafka.errors import CommitFailedError, UnknownMemberIdError

from assay.agents.core import Core
from assay.agents.ports import Ports
from assay.schemas.source import SourceRecord
from assay.streams.decision_reader import DecisionReader
from assay.streams.ending import end_process
from assay.streams.micro_batches import WaitingRecords
from assay.streams.ownership import Ownership
from assay.streams.publisher import Publisher
from assay.streams.read_back import LogReader

from .broker import EPOCH_S
from .checks import CHANGELOG, DEAD_LETTERS, DECISIONS, TRANSACTIONS
from .group import Assignment
from .loop import Life
from .ports import GROUP, CheckedEvidence, CheckedReplies, SimulatedEntities, SimulatedSourceLog

if TYPE_CHECKING:
    from .world import World

DRAIN_S = 4.0
HEARTBEAT_S = 2.0
LOOKUP_S = 10.0
RECOVERY_RECORDS = 16
FETCH_RECORDS = 12
MAX_WAITING = 10
COMMIT_PAUSE_S = 0.005
BACK_PRESSURE_PAUSE_S = 0.001


@dataclass(frozen=True, slots=True)
class Message:
    """A fetch of one partition, as the transport hands it over."""

    partition: int
    value: list[SourceRecord]
    generation_id: int


class Process:
    """A worker from its start to its end.

    Args:
        disk: outlives it.
    """

    def __init__(self, world: "World", life: Life, disk: Any) -> None:
        self._world, self.life, self.disk = world, life, disk
        self._member, self._joins = "", 0
        self._given = Assignment(-1, [])
        self._finished: dict[int, int] = {}
        self._acknowledged: dict[int, int] = {}
        self._fetched: asyncio.Queue[Message] = asyncio.Queue()
        self._on_its_way = 0  # records of the fetch that the flow is about to take in
        self._moved = asyncio.Event()  # the group is going on to another generation, or we stop
        self.stopping = self.loses_fetch = self.has_lost = self._joining = False
        self.waiting = WaitingRecords(world.loop.time, max_records=MAX_WAITING)
        self.core = self._core()

    def _core(self) -> Core:
        world, settings = self._world, self._world.settings
        options = {"bootstrap_servers": "memory", "network": world.network}
        deadline, max_bytes = world.plan.publish_s, dict.fromkeys((DECISIONS, DEAD_LETTERS, CHANGELOG), world.plan.batch_bytes)
        self._log = Publisher(options, owned=(DECISIONS, DEAD_LETTERS), deadline=deadline, max_bytes=max_bytes)
        self._changelog = Publisher(options, owned=(CHANGELOG,), deadline=deadline, max_bytes=max_bytes)
        self._ownership = Ownership(options, "assay", (self._log, self._changelog), deadline)
        source = SimulatedSourceLog(options, TRANSACTIONS, world.network.wire, world.group, deadline)
        source.member = lambda: (self._member, self._given.generation)
        ports = Ports(
            membership=self,
            ownership=self._ownership,
            log=self._log,
            changelog=self._changelog,
            source=source,
            decisions=DecisionReader(options, DECISIONS, LOOKUP_S),
            reader=LogReader(options, TRANSACTIONS, DECISIONS, DEAD_LETTERS, deadline),
            rows=self.disk,
            entities=SimulatedEntities(lambda: world.redis_takes(self.life.name)),
            replies=CheckedReplies(world.checks.replied),
            evidence=CheckedEvidence(world.checks.judged),
        )
        core = Core(
            settings, world.in_force, ports, world.metrics,
            name=self.life.name, changelog=CHANGELOG, partitions=world.plan.partitions, waiting=self.waiting,
        )  # fmt: skip
        core.answers._clock = lambda: EPOCH_S + world.loop.time()
        core._recent._most = core.profiles._rows._max_rows = world.plan.remembered
        return core

    # -- what the core asks of its membership ---------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        return self._given.generation

    def assigned(self) -> set[int]:
        return set(self._given.partitions)

    def committed(self, partition: int) -> int:
        return self._acknowledged[partition]

    def commit(self, partition: int, next_offset: int) -> None:
        self._finished[partition] = next_offset

    def begun(self, starts: Mapping[int, int]) -> None:
        self._acknowledged.update(starts)

    def owns(self, partition: int) -> bool:
        """Whether it has taken the partition over."""
        return partition in self._acknowledged

    @property
    def fetched(self) -> int:
        """Records that were fetched and not yet taken."""
        queued = sum(len(message.value) for message in self._fetched._queue)  # type: ignore[attr-defined]
        return self.waiting.count + queued + self._on_its_way

    # -- its life -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it is stopped. Whatever fails ends it."""
        try:
            await asyncio.gather(self._log.start(), self._changelog.start(), self._ownership.start())
            self.core.start()
            tasks = [asyncio.ensure_future(each) for each in (self.core.run(self), self._heartbeats(), self._commits())]
            while not self.stopping:
                await self._join()
                await self._own()
                await self._give_up()
            await self._ask(lambda: self._world.group.leave(self._member))
            await asyncio.gather(self._log.close(), self._changelog.close(), self._ownership.close())
        except Exception as error:
            end_process("the worker failed", error)
        for task in tasks:
            task.cancel()
        self.core.close()

    def stop(self) -> None:
        """SIGTERM."""
        self.stopping = True
        asyncio.get_running_loop().call_soon(self._moved.set, context=self.life.enter())

    def renew(self) -> None:
        """As `Worker._renew_claims`, every six hours."""

        async def renew() -> None:
            try:
                await self._ownership.renew()
            except Exception as error:
                end_process("claims could not be renewed", error)

        asyncio.get_running_loop().create_task(renew(), context=self.life.enter())

    async def events(self) -> AsyncIterator[Any]:
        """The stream of fetches."""
        while True:
            self._on_its_way = 0
            message = await self._fetched.get()
            self._on_its_way = len(message.value)
            yield SimpleNamespace(message=message)

    async def _join(self) -> None:
        if not self._member:
            self._joins += 1
            self._member = f"{self.life.name}/{self._joins}"
        self._joining = True
        joining = await self._ask(lambda: self._world.group.join(self._member))
        self._given = await joining
        self._joining = False
        if not self.stopping:
            self._moved.clear()
        self._world.given(self, self._given)

    async def _own(self) -> None:
        """From an assignment until the group moves on."""
        moved = asyncio.ensure_future(self._moved.wait())
        owning = asyncio.ensure_future(self._recover_and_take_over())
        await asyncio.wait([moved, owning], return_when=asyncio.FIRST_COMPLETED)
        if not owning.done():
            owning.cancel()  # as `ProfileTable.abandon_take_over`
            await asyncio.wait([owning])
        elif owning.result():
            fetches = [asyncio.ensure_future(self._fetch(p, self._acknowledged[p])) for p in self._given.partitions]
            await moved
            for fetch in fetches:
                fetch.cancel()
        await moved

    async def _recover_and_take_over(self) -> bool:
        for partition in self._given.partitions:
            await self._recover(partition)
        return await self.core.take_over(self._given.generation, self.assigned())

    async def _recover(self, partition: int) -> None:
        log, have = self._world.network.broker.logs[CHANGELOG, partition], self.disk.offset(partition)
        offset = 0 if have is None else have + 1
        end = await self._ask(lambda: log.end, f"{CHANGELOG}/{partition}")
        while offset < end:
            records, offset = await self._ask(partial(log.read, offset, RECOVERY_RECORDS), f"{CHANGELOG}/{partition}")
            if records:
                self.disk.apply(partition, [(record.key, record.value) for record in records], records[-1].offset)

    async def _fetch(self, partition: int, offset: int) -> None:
        generation, log = self._given.generation, self._world.network.broker.logs[TRANSACTIONS, partition]
        while True:
            await log.beyond(offset)
            records, offset = await self._ask(partial(log.read, offset, FETCH_RECORDS), f"{TRANSACTIONS}/{partition}")
            if self.loses_fetch and records:
                self.loses_fetch, self.has_lost = False, True
                continue
            while self.waiting.full:
                await asyncio.sleep(BACK_PRESSURE_PAUSE_S)
            if records:
                self.waiting.expect(partition, records)
                self._fetched.put_nowait(Message(partition, list(records), generation))
                self._world.check_bounds()

    async def _give_up(self) -> None:
        """As `streams.transport.Consumer.on_partitions_revoked`."""
        self.waiting.close()
        try:
            await asyncio.wait_for(self._drain_and_commit(), DRAIN_S)
        except Exception as error:
            end_process("partitions could not be given up in order", error)
        for partition in self._given.partitions:
            self.disk.close(partition)
        self._finished, self._acknowledged = {}, {}

    async def _drain_and_commit(self) -> None:
        await self.core.drain()
        while any(self._acknowledged.get(p) != offset for p, offset in self._finished.items()):
            await self._commit()
            await asyncio.sleep(COMMIT_PAUSE_S)

    # -- in the background ----------------------------------------------------------------------------------------------

    async def _commits(self) -> None:
        while True:
            await asyncio.sleep(self._world.plan.commit_s)
            await self._commit()

    async def _commit(self) -> None:
        due = {p: offset for p, offset in self._finished.items() if offset > self._acknowledged.get(p, -1)}
        if due:
            name, generation = self._member, self._given.generation
            with contextlib.suppress(CommitFailedError):
                await self._ask(partial(self._world.group.commit, name, generation, due))
                self._acknowledged.update({p: offset for p, offset in due.items() if p in self._acknowledged})

    async def _heartbeats(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            name, generation = self._member, self._given.generation
            if self._joining or not name:
                continue
            try:
                goes_on = await self._ask(partial(self._world.group.heartbeat, name, generation))
            except UnknownMemberIdError:
                goes_on, self._member = False, ""
            if not (goes_on or self._joining) and generation == self._given.generation:
                self._moved.set()

    async def _ask(self, act: Any, link: str = GROUP) -> Any:
        return await self._world.network.wire.ask(link, act)
