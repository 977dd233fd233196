"""Where a record came from, what we ask of one that was read, and the form of one to be written."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

SOURCE_HEADER = "assay-source"  # topic:partition:offset of the record that made this one
FENCE_HEADER = "assay-fence"  # on a record with a null value: the partition changed hands
FENCE_KEY = b"\0assay-fence"  # its key, since a compacted topic refuses a record without one; no user id has it
REPLAY_HEADER = "assay-replay"  # 1: the decision is repeated
CONFLICT_HEADER = "assay-conflict"  # 1: the id came back with another payload
BEYOND_HORIZON_HEADER = "assay-beyond-horizon"  # 1: the id is known, its decision no longer
ORIGIN_HEADER = "assay-origin"  # of a re-keyed copy and what is made from it: which record it was, and when it was appended
WITHHELD_HEADER = "assay-withheld"  # of a copy without what held a card number: where that was, and a digest of the record

_MAX_INT32, _MAX_INT64 = 2**31 - 1, 2**63 - 1  # as Kafka counts partitions; offsets and milliseconds

OutRecord = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]
"""Key, value and headers of a record to be written."""


class SourceRecord(Protocol):
    """A record as it was read; aiokafka's `ConsumerRecord` is one. Kafka allows null header values."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int:
        """When it was appended: epoch, milliseconds."""
        ...

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


class SourceTopic(NamedTuple):
    """The topic that records come from: a topic of that name which is made anew has another id."""

    name: str
    id: str
    partitions: int
    log_id: str = ""  # of the topics that decisions and dead letters were written to


class Source(NamedTuple):
    """Topic, partition and offset that a record came from.

    >>> Source("transactions", 3, 41).header()
    b'transactions:3:41'
    >>> Source.parse(b"transactions:3:41")
    Source(topic='transactions', partition=3, offset=41)
    """

    topic: str
    partition: int
    offset: int

    def header(self) -> bytes:
        """The value of the header `assay-source`."""
        return b"%s:%d:%d" % (self.topic.encode(), self.partition, self.offset)

    @classmethod
    def parse(cls, header: bytes) -> Self:
        """What `header()` wrote. Raises ValueError for anything else."""
        topic, partition, offset = header.decode().rsplit(":", 2)
        if not (topic and partition.isdecimal() and offset.isdecimal()):
            raise ValueError("not topic:partition:offset")
        source = cls(topic, int(partition), int(offset))
        if source.partition > _MAX_INT32 or source.offset > _MAX_INT64:
            raise ValueError("no partition or offset of Kafka's")
        return source


class Origin(NamedTuple):
    """The record that a re-keyed copy was made from, and when that was appended (epoch, ms).

    >>> Origin(Source("transactions", 3, 41), 1_790_000_000_000).header()
    b'transactions:3:41:1790000000000'
    >>> Origin.parse(b"transactions:3:41:1790000000000").source.offset
    41
    """

    source: Source
    appended_ms: int

    def header(self) -> bytes:
        """The value of the header `assay-origin`."""
        return b"%b:%d" % (self.source.header(), self.appended_ms)

    @classmethod
    def parse(cls, header: bytes) -> Self:
        """What `header()` wrote. Raises ValueError for anything else."""
        source, _, appended_ms = header.rpartition(b":")
        if not appended_ms.isdigit() or int(appended_ms) > _MAX_INT64:
            raise ValueError("not topic:partition:offset:milliseconds")
        return cls(Source.parse(source), int(appended_ms))


def origin_of(record: SourceRecord) -> Origin | None:
    """Which record a copy was made from; None for what is none of our copies, whatever its header says."""
    value = next((value for name, value in reversed(record.headers) if name == ORIGIN_HEADER and value), b"")
    try:
        return Origin.parse(value)
    except ValueError:
        return None
