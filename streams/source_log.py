"""What the worker's own consumer knows of the source partitions: committed, earliest and end offsets."""

from collections.abc import Mapping
from typing import Any

from faust.types import TP


class SourceLog:
    """Asks through Faust's consumer thread, so that the answers carry the group membership of this worker."""

    def __init__(self, app: Any, topic: str) -> None:
        self._app, self._topic = app, topic

    async def committed(self, partitions: set[int]) -> Mapping[int, int | None]:
        """The group's committed offsets; None where there is none."""
        thread = self._app.consumer._thread
        consumer = thread._ensure_consumer()
        return {p: await thread.call_thread(consumer.committed, TP(self._topic, p)) for p in partitions}

    async def earliest(self, partitions: set[int]) -> Mapping[int, int]:
        """The offsets of the first records that are still there."""
        found = await self._app.consumer.earliest_offsets(*(TP(self._topic, p) for p in partitions))
        return {tp.partition: offset for tp, offset in found.items()}

    async def ends(self, partitions: set[int]) -> Mapping[int, int]:
        """The offsets after the last records."""
        found = await self._app.consumer.highwaters(*(TP(self._topic, p) for p in partitions))
        return {tp.partition: offset for tp, offset in found.items()}
