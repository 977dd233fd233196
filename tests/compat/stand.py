"""A real worker on a real Kafka, for clients to ask."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from assay.deploy.services import Running
from assay.schemas.answer_format import ANSWER_SCHEMAS
from assay.streams.reading import REPLY_TOPIC, assigned, partitions_of, stop
from tests.integration.worker_process import WorkerProcess
from tests.schema_registry import RegistryDouble

from .questions import RULES

PARTITIONS = 3
READ_TIMEOUT_MS = 10_000
REGISTERED_WITHIN_S = 30.0


@dataclass
class Stand:
    """A worker that scores, and its topics."""

    bootstrap: str
    prefix: str
    worker: WorkerProcess
    registry: str  # url

    @property
    def options(self) -> dict[str, str]:
        """aiokafka's."""
        return {"bootstrap_servers": self.bootstrap}

    @property
    def transactions(self) -> str:
        """Full name of the topic that clients send to."""
        return f"{self.prefix}transactions"

    async def reply_topic(self, name: str) -> str:
        """Make one, of four partitions, and return its full name."""
        topic = f"{self.prefix}{name}.reply"
        await partitions_of(self.options, topic, create=REPLY_TOPIC)
        return topic

    async def decisions(self) -> dict[str, dict[str, Any]]:
        """All that were published until now, by the id of their transaction."""
        topic = f"{self.prefix}decisions"
        found: dict[str, dict[str, Any]] = {}
        consumer = await assigned(self.options, topic, range(PARTITIONS), from_beginning=True)
        try:
            ends = await consumer.end_offsets(consumer.assignment())
            while any([await consumer.position(tp) < end for tp, end in ends.items()]):
                for records in (await consumer.getmany(timeout_ms=READ_TIMEOUT_MS)).values():
                    for record in records:
                        if record.value is not None:  # a fence
                            decision = orjson.loads(record.value)
                            assert decision["transaction_id"] not in found, "a second decision (invariant I2)"
                            found[decision["transaction_id"]] = decision
        finally:
            await stop(consumer)
        return found


@asynccontextmanager
async def stand(folder: Path, services: Running, bundle: Path, more: Sequence[tuple[str, str]] = ()) -> AsyncIterator[Stand]:
    """It ends with the block.

    Args:
        more: settings of the worker besides.
    """
    (folder / "rules.yaml").write_text(RULES)
    registry = RegistryDouble()
    await registry.start()
    prefix = f"c{uuid.uuid4().hex[:12]}-"
    environment = {
        "ASSAY_BOOTSTRAP_SERVERS": services.bootstrap_servers,
        "ASSAY_REDIS_URL": services.redis_url,
        "ASSAY_REDIS_TIMEOUT_S": "5",  # tests are not about how quick a busy machine is
        "ASSAY_TOPIC_PREFIX": prefix,
        "ASSAY_PARTITIONS": str(PARTITIONS),
        "ASSAY_BUNDLE": str(bundle),
        "ASSAY_SCHEMA_REGISTRY_URL": registry.url,
        "ASSAY_RULES": str(folder / "rules.yaml"),
        "ASSAY_HTTP_HOST": "127.0.0.1",
        "ASSAY_LOG_FORMAT": "json",
        "OMP_NUM_THREADS": "1",
    } | dict(more)
    worker = WorkerProcess("compat", folder, environment)
    worker.start()
    try:
        worker.wait_until_ready()
        async with asyncio.timeout(REGISTERED_WITHIN_S):
            while registry.subjects != ANSWER_SCHEMAS.keys():
                await asyncio.sleep(0.05)
        yield Stand(services.bootstrap_servers, prefix, worker, registry.url)
    finally:
        worker.stop()
        await registry.stop()
