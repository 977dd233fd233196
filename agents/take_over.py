"""Taking partitions over, and giving them up: what happens between Faust's recovery and the first record.

The fence and the read-back of what was published after the commit belong into `take_over`, before the starts are read.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from faust.types import TP

from assay.schemas.errors import TopologyError

log = logging.getLogger("assay.worker")


class Log(Protocol):
    """What is asked of the consumer about source partitions: {partition: offset}."""

    async def committed(self, partitions: set[int]) -> Mapping[int, int | None]: ...
    async def earliest(self, partitions: set[int]) -> Mapping[int, int]: ...
    async def ends(self, partitions: set[int]) -> Mapping[int, int]: ...


class TakeOver:
    """Makes sure where each partition goes on, and hands that to whoever keeps state by partition.

    Args:
        assigned: the source partitions that the group has given this worker.
        begin: called with {partition: next source offset} once scoring may begin.
    """

    def __init__(
        self, log_: Log, assigned: Callable[[], set[int]], begin: Callable[[Mapping[int, int]], Awaitable[None]]
    ) -> None:
        self._log, self._assigned, self._begin = log_, assigned, begin

    async def __call__(self, generation: int, active: set[TP], standby: set[TP]) -> bool:
        """Faust's recovery of the changelog partitions `active` is complete. Raises TopologyError."""
        changelogs, sources = {tp.partition for tp in active}, self._assigned()
        if changelogs != sources:
            raise TopologyError(
                "transactions and profile changelog are not assigned together",
                expected=f"changelog partitions {sorted(sources)}",
                got=f"{sorted(changelogs)}",
                mend="give both topics the same number of partitions, or start anew under another ASSAY_TOPIC_PREFIX",
            )
        starts = await self._starts(sources)
        log.info("taken over in generation %d: %s", generation, starts)
        await self._begin(starts)
        return True

    async def _starts(self, partitions: set[int]) -> dict[int, int]:
        committed, earliest, ends = (
            await self._log.committed(partitions), await self._log.earliest(partitions), await self._log.ends(partitions),
        )  # fmt: skip
        starts = {}
        for partition in partitions:
            offset = committed[partition]
            if offset is not None and not earliest[partition] <= offset <= ends[partition]:
                raise TopologyError(
                    f"partition {partition}: the committed offset is outside of the transactions topic, "
                    "which was recreated, or whose records expired before they were scored",
                    expected=f"{earliest[partition]} to {ends[partition]}",
                    got=str(offset),
                    mend="start anew under another ASSAY_TOPIC_PREFIX, or set the group's offset by hand and take the loss",
                )
            starts[partition] = earliest[partition] if offset is None else offset
        return starts
