"""What the rows of one partition were built from: kept beside them, in the changelog and on disk, in a record of its own.

It tells a recreated topic, another number of partitions, or an offset that somebody has set, from an ordinary restart.
"""

from dataclasses import asdict, dataclass, fields
from typing import Self

import orjson

from assay.schemas.errors import ChangelogError
from assay.tables.profile import LAYOUT_VERSION

STATE_KEY = b"\0assay-state"  # no user has it: user ids are printable


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Written with each write of rows, so that it is never behind them.

    A group's committed offset always lies in [committed, reached], unless it was set or has expired.

    Attributes:
        topic_id: Kafka's id of the transactions topic: a topic that is made anew has another.
        partitions: how many the transactions topic had: with another number, users lie elsewhere.
        committed: a source offset that the group had committed by then.
        reached: the source offset before which everything had its verdict, and its rows are in the changelog.
        layout: the version of the rows.

    >>> PartitionState.decode(PartitionState("id", 3, 7, 9).encode())
    PartitionState(topic_id='id', partitions=3, committed=7, reached=9, layout=1)
    """

    topic_id: str
    partitions: int
    committed: int
    reached: int
    layout: int = LAYOUT_VERSION

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """What `encode` made. Fields that a later version has added are ignored. Raises ChangelogError."""
        try:
            found = orjson.loads(value)
            return cls(**{field.name: type_(found[field.name]) for field, type_ in zip(fields(cls), _TYPES, strict=True)})
        except (ValueError, KeyError, TypeError) as error:
            raise ChangelogError(
                "the state of a partition can't be read",
                expected="JSON with " + ", ".join(field.name for field in fields(cls)),
                got=repr(value[:100]),
                mend="run the version that wrote it, or `assay rebuild`",
            ) from error


_TYPES = (str, int, int, int, int)
