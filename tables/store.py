"""Profile rows on disk: one RocksDB per partition, rows and the changelog offset they reflect in one write.

No write-ahead log of RocksDB's own: the changelog topic is that log. Rows and offset change in one WriteBatch, so a crash falls
back to an older, consistent offset, and recovery reads from there.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rocksdict import BlockBasedOptions, Cache, Options, Rdict, WriteBatch, WriteOptions

from assay.schemas.errors import ChangelogError
from assay.tables.partition_state import STATE_KEY, PartitionState

OFFSET_KEY = b"\0changelog-offset"  # sorts before every row: user ids are printable
BLOCK_CACHE_BYTES = 64 << 20  # one for all partitions
WRITE_BUFFER_BYTES = 64 << 20  # what a crash costs at most in changelog to be read again, per partition
BLOOM_BITS_PER_KEY = 10


class RowStore:
    """The databases of one worker.

    Args:
        folder: where they live: one folder for each partition, made when first used.
        row_bytes: the width of a row; a row of another width is refused.
    """

    def __init__(self, folder: Path, row_bytes: int) -> None:
        self._folder, self._row_bytes = folder, row_bytes
        self._databases: dict[int, Rdict] = {}
        self._offsets: dict[int, int] = {}
        self._cache = Cache(BLOCK_CACHE_BYTES)
        self._unlogged = WriteOptions()
        self._unlogged.disable_wal = True  # one choice for all writes: mixed, a logged offset could claim lost rows

    def get(self, partition: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows of these keys; None where there is none yet."""
        order = sorted(range(len(keys)), key=keys.__getitem__)  # sorted gets are a third cheaper
        found: list[bytes | None] = [None] * len(keys)
        rows = self._database(partition).get([keys[i] for i in order])
        for i, row in zip(order, rows, strict=True):
            found[i] = row
        return found

    def write(self, partition: int, rows: Mapping[bytes, bytes], changelog_offset: int) -> None:
        """Make rows durable together with the changelog offset (of the last of them) that they reflect."""
        batch = WriteBatch(raw_mode=True)
        for key, row in rows.items():
            batch.put(key, row)
        self._write(partition, batch, changelog_offset)

    def apply(self, partition: int, records: Sequence[tuple[bytes, bytes | None]], changelog_offset: int) -> None:
        """Write records of the changelog, the last one at this offset. Raises ChangelogError for a row of another width."""
        batch = WriteBatch(raw_mode=True)
        for key, row in records:
            if row is None:
                batch.delete(key)
            elif key == STATE_KEY:
                batch.put(key, row)
            elif len(row) != self._row_bytes:
                raise ChangelogError(
                    f"partition {partition}: the changelog holds a row that is not of this layout",
                    expected=f"{self._row_bytes} bytes",
                    got=f"{len(row)} bytes before changelog offset {changelog_offset + 1}",
                    mend="run the version that wrote it, or start with a new ASSAY_TOPIC_PREFIX or ASSAY_GROUP",
                )
            else:
                batch.put(key, row)
        self._write(partition, batch, changelog_offset)

    def state(self, partition: int) -> PartitionState | None:
        """What the rows were built from; None where nothing was written yet. Raises ChangelogError."""
        value = self._database(partition).get(STATE_KEY)
        return None if value is None else PartitionState.decode(value)

    def offset(self, partition: int) -> int | None:
        """The changelog offset that the rows of this partition reflect; None before the first."""
        self._database(partition)
        offset = self._offsets[partition]
        return None if offset < 0 else offset

    def close(self, partition: int | None = None) -> None:
        """Close one database, or all: without a write-ahead log this is what flushes the last rows."""
        for number in [*self._databases] if partition is None else [partition]:
            self._offsets.pop(number, None)
            database = self._databases.pop(number, None)
            if database is not None:
                database.close()

    def _write(self, partition: int, batch: WriteBatch, changelog_offset: int) -> None:
        database = self._database(partition)
        batch.put(OFFSET_KEY, b"%d" % changelog_offset)
        database.write(batch, self._unlogged)
        self._offsets[partition] = changelog_offset

    def _database(self, partition: int) -> Rdict:
        database = self._databases.get(partition)
        if database is None:
            path = self._folder / f"profiles-{partition}.rocksdb"
            path.parent.mkdir(parents=True, exist_ok=True)
            options = self._table_options()
            # `options` alone is dropped on reopening, with bloom filter and block cache: name the column family too.
            database = Rdict(str(path), options=options, column_families={"default": options})
            self._databases[partition] = database
            self._offsets[partition] = int(database.get(OFFSET_KEY) or -1)
        return database

    def _table_options(self) -> Options:
        blocks = BlockBasedOptions()
        blocks.set_bloom_filter(BLOOM_BITS_PER_KEY, False)
        blocks.set_block_cache(self._cache)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_size(WRITE_BUFFER_BYTES)
        return options
