"""What leaves off the answer path: replies, which follow acknowledged decisions, and evidence.

A bounded queue in front of a sender of its own. It never holds up the flow: when the queue is full or the sender fails, what
is lost is counted, and the decision stands where it was published (invariant I6).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from assay.schemas.errors import PublishError
from assay.streams.publisher import Batches, Publisher

log = logging.getLogger("assay.outbox")

Make = Callable[[], Awaitable[Batches]]  # records are made when their turn comes, not while somebody waits


class Outbox:
    """Sends batches in order, those that wait together.

    Args:
        send: sends records of several topics and partitions; deals with its own failures.
        max_batches: that wait at most.
        lost: called with a number of batches that did not fit.
        linger: seconds to let batches gather, where nobody waits for them: many small ones cost more than one large one.
    """

    def __init__(
        self,
        send: Callable[[Batches], Awaitable[None]],
        max_batches: int,
        *,
        lost: Callable[[int], None],
        linger: float = 0.0,
    ) -> None:
        self._send, self._lost, self._linger = send, lost, linger
        self._queue: asyncio.Queue[Make] = asyncio.Queue(max_batches)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def close(self, within_s: float) -> None:
        """Send what waits, for at most so many seconds; the rest is lost, and counted."""
        if self._task is None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._queue.join(), within_s)
        self._task.cancel()
        await asyncio.wait([self._task])
        self._lost(self._queue.qsize())

    def offer(self, make: Make) -> None:
        """Queue a batch, or lose and count it where the queue is full."""
        try:
            self._queue.put_nowait(make)
        except asyncio.QueueFull:
            self._lost(1)

    async def _run(self) -> None:
        while True:
            waiting = [await self._queue.get()]
            if self._linger:
                await asyncio.sleep(self._linger)
            while not self._queue.empty():
                waiting.append(self._queue.get_nowait())
            try:
                await self._send(await _together(waiting))
            except Exception:
                log.exception("batches off the answer path could not be made")
                self._lost(len(waiting))
            finally:
                for _ in waiting:
                    self._queue.task_done()


async def _together(waiting: list[Make]) -> Batches:
    together: dict[tuple[str, int], list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]] = {}
    for make in waiting:
        for where, records in (await make()).items():
            together.setdefault(where, []).extend(records)
    return together


class LossyPublisher:
    """A publisher that is replaced after a failure: for records that may be lost, if it is counted.

    Args:
        make: a publisher, not yet started.
        failed: called with a number of records that were lost.
    """

    def __init__(self, make: Callable[[], Publisher], failed: Callable[[int], None]) -> None:
        self._make, self._failed = make, failed
        self._publisher: Publisher | None = None

    async def send(self, batches: Batches) -> None:
        """Publish, or lose and count."""
        try:
            await self.publish(batches)
        except PublishError as error:
            count = sum(map(len, batches.values()))
            log.warning("%d records off the answer path were lost: %s", count, error)
            self._failed(count)

    async def publish(self, batches: Batches) -> None:
        """For what may not be lost: raises PublishError, and the caller tries again."""
        try:
            publisher = await self._started()
            await publisher.publish(batches)
        except PublishError:
            await self.close()
            raise

    async def close(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            await publisher.close()

    async def _started(self) -> Publisher:
        if self._publisher is None:
            publisher = self._make()
            try:
                await publisher.start()
            except PublishError:
                await publisher.close()
                raise
            self._publisher = publisher
        return self._publisher
