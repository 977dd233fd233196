"""Rows of entities that are read beside the windows, in the same round trip: one MGET for each shard.

A *family* of rows has a marker, its kinds of entities and the columns that it fills. A row's key is

    {prefix:shard}: marker, letter of the kind, digest (8 bytes)        shard = digest % shards

Each distinct entity of a micro-batch is asked for once, and what is read is the state before the micro-batch. The commands are
written in the Redis protocol straight from arrays, as `entity_call` does. Pure: no I/O.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from assay.tables.entity_layout import number_entities
from assay.tables.events import EVENT, Events
from assay.tables.features import FEATURES, PROFILE_FEATURES
from assay.tables.keyspace import Keyspace
from assay.tables.redis_link import Command

# Columns of EVENT that rows may be of, and their letters.
LETTERS: Mapping[str, bytes] = {
    "user": b"u",
    "instrument": b"i",
    "bin": b"b",
    "merchant": b"m",
    "device": b"d",
    "address": b"a",
}

Floats = npt.NDArray[np.float32]
Index = npt.NDArray[np.int32]
Ages = npt.NDArray[np.float64]


class Reading(NamedTuple):
    """What a family tells beside its values.

    ages_ms: float64 (n, columns), how old each value was at the event's time, NaN where nothing was read; None where rows
    don't say.
    unreadable: how many rows are not what this version writes; their values are unavailable.
    sequences: int64 (n, kinds), how often the row had been written that was read, where rows count that; 0 where there is none.
    """

    ages_ms: Ages | None
    unreadable: int = 0
    sequences: npt.NDArray[np.int64] | None = None


class Family(Protocol):
    """Rows of one marker, and how they are read.

    Attributes:
        kinds: columns of EVENT whose entities have rows; keys of LETTERS.
        columns: that it fills, within the block of what comes from Redis (the columns after PROFILE_FEATURES).
    """

    marker: bytes
    kinds: tuple[str, ...]
    columns: slice

    def read(self, rows: Sequence[bytes | None], index: Index, events: Events, windows: Floats, out: Floats) -> Reading | None:
        """Fill out, float32 (n, columns), for events (n,). Pure; never raises for what is in a row.

        rows: of the distinct entities, None where there is none. index: int32 (n, kinds), which row belongs to an event and a
        kind, -1 where the event has no such entity. windows: float32 (n, block), the entity windows in its first columns.
        """
        ...


class Found(NamedTuple):
    """What all families told of one micro-batch of n transactions.

    ages_ms: by source ("batch"), float64 (n,), the oldest of a transaction's values; and by feature; NaN where it has none.
    newest_ms: by feature, as of when the newest value that was read is: epoch, milliseconds.
    unreadable: rows. sequences: by source, those of its family.
    """

    ages_ms: Mapping[str, Ages]
    newest_ms: Mapping[str, float]
    unreadable: int = 0
    sequences: Mapping[str, npt.NDArray[np.int64]] = {}


NOTHING_FOUND = Found({}, {})


@dataclass(slots=True, eq=False)
class LookUps:
    """The look-ups of one micro-batch: commands to send, and how their replies are read.

    Attributes:
        places: by command, which rows it asks for.
        indexes: by family, int32 (n, kinds), into the rows of that family.
        ends: by family, where its rows end in the rows of all.
    """

    events: Events
    families: Sequence[Family]
    commands: list[Command] = field(default_factory=list)
    places: list[npt.NDArray[np.int64]] = field(default_factory=list)
    indexes: list[Index] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def read(self, replies: Sequence[object] | None, block: Floats) -> Found:
        """Fill the columns of the families in block, float32 (n, block), whose windows are there already.

        Where there are no replies, or one is no answer, the columns of all families are unavailable.
        """
        rows = self._rows(replies)
        if rows is None:
            for family in self.families:
                block[:, family.columns] = np.nan
            return NOTHING_FOUND
        ages: dict[str, Ages] = {}
        newest: dict[str, float] = {}
        sequences: dict[str, npt.NDArray[np.int64]] = {}
        unreadable, start = 0, 0
        for family, index, end in zip(self.families, self.indexes, self.ends, strict=True):
            reading = family.read(rows[start:end], index, self.events, block, block[:, family.columns])
            start = end
            if reading is None:
                continue
            unreadable += reading.unreadable
            if reading.ages_ms is not None:
                _note(family, reading.ages_ms, self.events, ages, newest)
            if reading.sequences is not None:
                sequences[_source(family)] = reading.sequences
        return Found(ages, newest, unreadable, sequences)

    def _rows(self, replies: Sequence[object] | None) -> list[bytes | None] | None:
        replies = replies or ()
        if len(replies) != len(self.commands):
            return None
        rows: list[bytes | None] = [None] * (self.ends[-1] if self.ends else 0)
        for reply, places in zip(replies, self.places, strict=True):
            if not isinstance(reply, list) or len(reply) != len(places):
                return None
            if len(reply) == len(rows):  # one shard: they come in their order
                return reply
            for place, row in zip(places.tolist(), reply, strict=True):
                rows[place] = row
        return rows


NO_LOOK_UPS = LookUps(np.zeros(0, EVENT), ())


def look_ups(events: Events, families: Sequence[Family], keyspace: Keyspace) -> LookUps:
    """What is to be asked for events (n,)."""
    asked = LookUps(events, families)
    if not families or not len(events):
        asked.indexes = [np.full((len(events), len(family.kinds)), -1, np.int32) for family in families]
        asked.ends = [0] * len(families)
        return asked
    heads: list[npt.NDArray[np.uint8]] = []  # of each row: marker and letter
    digests: list[npt.NDArray[np.uint64]] = []
    for family in families:
        columns = np.empty((len(events), len(family.kinds)), np.uint64)
        for kind, name in enumerate(family.kinds):
            columns[:, kind] = events[name]
        kinds, keys, index = number_entities(columns)
        letters = np.frombuffer(b"".join(LETTERS[name] for name in family.kinds), np.uint8)
        heads.append(np.stack([np.full(len(kinds), family.marker[0], np.uint8), letters[kinds]], axis=1))
        digests.append(keys)
        asked.indexes.append(index)
        asked.ends.append((asked.ends[-1] if asked.ends else 0) + len(keys))
    _ask(asked, np.concatenate(heads), np.concatenate(digests), keyspace)
    return asked


def _ask(asked: LookUps, heads: npt.NDArray[np.uint8], digests: npt.NDArray[np.uint64], keyspace: Keyspace) -> None:
    if not len(digests):
        return
    shards = digests % np.uint64(keyspace.shards)
    for shard in [0] if keyspace.shards == 1 else np.unique(shards).tolist():
        places = np.flatnonzero(shards == shard)
        tag = hash_tag(keyspace, shard)
        keys = np.tile(np.frombuffer(b"$%d\r\n%s..........\r\n" % (len(tag) + 10, tag), np.uint8), (len(places), 1))
        keys[:, -12:-10] = heads[places]
        keys[:, -10:-2] = digests[places].astype("<u8").view(np.uint8).reshape(-1, 8)
        asked.commands.append(Command(tag, (b"*%d\r\n$4\r\nMGET\r\n%s" % (len(places) + 1, keys.tobytes()),)))
        asked.places.append(places)


def hash_tag(keyspace: Keyspace, shard: int) -> bytes:
    """What the keys of looked-up rows begin with: the same slot of a Redis Cluster as the shard's windows."""
    return f"{{{keyspace.prefix}:{shard}}}:".encode()


def row_key(keyspace: Keyspace, marker: bytes, kind: str, digest: int) -> tuple[bytes, bytes]:
    """(hash tag, key) of one row: for whoever writes it."""
    tag = hash_tag(keyspace, digest % keyspace.shards)
    return tag, tag + marker + LETTERS[kind] + digest.to_bytes(8, "little")


def _source(family: Family) -> str:
    return FEATURES[PROFILE_FEATURES:][family.columns][0].source.value


def _note(family: Family, ages_ms: Ages, events: Events, ages: dict[str, Ages], newest: dict[str, float]) -> None:
    features = FEATURES[PROFILE_FEATURES:][family.columns]
    if not features or not len(events):
        return
    oldest = np.fmax.reduce(ages_ms, axis=1)
    source = _source(family)
    ages[source] = np.fmax(ages[source], oldest) if source in ages else oldest
    ages.update((feature.name, ages_ms[:, column]) for column, feature in enumerate(features))
    as_of = np.fmax.reduce(events["time_ms"][:, None] - ages_ms, axis=0)
    newest.update((feature.name, at) for feature, at in zip(features, as_of.tolist(), strict=True) if at == at)
