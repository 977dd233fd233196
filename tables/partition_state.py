"""What the rows of one partition were built from: kept beside them, in the changelog and on disk, in a record of its own.

It tells a recreated topic, another number of partitions, another key of digests, or an offset that somebody has set, from an
ordinary restart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import orjson

from assay.schemas.errors import ChangelogError
from assay.tables.profile import LAYOUT_VERSION

STATE_KEY = b"\0assay-state"  # no user has it: user ids are printable


class Earlier(NamedTuple):
    """Where the transaction lay that a repeated one repeats: its source offset and append time (epoch, ms)."""

    offset: int
    appended_ms: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Written with each write of rows, so that it is never behind them.

    A group's committed offset always lies in [committed, reached], unless it was set or has expired.

    Attributes:
        topic_id: Kafka's id of the transactions topic: a topic that is made anew has another.
        partitions: how many the transactions topic had: with another number, users lie elsewhere.
        committed: a source offset that the group had committed by then.
        reached: the source offset before which everything had its verdict, and its rows are in the changelog.
        open: by source offset: repeats whose decision was still being looked up. The rows may have forgotten by the next
            take-over what they repeat.
        layout: the version of the rows.
        log_id: as in `SourceTopic`: what was said lies there.
        fingerprint: of the key that digests in the rows are under (`tables.digests`); empty where there was none yet.

    >>> state = PartitionState("id", 3, 7, 9, {8: Earlier(2, 1767225600000)})
    >>> PartitionState.decode(state.encode()) == state
    True
    """

    topic_id: str
    partitions: int
    committed: int
    reached: int
    open: Mapping[int, Earlier] = field(default_factory=dict)
    layout: int = LAYOUT_VERSION
    log_id: str = ""
    fingerprint: str = ""

    def encode(self) -> bytes:
        return orjson.dumps(
            {
                "topic_id": self.topic_id,
                "partitions": self.partitions,
                "committed": self.committed,
                "reached": self.reached,
                "open": [(offset, *earlier) for offset, earlier in self.open.items()],
                "layout": self.layout,
                "log_id": self.log_id,
                "fingerprint": self.fingerprint,
            }
        )

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """What `encode` made. Fields that a later version has added are ignored. Raises ChangelogError."""
        try:
            found = orjson.loads(value)
            return cls(
                str(found["topic_id"]),
                int(found["partitions"]),
                int(found["committed"]),
                int(found["reached"]),
                {int(offset): Earlier(int(first), int(ms)) for offset, first, ms in found["open"]},
                int(found["layout"]),
                str(found["log_id"]),
                str(found.get("fingerprint", "")),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ChangelogError(
                "the state of a partition can't be read",
                expected="a JSON object with topic_id, partitions, committed, reached, open, layout and log_id",
                got=repr(value[:100]),
                mend="run the version that wrote it, or `assay rebuild`",
            ) from error
