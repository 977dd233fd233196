"""What the flow does I/O through. Kafka, RocksDB and Redis stand behind these; in the simulation, memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from aiokafka.structs import ConsumerRecord

from assay.schemas.decision import Tier
from assay.schemas.decode import Request
from assay.streams.publisher import Batches, Placed
from assay.streams.read_back import ReadBack, Uncommitted
from assay.streams.replies import Reply
from assay.tables.entity_answer import EntityAnswer
from assay.tables.events import Events
from assay.tables.partition_state import PartitionState
from assay.tables.working_rows import StoredRows

if TYPE_CHECKING:
    from assay.agents.profiles import Recalled
    from assay.models.judge import Verdicts


class Publishes(Protocol):
    """`streams.publisher.Publisher`"""

    async def publish(self, batches: Batches) -> Placed: ...


class Owns(Protocol):
    """`streams.ownership.Ownership`"""

    async def take(self, partitions: Sequence[int]) -> Placed: ...
    async def topic_id(self, topic: str) -> str: ...
    async def release(self) -> None: ...


class SourceOffsets(Protocol):
    """`streams.source_log.SourceLog`, by source partition."""

    async def committed(self, partitions: set[int]) -> Mapping[int, int | None]: ...
    async def earliest(self, partitions: set[int]) -> Mapping[int, int]: ...
    async def readable(self, partitions: set[int]) -> Mapping[int, int]: ...
    async def confirm(self, offsets: Mapping[int, int]) -> bool: ...
    async def first_append(self, partition: int, first: int, end: int) -> int | None: ...
    async def holds_records(self, partition: int, first: int, end: int) -> bool: ...


class FindsDecisions(Protocol):
    """`streams.decision_reader.DecisionReader`"""

    async def read(self, partition: int, wanted: set[int], since_ms: int) -> dict[int, ConsumerRecord]: ...


class ReadsBack(Protocol):
    """`streams.read_back.LogReader`"""

    async def read_back(self, wanted: Mapping[int, Uncommitted]) -> dict[int, ReadBack]: ...


class Rows(StoredRows, Protocol):
    """`tables.store.RowStore`"""

    def write(self, partition: int, rows: Mapping[bytes, bytes], changelog_offset: int) -> None: ...
    def state(self, partition: int) -> PartitionState | None: ...


class Observes(Protocol):
    """`tables.entities.Entities`"""

    async def observe(self, events: Events, partitions: npt.NDArray[np.integer[Any]]) -> EntityAnswer: ...


class Sends(Protocol):
    """`streams.replies.Replies`"""

    def send(self, replies: Sequence[Reply]) -> None: ...


class Offers(Protocol):
    """`agents.evidence.EvidenceLog`"""

    def offer(
        self, requests: Sequence[Request], features: npt.NDArray[np.float32], windows: EntityAnswer, tier: Tier
    ) -> None: ...


class Learns(Protocol):
    """`agents.learn.Learner`"""

    def decided(self, recalled: "Recalled", verdicts: "Verdicts") -> None: ...


class Forgets:
    """Where no outcomes are heard."""

    def decided(self, recalled: "Recalled", verdicts: "Verdicts") -> None: ...


class Membership(Protocol):
    """Our place in the consumer group: `agents.worker.Worker`."""

    @property
    def generation(self) -> int: ...
    def assigned(self) -> set[int]:
        """The source partitions that the group has given us."""
        ...

    def committed(self, partition: int) -> int:
        """The source offset that the group has committed for a partition of ours."""
        ...

    def commit(self, partition: int, next_offset: int) -> None:
        """Everything before it has its verdict: commit it, some time soon."""
        ...

    def begun(self, starts: Mapping[int, int]) -> None:
        """Partitions are ours, and go on at these source offsets, which are committed."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """All of them."""

    membership: Membership
    ownership: Owns
    log: Publishes  # of decisions and dead letters
    changelog: Publishes
    source: SourceOffsets
    decisions: FindsDecisions
    reader: ReadsBack
    rows: Rows
    entities: Observes
    replies: Sends
    evidence: Offers
    learner: Learns = field(default_factory=Forgets)
