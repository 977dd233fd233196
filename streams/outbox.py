"""What leaves off the answer path: replies, which follow acknowledged decisions, and evidence.

A bounded queue with a publisher of its own, so that neither delays a decision. Records are made when their turn comes.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from assay.schemas.errors import PublishError
from assay.schemas.source import OutRecord
from assay.streams.publisher import Batches, Publisher

log = logging.getLogger("assay.outbox")

RESTART_PAUSE_S = 1.0


class Outbox:
    """Publishes batches in order, those that wait together; a failure loses them, is counted, and never stops the worker.

    Args:
        publisher: makes a publisher; asked again after a failure.
        max_batches: that wait at most.
        linger: seconds to let batches gather, where nobody waits for them: many small ones cost more than one large one.
        on_result: called with "sent" or "failed" and a number of records.
    """

    def __init__(
        self,
        publisher: Callable[[], Publisher],
        max_batches: int,
        *,
        linger: float = 0.0,
        on_result: Callable[[str, int], None] = lambda *_: None,
    ) -> None:
        self._make, self._linger, self._on_result = publisher, linger, on_result
        self._publisher: Publisher | None = None
        self._queue: asyncio.Queue[Callable[[], Awaitable[Batches]]] = asyncio.Queue(max_batches)
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

    async def put(self, batch: Callable[[], Awaitable[Batches]]) -> None:
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
            waiting = [await self._queue.get()]
            if self._linger:
                await asyncio.sleep(self._linger)
            while not self._queue.empty():
                waiting.append(self._queue.get_nowait())
            try:
                await self._send(waiting)
            except Exception:
                log.exception("batches off the answer path could not be made")
            finally:
                for _ in waiting:
                    self._queue.task_done()

    async def _send(self, waiting: list[Callable[[], Awaitable[Batches]]]) -> None:
        together: dict[tuple[str, int], list[OutRecord]] = {}
        for make in waiting:
            for where, records in (await make()).items():
                together.setdefault(where, []).extend(records)
        count = sum(map(len, together.values()))
        try:
            await self.publisher.publish(together)
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
