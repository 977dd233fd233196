"""One deployment and its worker, to be changed behind the worker's back while that is stopped."""

import asyncio
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import CommitFailedError

from assay.streams.ending import EXIT_NOT_STARTED

from .topics import Topics
from .worker_process import WorkerProcess

ENDS_WITHIN_S = 60


@dataclass
class Deployment:
    """Topics that a worker has scored, stopped in good order."""

    bootstrap: str
    topics: Topics
    worker: WorkerProcess
    admin: AIOKafkaAdminClient

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topics.name("transactions"), 0)

    async def committed(self) -> int:
        offsets = await self.admin.list_consumer_group_offsets(self.topics.name("assay"))
        return int(offsets[self.source].offset)

    async def commit(self, offset: int) -> None:
        """As an operator does by hand, while no worker runs."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=self.topics.name("assay"), enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign([self.source])
            async with asyncio.timeout(ENDS_WITHIN_S):
                while not await self._committed_by(consumer, offset):  # until the group has given up a worker that ended
                    await asyncio.sleep(0.2)
        finally:
            await consumer.stop()

    async def _committed_by(self, consumer: AIOKafkaConsumer, offset: int) -> bool:
        try:
            await consumer.commit({self.source: offset})
        except CommitFailedError:
            return False
        return True

    async def refusal(self) -> str:
        """Start the worker, which must end by itself; returns its last words."""
        before = len(self.worker.log)
        self.worker.start()
        try:
            async with asyncio.timeout(ENDS_WITHIN_S):
                while self.worker.running:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            await asyncio.to_thread(self.worker.stop)
            raise AssertionError(f"it was not refused:\n{self.worker.log[before:]}") from None
        assert self.worker.status == EXIT_NOT_STARTED, self.worker.log[before:]
        return self.worker.log[before:].strip().splitlines()[-1]
