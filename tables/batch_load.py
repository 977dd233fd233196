"""Batch features into Redis: values join the rows that are there, so that an older as-of time never replaces a newer one.

Loads may overlap and be repeated: each row is merged by Redis itself (`batch_rows.lua`), in one step.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import groupby
from typing import NamedTuple

import numpy as np

from assay.schemas.errors import ServiceError
from assay.schemas.limits import (
    BATCH_COMMANDS_AT_ONCE,
    BATCH_LOAD_S,
    BATCH_ROWS_AT_ONCE,
    MAX_BATCH_VALUE_AGE_S,
    MAX_BATCH_VALUES_PER_ENTITY,
)
from assay.tables.batch_history import BatchValues, State, states
from assay.tables.batch_rows import BATCH_LIST, VALUE, VERSION, BatchRows
from assay.tables.key_marks import KeyedLink, KeyMarks
from assay.tables.keyspace import Keyspace, Part
from assay.tables.lookups import hash_tag, row_key
from assay.tables.redis_library import source
from assay.tables.redis_link import OUTAGES, Command, packed
from assay.tables.redis_node import OtherKeyError

Progress = Callable[[int, int], None]  # (rows written, of how many)


class Loaded(NamedTuple):
    """What came of a load: rows that were written, values given, those of them that were older than what is there."""

    rows: int
    values: int
    outdated: int


class _Call(NamedTuple):
    command: Command
    rows: int
    values: int


async def load(values: BatchValues, url: str, keyspace: Keyspace, progress: Progress | None = None) -> Loaded:
    """Write all values, whose digests are under the key of the keyspace, unless anything there is under another.

    Raises ServiceError; what was written until then stays, and may be loaded again.
    """
    link = KeyedLink(
        url,
        KeyMarks(keyspace, Part.BATCH, (Part.WINDOWS, Part.OUTCOMES)),
        (),
        [hash_tag(keyspace, shard) for shard in range(keyspace.shards)],
    )
    rows, written, sent, outdated = _entity_count(values), 0, 0, 0
    try:
        await link.connect()
        for calls in _some(_calls(newest_states(values), keyspace)):
            until = asyncio.get_running_loop().time() + BATCH_LOAD_S
            for reply in await link.exchange([call.command for call in calls], until):
                outdated += reply if isinstance(reply, int) else 0
            written += sum(call.rows for call in calls)
            sent += sum(call.values for call in calls)
            if progress is not None:
                progress(written, rows)
    except OtherKeyError as error:
        raise link.start_error(error) from error
    except OUTAGES as error:
        raise ServiceError(
            f"Redis at {link.address} did not take all rows: {written:,} of {rows:,} are written",
            expected="Redis 7 or Valkey 7, or newer, and the right to EVAL, GET and SET",
            got=str(error) or type(error).__name__,
            mend="see that it answers and has room, then load the file again: what is there already does no harm",
        ) from error
    finally:
        await link.disconnect()
    return Loaded(written, len(values), outdated + len(values) - sent)


def newest_states(values: BatchValues) -> Iterator[State]:
    """Of each entity what its row is to hold."""
    for _, group in groupby(states(values), lambda state: state[:2]):
        yield deque(group, maxlen=1).pop()


def _entity_count(values: BatchValues) -> int:
    kinds = np.unique([feature.entity for feature in BATCH_LIST], return_inverse=True)[1]
    return len(np.unique(np.stack([kinds[values.feature].astype(np.uint64), values.digest], axis=1), axis=0))


def _calls(newest: Iterable[State], keyspace: Keyspace) -> Iterator[_Call]:
    """Commands of so many rows each, of one shard each."""
    waiting: dict[int, list[tuple[bytes, bytes]]] = {}
    for state in newest:
        shard = state.digest % keyspace.shards
        _, key = row_key(keyspace, BatchRows.marker, state.kind, state.digest)
        rows = waiting.setdefault(shard, [])
        rows.append((key, b"".join(state.values.values())))
        if len(rows) == BATCH_ROWS_AT_ONCE:
            yield _call(keyspace, shard, waiting.pop(shard))
    for shard, rows in waiting.items():
        yield _call(keyspace, shard, rows)


def _call(keyspace: Keyspace, shard: int, rows: list[tuple[bytes, bytes]]) -> _Call:
    tag, mark, ours = hash_tag(keyspace, shard), keyspace.mark(shard, Part.BATCH), keyspace.fingerprint.encode()
    kept, most = b"%d" % (MAX_BATCH_VALUE_AGE_S * 1000), b"%d" % MAX_BATCH_VALUES_PER_ENTITY
    words = [b"EVAL", _script(), b"%d" % (1 + len(rows)), mark, *(key for key, _ in rows)]
    words += [ours, kept, most, VERSION.to_bytes(4, "little"), *(values for _, values in rows)]
    return _Call(Command(tag, packed(*words)), len(rows), sum(len(values) for _, values in rows) // VALUE.itemsize)


def _some(calls: Iterator[_Call]) -> Iterator[list[_Call]]:
    some: list[_Call] = []
    for call in calls:
        some.append(call)
        if len(some) == BATCH_COMMANDS_AT_ONCE:
            yield some
            some = []
    if some:
        yield some


@cache
def _script() -> bytes:
    return source("batch_rows").encode()
