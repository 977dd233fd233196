"""Profile rows on disk: one RocksDB per partition, rows and the changelog offset they reflect in one write.

No write-ahead log of RocksDB's own: the changelog topic is that log. Rows and offset change in one WriteBatch, so a crash falls
back to an older, consistent offset, and recovery reads from there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from assay.schemas.errors import ChangelogError
from assay.tables.changelog import BOOKKEEPING, REBUILD, REBUILD_BEGUN_KEY, REBUILD_DONE_KEY, OnDisk
from assay.tables.partition_state import STATE_KEY, PartitionState

OFFSET_KEY = b"\0changelog-offset"  # sorts before every row: user ids are printable
CHANGELOG_ID_KEY = b"\0changelog-id"
AFTER_BOOKKEEPING = b"\1"
BLOCK_CACHE_BYTES = 64 << 20  # one for all partitions
WRITE_BUFFER_BYTES = 32 << 20  # what a crash costs at most in changelog to be read again, per partition
WRITE_BUFFERS_BYTES = 256 << 20  # of all partitions together, about: then they are flushed sooner
BLOOM_BITS_PER_KEY = 10
# Recovery writes hundreds of megabytes in no order: merging them early, and compressing them each time, is half of its CPU.
FILES_BEFORE_MERGE, FILES_BEFORE_SLOWDOWN, FILES_BEFORE_STOP = 16, 48, 64
FIRST_LEVEL_BYTES = 512 << 20
LEVELS, UNCOMPRESSED_LEVELS = 7, 2


class RowStore:
    """The databases of one worker.

    Args:
        folder: where they live: one folder for each partition, made when first used.
        row_bytes: the width of a row.
        current: makes a row of any layout that can be read one of the current layout (`tables.layouts`); raises
            ChangelogError. Without it, rows of `row_bytes` are taken as they are.
    """

    def __init__(self, folder: Path, row_bytes: int, current: Callable[[bytes], bytes] | None = None) -> None:
        self._folder, self._row_bytes, self._current = folder, row_bytes, current or self._of_width
        self._databases: dict[int, Rdict] = {}
        self._offsets: dict[int, int] = {}
        self._unreadable: dict[int, ChangelogError] = {}
        self._cache = Cache(BLOCK_CACHE_BYTES)
        self._write_buffers = WriteBufferManager(WRITE_BUFFERS_BYTES, False)
        self._unlogged = WriteOptions()
        self._unlogged.disable_wal = True  # one choice for all writes: mixed, a logged offset could claim lost rows

    def get(self, partition: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows of these keys; None where there is none yet. Raises ChangelogError for a row that can't be read."""
        order = sorted(range(len(keys)), key=keys.__getitem__)  # sorted gets are a third cheaper
        found: list[bytes | None] = [None] * len(keys)
        rows = self._database(partition).get([keys[i] for i in order])
        for i, row in zip(order, rows, strict=True):
            found[i] = None if row is None else self._current(row)
        return found

    def write(self, partition: int, rows: Mapping[bytes, bytes], changelog_offset: int) -> None:
        """Make rows durable together with the changelog offset (of the last of them) that they reflect."""
        batch = WriteBatch(raw_mode=True)
        for key, row in rows.items():
            batch.put(key, row)
        self._write(partition, batch, changelog_offset)

    def apply(self, partition: int, records: Sequence[tuple[bytes, bytes | None]], changelog_offset: int) -> None:
        """Write records of the changelog, the last one at this offset.

        A rebuild's first mark throws away what came before it. A row that can't be read is left out, and the offset on disk
        stays before it: `check` raises, unless a rebuild comes later.
        """
        batch = WriteBatch(raw_mode=True)
        put, current = batch.put, self._current
        for key, row in records:
            if row is None:
                batch.delete(key)
            elif not key.startswith(BOOKKEEPING):
                try:
                    put(key, current(row))
                except ChangelogError as error:
                    self._note_unreadable(partition, error, changelog_offset)
            else:
                if key == REBUILD_BEGUN_KEY:
                    batch.clear()
                    self._destroy(partition)
                put(key, row)
        self._write(partition, batch, changelog_offset)

    def check(self, partition: int) -> None:
        """Raises ChangelogError where the changelog holds a row that can't be read."""
        if (error := self._unreadable.get(partition)) is not None:
            raise error

    def rows(self, partition: int) -> Iterator[tuple[bytes, bytes]]:
        """Every user and row, by user, without the bookkeeping. Raises ChangelogError for a row that can't be read."""
        for key, row in self._database(partition).items(from_key=AFTER_BOOKKEEPING):
            yield key, self._current(row)

    def state(self, partition: int) -> PartitionState | None:
        """What the rows were built from; None where nothing was written yet. Raises ChangelogError."""
        value = self._database(partition).get(STATE_KEY)
        return None if value is None else PartitionState.decode(value)

    def on_disk(self, partition: int) -> OnDisk:
        """What the database holds, whatever its rows are."""
        keys = [CHANGELOG_ID_KEY, REBUILD_BEGUN_KEY, REBUILD_DONE_KEY]
        changelog_id, begun, done = self._database(partition).get(keys)
        return OnDisk(self.offset(partition), None if changelog_id is None else changelog_id.decode(), begun, done)

    def belongs_to(self, partition: int, changelog_id: str) -> None:
        """Take note of the topic, by Kafka's id of it, that the rows were read from."""
        self._database(partition).put(CHANGELOG_ID_KEY, changelog_id.encode(), write_opt=self._unlogged)

    def offset(self, partition: int) -> int | None:
        """The changelog offset that the rows of this partition reflect; None before the first."""
        self._database(partition)
        offset = self._offsets[partition]
        return None if offset < 0 else offset

    def path(self, partition: int) -> Path:
        """Where the database of a partition lies."""
        return self._folder / f"profiles-{partition}.rocksdb"

    def close(self, partition: int | None = None) -> None:
        """Close one database, or all: without a write-ahead log this is what flushes the last rows."""
        for number in [*self._databases] if partition is None else [partition]:
            self._offsets.pop(number, None)
            self._unreadable.pop(number, None)
            database = self._databases.pop(number, None)
            if database is not None:
                database.close()

    def _write(self, partition: int, batch: WriteBatch, changelog_offset: int) -> None:
        database = self._database(partition)
        if partition not in self._unreadable:  # else recovery goes back to before that row, whatever version runs then
            batch.put(OFFSET_KEY, b"%d" % changelog_offset)
        database.write(batch, self._unlogged)
        self._offsets[partition] = changelog_offset

    def _destroy(self, partition: int) -> None:
        """A crash right after it finds an empty database, which is read anew from the first record."""
        self.close(partition)
        if self.path(partition).exists():
            Rdict.destroy(str(self.path(partition)))

    def _database(self, partition: int) -> Rdict:
        database = self._databases.get(partition)
        if database is None:
            path = self.path(partition)
            path.parent.mkdir(parents=True, exist_ok=True)
            options = self._table_options()
            # `options` alone is dropped on reopening, with bloom filter and block cache: name the column family too.
            database = Rdict(str(path), options=options, column_families={"default": options})
            self._databases[partition] = database
            self._offsets[partition] = int(database.get(OFFSET_KEY) or -1)
        return database

    def _note_unreadable(self, partition: int, error: ChangelogError, changelog_offset: int) -> None:
        got = f"{error.got}, in the changelog before offset {changelog_offset + 1}"
        known = ChangelogError(f"partition {partition}: {error.what}", expected=error.expected, got=got, mend=error.mend)
        self._unreadable.setdefault(partition, known)

    def _of_width(self, row: bytes) -> bytes:
        if len(row) != self._row_bytes:
            raise ChangelogError(
                "a row is not of this layout",
                expected=f"{self._row_bytes} bytes",
                got=f"{len(row)} bytes",
                mend=f"run the version that wrote it, or {REBUILD}",
            )
        return row

    def _table_options(self) -> Options:
        blocks = BlockBasedOptions()
        blocks.set_bloom_filter(BLOOM_BITS_PER_KEY, False)
        blocks.set_block_cache(self._cache)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_size(WRITE_BUFFER_BYTES)
        options.set_write_buffer_manager(self._write_buffers)
        options.set_level_zero_file_num_compaction_trigger(FILES_BEFORE_MERGE)
        options.set_level_zero_slowdown_writes_trigger(FILES_BEFORE_SLOWDOWN)
        options.set_level_zero_stop_writes_trigger(FILES_BEFORE_STOP)
        options.set_max_bytes_for_level_base(FIRST_LEVEL_BYTES)
        fast, small = [DBCompressionType.none()] * UNCOMPRESSED_LEVELS, DBCompressionType.lz4()
        options.set_compression_per_level([*fast, *[small] * (LEVELS - len(fast))])
        return options
