"""Steps 7 and 8, behind the answers: the rows of published micro-batches are made durable, then their source is acknowledged.

Micro-batches that wait are taken together: a user's newest row stands for the older ones, and one write for many.
"""

import asyncio
from collections.abc import Callable

from assay.agents.profiles import Profiles
from assay.schemas import limits
from assay.streams.ending import end_process
from assay.streams.metrics import Metrics
from assay.streams.micro_batches import MicroBatch
from assay.tables.working_rows import Folded

LINGER_S = 0.01  # nobody waits for a row: let a few micro-batches gather


class Memory:
    """Takes micro-batches in the order of their decisions, once those are acknowledged (invariant I3).

    Args:
        acknowledge: called for each, in order, when its rows are durable.
    """

    def __init__(self, profiles: Profiles, acknowledge: Callable[[MicroBatch], None], metrics: Metrics) -> None:
        self._profiles, self._acknowledge, self._metrics = profiles, acknowledge, metrics
        self._published: asyncio.Queue[tuple[MicroBatch, Folded]] = asyncio.Queue(limits.MAX_UNREMEMBERED_BATCHES)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def put(self, batch: MicroBatch, folded: Folded) -> None:
        """A micro-batch whose decisions are acknowledged; waits while too many are not yet durable."""
        await self._published.put((batch, folded))

    async def join(self) -> None:
        """Return once all of them are durable and acknowledged."""
        await self._published.join()

    async def _run(self) -> None:
        try:
            while True:
                waiting = [await self._published.get()]
                await asyncio.sleep(LINGER_S)
                while not self._published.empty():
                    waiting.append(self._published.get_nowait())
                reached = {p: part[-1].offset + 1 for batch, _ in waiting for p, part in batch.parts.items()}
                with self._metrics.timed("remember"):
                    await self._profiles.remember([folded for _, folded in waiting], reached)
                for batch, _ in waiting:
                    self._acknowledge(batch)
                    self._published.task_done()
        except Exception as error:
            end_process("rows could not be made durable", error)
