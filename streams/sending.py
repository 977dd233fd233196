"""Sends records in batches that are made ahead: of a partition, all that gathered while the batch before it was leaving.

aiokafka's `send` takes some 40 us a record, of which most is not its encoding; appended to a batch it takes 3.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from aiokafka import AIOKafkaProducer

from assay.schemas.source import OutRecord

Item = TypeVar("Item")


class Sending(Generic[Item]):
    """One partition. `run` it as a task.

    Args:
        make: the record of an item, when its turn comes; None where it is to be left out by then.
        ended: called with the items of a batch once it is acknowledged, or with why it is not.
    """

    def __init__(
        self,
        producer: AIOKafkaProducer,
        topic: str,
        partition: int,
        *,
        make: Callable[[Item], OutRecord | None],
        ended: Callable[[Sequence[Item], BaseException | None], None],
    ) -> None:
        self._producer, self._topic, self._partition = producer, topic, partition
        self._make, self._ended = make, ended
        self._wake = asyncio.Event()
        self.due: list[Item] = []

    def put(self, item: Item) -> None:
        """It leaves with the next batch."""
        self.due.append(item)
        self._wake.set()

    async def run(self) -> None:
        """Send what is due, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self.due:
                await self._send()

    async def _send(self) -> None:
        batch, items, seen = self._producer.create_batch(), list[Item](), 0
        for item in self.due:
            try:
                if (record := self._make(item)) is not None:
                    key, value, headers = record
                    # A first record always fits, however large: the broker says whether it takes it.
                    if batch.append(timestamp=None, key=key, value=value, headers=headers) is None:
                        break
                    items.append(item)
            except Exception as error:  # what is no record costs only itself
                self._ended([item], error)
            seen += 1
        del self.due[:seen]
        if not items:
            return
        batch.close()
        try:
            future = await self._producer.send_batch(batch, self._topic, partition=self._partition)
        except Exception as error:
            self._ended(items, error)
            return
        future.add_done_callback(lambda done: self._ended(items, _failure(done)))


def _failure(done: "asyncio.Future[Any]") -> BaseException | None:
    return asyncio.CancelledError() if done.cancelled() else done.exception()
