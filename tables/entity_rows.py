"""Rows from Redis as what the fold works on: slots, and lists of tiles and people with room to grow."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.schemas.limits import MAX_ENTITY_ROW_BYTES
from assay.tables.compiled import compiled
from assay.tables.entity_layout import BACK, CROWDS, KEPT

RINGS = len(BACK)
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

_NOT_THERE = bytes(8)

Loaded = tuple[npt.NDArray[np.void], npt.NDArray[np.void], npt.NDArray[np.int64], npt.NDArray[np.int64]]


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
def _load(rows: Any, kept: Any, slots: Any, tiles: Any, people: Any, filled: Any) -> Any:
    """Slots from rows, one after another: the same bytes as uint8, uint16, uint32, uint64 and float64; False for none.

    `tiles` as uint64 (n, 3). _NOT_THERE stands for a row that is not there.
    """
    _, _, narrow, words, wide = rows
    at, end = np.int64(0), 8 * words.size
    for i in range(slots.size):
        if at + 8 > end:
            return False
        if words[at // 8] == 0:
            at += 8
            continue
        if at + HEADER_BYTES > end:
            return False
        slot = slots[i]
        slot.sequence, slot.clock_ms = np.int64(wide[at // 8]), np.int64(wide[at // 8 + 1])
        slot.latest = narrow[at // 4 + 4]
        body = _load_tiles(rows, at, kept.back, slot, tiles, filled)
        if body < 0:
            return False
        at = _load_crowds(rows, at, body, kept, slot, people, filled)
        if at < 0:
            return False
    return at == end


def load(rows: Sequence[bytes | None], more_tiles: int, more_people: int) -> Loaded | None:
    """(slots, tiles, people, how many of both are given out) from rows as Redis has them, None for one that is not there.

    There is room for so many tiles and people more. None if one is no row.
    """
    together = b"".join([_NOT_THERE if row is None else row for row in rows])
    if len(together) % 8 or len(together) > MAX_ENTITY_ROW_BYTES * len(rows):
        return None
    slots, filled = np.zeros(len(rows), SLOT), np.zeros(2, np.int64)
    tiles = np.empty(len(together) // TILE_BYTES + RINGS * (1 + SPARE_ROOM) * len(rows) + more_tiles, TILE)
    people = np.empty(len(together) // 5 + len(CROWDS) * SPARE_ROOM * len(rows) + more_people, np.int64)
    wide = np.frombuffer(together, np.float64)
    views = (wide.view(np.uint8), wide.view(np.uint16), wide.view(np.uint32), wide.view(np.uint64), wide)
    read = _load(views, KEPT, slots, tiles.view(np.uint64).reshape(-1, TILE_BYTES // 8), people, filled)
    return (slots, tiles, people, filled) if read else None
