"""Every topic of a deployment, read whole: from the beginning, on from where the last reading ended, without a group."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from .checker import Checker

FETCH_BYTES = 8 << 20
POLL_S, POLL_MS = 0.1, 100
READ_TIMEOUT_S = 120.0
CHANGELOG, REPLIES = "assay-profiles-changelog", "checkout.reply"


class Unsettled(AssertionError):
    """What was sent has not all been committed in time."""


class WholeLog:
    """Use it as an async context manager once the topics are there.

    Args:
        prefix: of the deployment's topics and group.
        partitions: of each topic.
    """

    def __init__(self, bootstrap: str, prefix: str, partitions: int) -> None:
        self._prefix, self._partitions = prefix, partitions
        self._admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest",
            max_partition_fetch_bytes=FETCH_BYTES, fetch_max_wait_ms=20,
        )  # fmt: skip
        self._next: dict[TopicPartition, int] = {}

    async def __aenter__(self) -> Self:
        await asyncio.gather(self._admin.start(), self._consumer.start())
        return self

    async def __aexit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        await asyncio.gather(self._admin.close(), self._consumer.stop())

    async def settled(self, within_s: float) -> None:
        """Return once the group has committed all that was sent. Raises Unsettled."""
        committed: Mapping[int, int] = {}
        ends: Mapping[TopicPartition, int] = {}
        try:
            async with asyncio.timeout(within_s):
                while not ends or any(committed.get(tp.partition, 0) < end for tp, end in ends.items()):
                    await asyncio.sleep(POLL_S)
                    try:
                        ends = await self._consumer.end_offsets(self._of("transactions"))
                        committed = await self._committed()
                    except KafkaError:  # its broker or its coordinator is on the way back
                        continue
        except TimeoutError:
            missing = {tp.partition: (committed.get(tp.partition, 0), end) for tp, end in ends.items()}
            raise Unsettled(f"not committed in {within_s:.0f} s; partition -> (committed, end): {missing}") from None

    async def read_on(self, checker: Checker) -> None:
        """Tell the checker what each topic holds that it has not been told."""
        async with asyncio.timeout(READ_TIMEOUT_S):
            await self._read("transactions", checker.transactions)
            await self._read("decisions", checker.decisions)
            await self._read("dead-letters", checker.dead_letters)
            await self._read("evidence", checker.evidence)
            await self._read(CHANGELOG, checker.changelog)
            await self._read(REPLIES, checker.replies)

    def rewind(self) -> None:
        """Read from the beginning next time."""
        self._next.clear()

    async def changelog_holes(self) -> int:
        """Offsets of the changelog that hold no record any more."""
        tps = self._of(CHANGELOG)
        held = dict.fromkeys(tps, 0)

        def count(records: Sequence[ConsumerRecord]) -> None:
            held[TopicPartition(records[0].topic, records[0].partition)] += len(records)

        kept = {tp: self._next.pop(tp, 0) for tp in tps}
        await self._read(CHANGELOG, count)
        ends = {tp: self._next[tp] for tp in tps}
        self._next |= kept
        return sum(ends[tp] - held[tp] for tp in tps)

    def name(self, topic: str) -> str:
        """Its full name."""
        return self._prefix + topic

    async def _read(self, topic: str, tell: Callable[[Sequence[ConsumerRecord]], None]) -> None:
        tps = self._of(topic)
        ends = await self._consumer.end_offsets(tps)
        self._consumer.assign(tps)
        for tp in tps:
            self._consumer.seek(tp, self._next.get(tp, 0))
        while behind := [tp for tp in tps if await self._consumer.position(tp) < ends[tp]]:
            for records in (await self._consumer.getmany(*behind, timeout_ms=POLL_MS)).values():
                await asyncio.to_thread(tell, records)
        self._next |= {tp: await self._consumer.position(tp) for tp in tps}

    def _of(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(self.name(topic), partition) for partition in range(self._partitions)]

    async def _committed(self) -> dict[int, int]:
        found = await self._admin.list_consumer_group_offsets(self.name("assay"))
        return {tp.partition: one.offset for tp, one in found.items() if tp.topic == self.name("transactions")}
