"""The profiles as a Faust Table: membership, recovery, standbys and rebalancing are Faust's; rows and writes are ours.

Line numbers are of faust-streaming 0.15.3. Recovery hands over whole fetches, each written in one batch with its offset.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import faust
from faust.stores.base import Store
from faust.types import TP

from assay.tables.changelog import InLog, check_recovered
from assay.tables.layouts import LAYOUTS
from assay.tables.profile import ROW_BYTES
from assay.tables.store import RowStore

TakeOver = Callable[[int, set[TP], set[TP]], Awaitable[bool]]  # (generation, active, standby) changelog partitions
TopicId = Callable[[str], Awaitable[str]]
STALE_POLL_S = 0.01


class ProfileStore(Store):
    """What Faust sees of `RowStore`: persisted offsets, and changelog fetches to be applied."""

    def __init__(self, url: Any, app: Any, table: Any, **kwargs: Any) -> None:
        super().__init__(url, app, table, **kwargs)
        self.data: dict[bytes, bytes] = {}  # Faust wants a dict; rows are never reached as table[key]
        self.rows = RowStore(Path(app.conf.tabledir), ROW_BYTES, LAYOUTS.current)

    def __bool__(self) -> bool:
        return True

    def persisted_offset(self, tp: TP) -> int | None:
        """Asked at each rebalance, for actives and standbys (recovery.py:230)."""
        return self.rows.offset(tp.partition)

    def set_persisted_offset(self, tp: TP, offset: int) -> None:
        raise NotImplementedError("rows and their offset are written together")

    async def need_active_standby_for(self, tp: TP) -> bool:
        return True

    def apply_changelog_batch(self, batch: Any, to_key: Any, to_value: Any) -> None:
        """Write fetches: the value of each event is the list of records of one fetch."""
        try:
            for event in batch:
                self._apply(event.message)
        except BaseException as error:  # recovery would log it and advance all the same (recovery.py:916)
            self.table.on_failure("a changelog could not be applied", error)

    def _apply(self, message: Any) -> None:
        recovery = self.app.tables.recovery
        if message.tp not in recovery.active_tps and message.tp not in recovery.standby_tps:
            return  # recovery hands over events of partitions that were given up (recovery.py:868)
        have = self.rows.offset(message.partition)
        # The seek repeats one record (recovery.py:768); others come late, after newer rows of ours.
        fresh = [(r.key, r.value) for r in message.value if have is None or r.offset > have]
        if fresh:
            self.rows.apply(message.partition, fresh, message.offset)

    async def on_rebalance(self, assigned: set[TP], revoked: set[TP], newly_assigned: set[TP], generation_id: int = 0) -> None:
        for tp in revoked:  # no longer ours, neither active nor standby
            if tp.topic == self.table.changelog_topic_name:
                self.rows.close(tp.partition)

    async def on_recovery_completed(self, active_tps: set[TP], standby_tps: set[TP]) -> None:
        """Nothing of its own: the table's take-over does what there is to do."""

    def reset_state(self) -> None:
        raise NotImplementedError("profiles are not thrown away in passing: stop the worker and remove its data directory")

    async def on_stop(self) -> None:
        self.rows.close()

    async def backup_partition(self, tp: Any, flush: bool = True, purge: bool = False, keep: int = 1) -> None:
        raise NotImplementedError("the changelog topic is the backup")

    def restore_backup(self, tp: Any, latest: bool = True, backup_id: int = 0) -> None:
        raise NotImplementedError("the changelog topic is the backup")


class ProfileTable(faust.Table):
    """The table, with the hook for taking partitions over that Faust awaits before the source is resumed.

    `take_over` says whether the partitions are ours; if the group has gone on without us, the next generation is waited for.
    Before it is asked, what was recovered is checked, with `topic_id` to tell a topic that was made anew.
    """

    take_over: TakeOver | None = None
    topic_id: TopicId | None = None
    on_failure: Callable[[str, BaseException], None]
    _taking_over: asyncio.Future[bool] | None = None

    @property
    def rows(self) -> RowStore:
        return self.data.rows  # type: ignore[no-any-return]

    def _new_store(self) -> ProfileStore:  # tables/base.py:196
        return ProfileStore(
            "rocksdb://", self.app, self, table_name=self.name, key_type=bytes, value_type=bytes,
            key_serializer="raw", value_serializer="raw", loop=self.loop,
        )  # fmt: skip

    async def on_recovery_completed(self, active_tps: set[TP], standby_tps: set[TP]) -> None:
        """Awaited after recovery, before the source is resumed (recovery.py:632-649).

        Faust neither cancels it when partitions are revoked nor keeps a stale one from resuming the flow if it ends between
        the revocation and the next assignment (the generation is still the old one, recovery.py:643). So the hook is a task
        that `abandon_take_over` cancels, and a stale one does not return before the generation has changed.
        """
        consumer, generation = self.app.consumer, self.app.consumer_generation_id
        revocations, ours = consumer.revocations, True
        try:
            await super().on_recovery_completed(active_tps, standby_tps)
            self._taking_over = asyncio.ensure_future(self._take_over(generation, set(active_tps), set(standby_tps)))
            await asyncio.wait([self._taking_over])
            if not self._taking_over.cancelled():
                ours = self._taking_over.result()
        except Exception as error:  # recovery would drop it (recovery.py:641) and resume
            self.on_failure("partitions could not be taken over", error)
        while (not ours or consumer.revocations != revocations) and self.app.consumer_generation_id == generation:
            await asyncio.sleep(STALE_POLL_S)

    async def abandon_take_over(self) -> None:
        """Partitions were revoked: stop a take-over that is still running."""
        if self._taking_over is not None and not self._taking_over.done():
            self._taking_over.cancel()
            await asyncio.wait([self._taking_over])

    async def _take_over(self, generation: int, active: set[TP], standby: set[TP]) -> bool:
        await self._check_recovered(active)
        return self.take_over is None or await self.take_over(generation, active, standby)

    async def _check_recovered(self, active: set[TP]) -> None:
        """Raises ChangelogError where the rows of these partitions are not all that the changelog has ever said."""
        if not active or self.topic_id is None:
            return
        topic_id = await self.topic_id(self.changelog_topic_name)
        earliest, ends = await self.app.consumer.earliest_offsets(*active), await self.app.consumer.highwaters(*active)
        for tp in sorted(active):
            self.rows.check(tp.partition)
            check_recovered(
                tp.partition,
                self.rows.on_disk(tp.partition),
                InLog(topic_id, earliest[tp], ends[tp]),
                self.rows.path(tp.partition),
            )
            self.rows.belongs_to(tp.partition, topic_id)
