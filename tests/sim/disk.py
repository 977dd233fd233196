"""A worker's disk: what `RowStore` keeps, with what a crash does to it."""

from collections.abc import Callable, Mapping, Sequence

from assay.tables.partition_state import STATE_KEY, PartitionState

Rows = Mapping[bytes, bytes]


class _Database:
    """One partition. Without a write-ahead log a crash takes the last writes, each whole, so that it falls back in time."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.offset: int | None = None
        self.flushed: tuple[dict[bytes, bytes], int | None] = ({}, None)
        self.writes: list[tuple[dict[bytes, bytes | None], int]] = []

    def write(self, rows: dict[bytes, bytes | None], offset: int) -> None:
        self.writes.append((rows, offset))
        _change(self.rows, rows)
        self.offset = offset

    def keep(self, writes: int) -> None:
        """Only so many of the writes since the last flush are there."""
        rows, offset = self.flushed
        for changed, at in self.writes[:writes]:
            _change(rows, changed)
            offset = at
        self.rows, self.offset, self.flushed, self.writes = dict(rows), offset, (rows, offset), []


def _change(rows: dict[bytes, bytes], changed: Mapping[bytes, bytes | None]) -> None:
    for key, row in changed.items():
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row


class Disk:
    """Stands in for `tables.store.RowStore`; it outlives the worker's processes.

    Args:
        written: called with (partition, rows, changelog offset) before the flow's rows are written.
    """

    def __init__(self, written: Callable[[int, Rows, int], None]) -> None:
        self._written = written
        self._databases: dict[int, _Database] = {}

    def get(self, partition: int, keys: Sequence[bytes]) -> list[bytes | None]:
        rows = self._database(partition).rows
        return [rows.get(key) for key in keys]

    def write(self, partition: int, rows: Rows, changelog_offset: int) -> None:
        self._written(partition, rows, changelog_offset)
        self._database(partition).write(dict(rows), changelog_offset)

    def apply(self, partition: int, records: Sequence[tuple[bytes, bytes | None]], changelog_offset: int) -> None:
        self._database(partition).write(dict(records), changelog_offset)

    def state(self, partition: int) -> PartitionState | None:
        value = self._database(partition).rows.get(STATE_KEY)
        return None if value is None else PartitionState.decode(value)

    def offset(self, partition: int) -> int | None:
        return self._database(partition).offset

    def close(self, partition: int | None = None) -> None:
        """Closing flushes."""
        for number, database in self._databases.items():
            if partition in (None, number):
                database.keep(len(database.writes))

    # -- what happens to it ---------------------------------------------------------------------------------------------

    def crash(self, kept: Callable[[int], float]) -> None:
        """The process has died; `kept` gives the share of unflushed writes that a partition still has."""
        for partition, database in self._databases.items():
            database.keep(round(kept(partition) * len(database.writes)))

    def lose(self) -> None:
        self._databases = {}

    def rows(self, partition: int) -> dict[bytes, bytes]:
        """All rows of a partition, without what is kept beside them."""
        return {key: row for key, row in self._database(partition).rows.items() if not key.startswith(b"\0")}

    def _database(self, partition: int) -> _Database:
        return self._databases.setdefault(partition, _Database())
