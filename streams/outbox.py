"""What leaves off the answer path: replies, which follow acknowledged decisions, and evidence.

A bounded queue with a publisher of its own, so that neither delays a decision. Records are made when their turn comes.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from assay.schemas.errors import PublishError
from assay.schemas.source import OutRecord
from assay.streams.publisher import Publisher

log = logging.getLogger("assay.outbox")

Batch = Mapping[tuple[str, int], Sequence[OutRecord]]  # {(topic, partition): records}
RESTART_PAUSE_S = 1.0


class Outbox:
    """Publishes batches in order, one after another; a failure loses the batch, is counted, and never stops the worker.

    Args:
        publisher: makes a publisher; asked again after a failure.
        max_batches: that wait at most.
        on_result: called with "sent" or "failed" and a number of records.
    """

    def __init__(
        self, publisher: Callable[[], Publisher], max_batches: int, on_result: Callable[[str, int], None] = lambda *_: None
    ) -> None:
        self._make, self._on_result = publisher, on_result
        self._publisher: Publisher | None = None
        self._queue: asyncio.Queue[Callable[[], Awaitable[Batch]]] = asyncio.Queue(max_batches)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._publisher = self._make()
        await self._publisher.start()
        self._task = asyncio.ensure_future(self._run())

    async def close(self, timeout: float) -> None:
        """Send what waits, for at most so many seconds, then close."""
        if self._task is not None and not self._task.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._queue.join(), timeout)
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._publisher is not None:
            await self._publisher.close()

    async def put(self, batch: Callable[[], Awaitable[Batch]]) -> None:
        """Queue a batch; waits while the queue is full, so that nothing is lost to a burst."""
        await self._queue.put(batch)

    async def join(self) -> None:
        """Return once nothing waits."""
        await self._queue.join()

    @property
    def publisher(self) -> Publisher:
        if self._publisher is None:
            raise PublishError("the outbox is not started")
        return self._publisher

    async def _run(self) -> None:
        while True:
            batch = await self._queue.get()
            try:
                await self._send(await batch())
            except Exception:
                log.exception("a batch off the answer path could not be made")
            finally:
                self._queue.task_done()

    async def _send(self, batch: Batch) -> None:
        count = sum(map(len, batch.values()))
        try:
            await asyncio.gather(
                *(self.publisher.publish(topic, p, records) for (topic, p), records in batch.items() if records)
            )
            self._on_result("sent", count)
        except PublishError as error:
            self._on_result("failed", count)
            log.warning("%d records off the answer path were lost: %s", count, error)
            await self._restart()

    async def _restart(self) -> None:
        """A publisher is done for after its first failure: take a new one."""
        while True:
            if self._publisher is not None:
                await self._publisher.close()
            self._publisher = self._make()
            try:
                await self._publisher.start()
                return
            except PublishError as error:
                log.warning("no publisher off the answer path: %s", error)
                await asyncio.sleep(RESTART_PAUSE_S)
