"""The entity windows without Redis, for training and replay: the same observations give the same bits.

One entity is a slot in arrays that grow with the number of entities (about 700 bytes each); its people live in blocks of 4,
32 or 256, since nearly all entities are seen with very few. `entity_layout` has the meaning of it all and the arithmetic.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from assay.tables.compiled import compiled
from assay.tables.entity_layout import (
    ABSENT,
    ENTITIES,
    LONG_TILES_BACK,
    PEOPLE,
    SHORT_IN_LONG,
    SHORT_TILES_BACK,
    WINDOWS_PER_ENTITY,
    Observations,
    observations,
    write_windows,
)
from assay.tables.events import Events

CHUNK = 8_192  # events folded between two looks at the room that is left
BLOCKS = (4, 32, PEOPLE)
SHORT_RING = SHORT_TILES_BACK + 1
LONG_RING = LONG_TILES_BACK + 1
TILE = np.dtype([("number", "<i4"), ("count", "<u4"), ("sum", "<f8")])
SLOT = np.dtype(
    [
        ("sequence", "<i8"),
        ("clock_ms", "<i8"),
        ("latest", "<i4"),  # the newest short tile
        ("people", "<u2"),
        ("block_size", "<u2"),  # index into BLOCKS
        ("block", "<i8"),
    ],
    align=True,
)


@compiled
def _rehash(digests: Any, used: Any, table: Any) -> None:
    mask = np.uint64(table.size - 1)
    for slot in range(used):
        place = digests[slot] & mask
        while table[place] != -1:
            place = (place + np.uint64(1)) & mask
        table[place] = slot


@compiled
def _add(tiles: Any, number: Any, thousandths: Any) -> None:
    tile = tiles[number % tiles.size]
    if tile.number != number:  # time has passed over what was here
        tile.number, tile.count, tile.sum = number, 0, 0.0
    tile.count += 1
    tile.sum += thousandths


@compiled
def _window(tiles: Any, newest: Any, counts: Any, sums: Any) -> None:
    """The sum over the whole tiles, oldest first, and the oldest of all, of which only a part lies in the window."""
    oldest = newest - tiles.size + 1
    at = oldest % tiles.size
    if tiles[at].number == oldest:
        counts[1], sums[1] = tiles[at].count, tiles[at].sum
    count, total = 0.0, 0.0
    for _ in range(1, tiles.size):
        at = at + 1 if at + 1 < tiles.size else 0
        if tiles[at].number > oldest:
            count += tiles[at].count
            total += tiles[at].sum
    counts[0], sums[0] = count, total


@compiled
def _meet(slot: Any, person: Any, tile: Any, small: Any, medium: Any, large: Any, filled: Any) -> None:
    """Remember in which tile a person was last seen. An entry is the tile's number << 8 | the person."""
    block = small[slot.block]
    if slot.block_size == 1:
        block = medium[slot.block]
    elif slot.block_size == 2:
        block = large[slot.block]
    for i in range(slot.people):
        if block[i] & 0xFF == person:
            if block[i] >> 8 < tile:
                block[i] = tile << 8 | person
            return
    if slot.people == block.size:
        # Those long gone make room; else the block grows, and the old one is given up (at most 144 bytes an entity).
        oldest = (slot.latest // SHORT_IN_LONG - LONG_TILES_BACK) * SHORT_IN_LONG
        kept = 0
        for i in range(block.size):
            if block[i] >> 8 >= oldest:
                block[kept] = block[i]
                kept += 1
        slot.people = kept
        if kept == block.size:
            slot.block_size += 1
            slot.block = filled[slot.block_size]
            filled[slot.block_size] += 1
            larger = medium[slot.block] if slot.block_size == 1 else large[slot.block]
            larger[:kept] = block
            block = larger
    block[slot.people] = tile << 8 | person
    slot.people += 1


@compiled
def _crowd(slot: Any, small: Any, medium: Any, large: Any, people: Any) -> None:
    block = small[slot.block]
    if slot.block_size == 1:
        block = medium[slot.block]
    elif slot.block_size == 2:
        block = large[slot.block]
    short_begins = np.uint32(slot.latest - SHORT_TILES_BACK)
    long_begins = np.uint32((slot.latest // SHORT_IN_LONG - LONG_TILES_BACK) * SHORT_IN_LONG)
    short, oldest_short, long, oldest_long = 0, 0, 0, 0
    for i in range(slot.people):
        last = block[i] >> np.uint32(8)
        short += last >= short_begins
        oldest_short += last == short_begins
        long += last >= long_begins
        oldest_long += (last >= long_begins) & (last < long_begins + np.uint32(SHORT_IN_LONG))
    people[0], people[1], people[2], people[3] = short - oldest_short, oldest_short, long - oldest_long, oldest_long


@compiled
def _fold(
    seen: Any,
    digests: Any,
    table: Any,
    slots: Any,
    short: Any,
    long: Any,
    small: Any,
    medium: Any,
    large: Any,
    filled: Any,
    out: Any,
) -> None:
    """Observe one kind of entity, event after event.

    seen: (digest, time_ms, tile, thousandths, person), each (n,). filled: blocks used of each size, then entities.
    out: (sequences, clocks_ms, counts, sums, people), written for each event; a digest of 0 is left out.
    """
    observed, times_ms, tiles, thousandths, persons = seen
    sequences, clocks_ms, counts, sums, people = out
    mask = np.uint64(table.size - 1)
    for i in range(observed.size):
        digest, tile, hour = observed[i], tiles[i], tiles[i] // SHORT_IN_LONG
        if digest == 0:
            continue
        place = digest & mask
        while table[place] != -1 and digests[table[place]] != digest:
            place = (place + np.uint64(1)) & mask
        if table[place] == -1:
            table[place] = filled[3]
            digests[filled[3]] = digest
            slots[filled[3]].block = filled[0]
            filled[0] += 1
            filled[3] += 1
        at = table[place]
        slot = slots[at]
        if slot.sequence == 0 or hour - slot.latest // SHORT_IN_LONG > LONG_TILES_BACK:
            # New, or time has passed over all of it: it begins anew, as a row that Redis has let expire.
            short[at].number[:] = -1
            long[at].number[:] = -1
            slot.sequence, slot.clock_ms, slot.latest, slot.people = 0, times_ms[i], tile, 0
        slot.sequence += 1
        slot.clock_ms = max(slot.clock_ms, times_ms[i])
        slot.latest = max(slot.latest, tile)
        if tile >= slot.latest - SHORT_TILES_BACK:
            _add(short[at], tile, thousandths[i])
        if hour >= slot.latest // SHORT_IN_LONG - LONG_TILES_BACK:
            _add(long[at], hour, thousandths[i])
            _meet(slot, np.int64(persons[i]), tile, small, medium, large, filled)
        sequences[i], clocks_ms[i] = slot.sequence, slot.clock_ms
        _window(short[at], slot.latest, counts[i, :2], sums[i, :2])
        _window(long[at], slot.latest // SHORT_IN_LONG, counts[i, 2:], sums[i, 2:])
        _crowd(slot, small, medium, large, people[i])


class _Kind:
    """All that is remembered of one kind of entity."""

    def __init__(self) -> None:
        self.filled = np.zeros(len(BLOCKS) + 1, np.int64)  # blocks used of each size, then entities
        self.digests = np.zeros(0, np.uint64)
        self.table = np.full(16, -1, np.int64)
        self.slots = np.zeros(0, SLOT)
        self.short = np.zeros((0, SHORT_RING), TILE)
        self.long = np.zeros((0, LONG_RING), TILE)
        self.blocks = [np.zeros((0, size), np.uint32) for size in BLOCKS]

    def make_room(self, more: int) -> None:
        """Room for `more` entities and for as many blocks of each size: what so many observations need at worst."""
        entities = int(self.filled[-1])
        self.digests, self.slots = _grown(self.digests, entities, more), _grown(self.slots, entities, more)
        self.short, self.long = _grown(self.short, entities, more), _grown(self.long, entities, more)
        self.blocks = [_grown(block, int(used), more) for block, used in zip(self.blocks, self.filled, strict=False)]
        if self.table.size < 2 * self.digests.size:
            self.table = np.full(1 << (2 * self.digests.size - 1).bit_length(), -1, np.int64)
            _rehash(self.digests, entities, self.table)

    def observe(self, digests: npt.NDArray[np.uint64], seen: Observations, values: Any, sequences: Any) -> None:
        """Fold one chunk; values float32 (n, 6) and sequences int64 (n,) are written where the digest isn't 0."""
        n = len(digests)
        self.make_room(n)
        clocks_ms = np.zeros(n, np.int64)
        counts, sums, people = np.zeros((n, 4)), np.zeros((n, 4)), np.zeros((n, 4))
        columns = (digests, seen.time_ms, seen.tile, seen.thousandths, seen.person)
        small, medium, large = self.blocks
        entities = (self.digests, self.table, self.slots, self.short, self.long)
        _fold(columns, *entities, small, medium, large, self.filled, (sequences, clocks_ms, counts, sums, people))
        write_windows(digests != 0, clocks_ms, counts, sums, people, values)


def _grown(array: npt.NDArray[Any], used: int, more: int) -> npt.NDArray[Any]:
    if used + more <= len(array):
        return array
    larger = np.zeros((max(used + more, used + used // 2), *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger


def observe_kind(digests: npt.NDArray[np.uint64], seen: Observations) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Observe entities of one kind, digests (n,), in order, from the beginning.

    Returns windows float32 (n, 6) and the number of each observation among those of its entity, int64 (n,), from 1 on.
    """
    kind, n = _Kind(), len(digests)
    values, sequences = np.full((n, WINDOWS_PER_ENTITY), ABSENT, np.float32), np.zeros(n, np.int64)
    for start in range(0, n, CHUNK):
        rows = slice(start, start + CHUNK)
        kind.observe(digests[rows], seen.of(rows), values[rows], sequences[rows])
    return values, sequences


class EntityWindows:
    """What Redis would have answered, had it observed the same events in the same order."""

    def __init__(self) -> None:
        self._kinds = tuple(_Kind() for _ in ENTITIES)

    def observe(self, events: Events) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Observe events (n,) in order.

        Returns windows float32 (n, 24), `ABSENT` where the event has no such entity, and the number of each observation
        among those of its entity, int64 (n, 4), from 1 on; 0 where absent.
        """
        n = len(events)
        values = np.full((n, len(ENTITIES) * WINDOWS_PER_ENTITY), ABSENT, np.float32)
        sequences = np.zeros((n, len(ENTITIES)), np.int64)
        for start in range(0, n, CHUNK):
            rows = slice(start, start + CHUNK)
            seen = observations(events[rows])
            for slot, kind in enumerate(self._kinds):
                columns = slice(slot * WINDOWS_PER_ENTITY, (slot + 1) * WINDOWS_PER_ENTITY)
                digests = np.ascontiguousarray(seen.digests[:, slot])
                kind.observe(digests, seen, values[rows, columns], sequences[rows, slot])
        return values, sequences
