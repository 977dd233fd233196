"""Rows of Redis as what the fold works on: slots, and lists of tiles and people with room to grow; and back."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from assay.schemas.limits import MAX_ENTITY_BASE_BYTES
from assay.tables.compiled import compiled
from assay.tables.entity_layout import BACK, CROWDS, KEPT, TAIL

RINGS = len(BACK)
PREFIX_BYTES = 8
HEADER_BYTES = 120
TILE_BYTES = 24
TILE = np.dtype([("number", "<u4"), ("count", "<u4"), ("small", "<u4"), ("spare", "<u4"), ("sum", "<f8")])
SLOT = np.dtype(
    [
        ("sequence", "<i8"),
        ("clock_ms", "<i8"),
        ("latest", "<i8"),  # the newest of the finest tiles
        ("tiles_at", "<i8", (RINGS,)),
        ("tiles", "<i4", (RINGS,)),
        ("tiles_room", "<i4", (RINGS,)),
        ("crowd_at", "<i8", (len(CROWDS),)),
        ("crowd", "<i4", (len(CROWDS),)),
        ("crowd_room", "<i4", (len(CROWDS),)),
    ],
    align=True,
)
SPARE_ROOM = 2  # of a list that was just read: most see one more

_NOTHING = bytes(PREFIX_BYTES)  # a row that is not there


@compiled
def _load_tiles(rows: Any, at: Any, back: Any, slot: Any, tiles: Any, filled: Any) -> Any:
    """The tiles of the row at this byte; returns where what follows them begins, or -1."""
    _, _, narrow, words, _ = rows
    body, end = at + HEADER_BYTES, 8 * words.size
    for ring in range(back.size):
        head = at + 16 + TILE_BYTES * ring
        older = np.int64(narrow[head // 4 + 3])
        if older > back[ring] or body + TILE_BYTES * older > end:
            return -1
        place = filled[0]
        for tile in range(older):
            for word in range(3):
                tiles[place + tile, word] = words[body // 8 + 3 * tile + word]
        for word in range(3):
            tiles[place + older, word] = words[head // 8 + word]
        slot.tiles_at[ring], slot.tiles[ring], slot.tiles_room[ring] = place, older + 1, older + 1 + SPARE_ROOM
        filled[0] += older + 1 + SPARE_ROOM
        body += TILE_BYTES * older
    return body


@compiled
def _load_crowds(rows: Any, at: Any, body: Any, kept: Any, slot: Any, people: Any, filled: Any) -> Any:
    """The crowds of the row at this byte, which begin at `body`; returns where the next row begins, or -1."""
    tiny, small, narrow, _, _ = rows
    counts = (at + HEADER_BYTES - 8) // 2
    total = np.int64(0)
    for crowd in range(slot.crowd.size):
        if small[counts + crowd] > kept.people:
            return -1
        total += small[counts + crowd]
    person = body + 4 * total
    if person + total > tiny.size:
        return -1
    for crowd in range(slot.crowd.size):
        count = np.int64(small[counts + crowd])
        place = filled[1]
        for k in range(count):
            people[place + k] = np.int64(narrow[body // 4 + k]) << 8 | np.int64(tiny[person + k])
        slot.crowd_at[crowd], slot.crowd[crowd], slot.crowd_room[crowd] = place, count, count + SPARE_ROOM
        filled[1] += count + SPARE_ROOM
        body += 4 * count
        person += count
    return (person + 7) // 8 * 8


@compiled
def _load(rows: Any, starts: Any, bases: Any, kept: Any, slots: Any, tiles: Any, people: Any, filled: Any) -> Any:
    """Slots from the bases at these bytes, int64 (n,), of so many bytes each; False where one is none.

    rows: the same bytes as uint8, uint16, uint32, uint64 and float64. tiles: uint64 (n, 3).
    """
    _, _, narrow, _, wide = rows
    for i in range(slots.size):
        if bases[i] == 0:
            continue
        at = starts[i]
        if bases[i] < HEADER_BYTES:
            return False
        slot = slots[i]
        slot.sequence, slot.clock_ms = np.int64(wide[at // 8]), np.int64(wide[at // 8 + 1])
        slot.latest = narrow[at // 4 + 4]
        body = _load_tiles(rows, at, kept.back, slot, tiles, filled)
        if body < 0 or _load_crowds(rows, at, body, kept, slot, people, filled) != at + bases[i]:
            return False
    return True


class Loaded(NamedTuple):
    """Rows as Redis has them: n slots with their tiles and people (`filled`: how many of both are given out), and their tails.

    tails (m,) TAIL, row after row, and whose they are, int64 (m,).
    """

    slots: npt.NDArray[np.void]
    tiles: npt.NDArray[np.void]
    people: npt.NDArray[np.int64]
    filled: npt.NDArray[np.int64]
    tails: npt.NDArray[np.void]
    whose: npt.NDArray[np.int64]


def load(rows: Sequence[bytes | None], more_tiles: int, more_people: int) -> Loaded | None:
    """Rows as Redis has them, None for one that is not there; room for so many tiles and people more. None if one is no row."""
    together = b"".join([_NOTHING if row is None else row for row in rows])
    lengths = np.array([len(_NOTHING) if row is None else len(row) for row in rows], np.int64)
    if (lengths % 8).any() or (lengths < PREFIX_BYTES).any():
        return None
    wide = np.frombuffer(together, np.float64)
    views = (wide.view(np.uint8), wide.view(np.uint16), wide.view(np.uint32), wide.view(np.uint64), wide)
    starts = np.cumsum(lengths) - lengths
    bases = views[2][starts // 4].astype(np.int64)
    left = lengths - PREFIX_BYTES - bases
    if (bases > MAX_ENTITY_BASE_BYTES).any() or (left < 0).any() or (left % TAIL.itemsize).any():
        return None
    slots, filled = np.zeros(len(rows), SLOT), np.zeros(2, np.int64)
    tiles = np.empty(int(bases.sum()) // TILE_BYTES + RINGS * (1 + SPARE_ROOM) * len(rows) + more_tiles, TILE)
    people = np.empty(int(bases.sum()) // 5 + len(CROWDS) * SPARE_ROOM * len(rows) + more_people, np.int64)
    triples = tiles.view(np.uint64).reshape(-1, TILE_BYTES // 8)
    if not _load(views, starts + PREFIX_BYTES, bases, KEPT, slots, triples, people, filled):
        return None
    counts = left // TAIL.itemsize
    whose = np.repeat(np.arange(len(rows)), counts)
    nth = np.arange(len(whose)) - np.repeat(np.cumsum(counts) - counts, counts)
    words = (starts + PREFIX_BYTES + bases)[whose] // 8 + nth * (TAIL.itemsize // 8)
    tails = views[3][words[:, None] + np.arange(TAIL.itemsize // 8)].view(TAIL).reshape(-1)
    return Loaded(slots, tiles, people, filled, tails, whose)


@compiled
def _dump(slots: Any, tiles: Any, people: Any, starts: Any, sizes: Any, rows: Any) -> None:
    """Write the rows of these slots, without a tail, to these bytes: what `_load` reads. `tiles` as uint64 (n, 3)."""
    tiny, small, narrow, words, wide = rows
    for i in range(slots.size):
        slot, at = slots[i], starts[i] + PREFIX_BYTES
        narrow[starts[i] // 4] = sizes[i] - PREFIX_BYTES
        wide[at // 8], wide[at // 8 + 1] = slot.sequence, slot.clock_ms
        body = at + HEADER_BYTES
        for ring in range(slot.tiles.size):
            head, first, older = at + 16 + TILE_BYTES * ring, slot.tiles_at[ring], np.int64(slot.tiles[ring]) - 1
            for tile in range(older):
                for word in range(3):
                    words[body // 8 + 3 * tile + word] = tiles[first + tile, word]
            for word in range(3):
                words[head // 8 + word] = tiles[first + older, word]
            narrow[head // 4 + 3] = older
            body += TILE_BYTES * older
        person = body + 4 * np.int64(slot.crowd.sum())
        for crowd in range(slot.crowd.size):
            count, first = np.int64(slot.crowd[crowd]), slot.crowd_at[crowd]
            small[(at + HEADER_BYTES - 8) // 2 + crowd] = count
            for k in range(count):
                narrow[body // 4 + k] = people[first + k] >> 8
                tiny[person + k] = people[first + k] & 0xFF
            body += 4 * count
            person += count


def dump(slots: npt.NDArray[np.void], tiles: npt.NDArray[np.void], people: npt.NDArray[np.int64]) -> list[bytes]:
    """The rows of these slots, without a tail."""
    crowds = 5 * slots["crowd"].sum(axis=1, dtype=np.int64)
    older = slots["tiles"].sum(axis=1, dtype=np.int64) - RINGS
    sizes = PREFIX_BYTES + HEADER_BYTES + TILE_BYTES * older + (crowds + 7) // 8 * 8
    starts = np.cumsum(sizes) - sizes
    wide = np.zeros(int(sizes.sum()) // 8, np.float64)
    views = (wide.view(np.uint8), wide.view(np.uint16), wide.view(np.uint32), wide.view(np.uint64), wide)
    _dump(slots, tiles.view(np.uint64).reshape(-1, TILE_BYTES // 8), people, starts, sizes, views)
    together = wide.tobytes()
    return [together[start : start + size] for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)]
