"""Finding one record of a topic that is partitioned by user: the newest first, since what is asked for is mostly recent."""

from collections.abc import Callable

from aiokafka.structs import ConsumerRecord

from assay.deploy.progress_bars import Report
from assay.deploy.rebuild_log import Log
from assay.schemas.evidence import is_change
from assay.schemas.source import Source
from assay.streams.decision_reader import CLOCK_MARGIN_MS, source_of
from assay.streams.partitioning import partition_of

AT_ONCE = 20_000  # offsets
EVIDENCE_WITHIN_MS = 3_600_000  # after its decision: it waits while Kafka is slow, and is dropped rather than kept longer

Matches = Callable[[ConsumerRecord], bool]


async def newest(log: Log, topic: str, user: bytes, partitions: int, matches: Matches, report: Report) -> ConsumerRecord | None:
    """The newest record under that key that matches: in the key's own partition first, then wherever else a producer that
    partitions in another way may have put it. Raises ServiceError or KafkaError."""
    own = partition_of(user, partitions)
    for partition in sorted(range(partitions), key=lambda number: number != own):
        first, end = await log.bounds(topic, partition)
        for stop in range(end, first, -AT_ONCE):
            report(f"partition {partition}", end - stop, end - first)
            found = None
            async for records in log.records(topic, partition, max(first, stop - AT_ONCE), stop):
                found = next((record for record in reversed(records) if record.key == user and matches(record)), found)
            if found is not None:
                return found
    return None


async def evidence_of(log: Log, topic: str, source: Source, decided_ms: int) -> ConsumerRecord | None:
    """The evidence of the decision on that source, made at `decided_ms` (epoch). Raises ServiceError or KafkaError."""
    first, end = await log.bounds_since(topic, source.partition, decided_ms - CLOCK_MARGIN_MS)
    async for records in log.records(topic, source.partition, first, end):
        for record in records:
            if source_of(record) == source and record.value is not None and not is_change(record.headers):
                return record
            if record.timestamp > decided_ms + EVIDENCE_WITHIN_MS:
                return None
    return None
