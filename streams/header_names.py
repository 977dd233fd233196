"""Header names that are not UTF-8: aiokafka refuses to read the record, so that a worker would stop at it for ever.

Java's clients write UTF-8; librdkafka's write whatever bytes they are given. Here such bytes become U+FFFD, and the name can be
none that means anything to us. Line numbers are of aiokafka 0.14.0.
"""

from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords

_LENGTH_AT, _LENGTH_END = 8, 12  # of a batch: its base offset, then how many bytes follow


def read_any_header_name() -> None:
    """Let every consumer of this process read such records."""
    fetcher.MemoryRecords = Records  # what it reads a fetched partition with (fetcher.py:833)


class Records(MemoryRecords):
    """The batches of one fetched partition, read by aiokafka's compiled code wherever that can."""

    def __init__(self, fetched: bytes) -> None:
        super().__init__(fetched)
        self._fetched, self._at = memoryview(fetched), 0

    def next_batch(self) -> Any:
        batch = super().next_batch()
        end = self._at + _LENGTH_END + int.from_bytes(self._fetched[self._at + _LENGTH_AT : self._at + _LENGTH_END], "big")
        raw, self._at = self._fetched[self._at : end], end
        return _Batch(batch, raw)


class _Batch:
    """A batch that is read once more, leniently, where a name could not be decoded."""

    def __init__(self, batch: Any, raw: memoryview) -> None:
        self._batch, self._raw = batch, raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        """Asked for the mark of a transaction that was aborted, which has no headers (fetcher.py:291)."""
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        read = 0
        try:
            for record in self._batch:
                yield record
                read += 1
        except UnicodeDecodeError:
            for number, record in enumerate(_LenientBatch(self._raw)):
                if number >= read:
                    yield record


class _LenientBatch(_DefaultRecordBatchPy):
    """aiokafka's reader in Python. Names are the only part of a record that it decodes (default_records.py:297)."""

    _buffer: bytearray

    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        self._buffer = _Buffer(self._buffer)


class _Buffer(bytearray):
    def __getitem__(self, where: Any) -> Any:
        part = super().__getitem__(where)
        return _Part(part) if isinstance(where, slice) else part


class _Part(bytes):
    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, "replace")
