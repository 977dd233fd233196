"""The features of risk without Redis, for training and replay: the same changes before the same events give the same bits.

One entity is a slot in arrays; its tiles are linked lists in one pool, by ring, newest first. `risk_layout` has the meaning
of it all and the arithmetic.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from assay.tables.changes import CHANGED_KINDS, COUNTED, Changes
from assay.tables.compiled import compiled
from assay.tables.events import Events
from assay.tables.risk_layout import (
    PRIOR,
    TILE_MS,
    TILES_BACK,
    times_of,
    whole_thousandths,
    write_columns,
)

CHUNK = 8_192  # changes learnt of between two looks at the room that is left
RINGS = len(TILES_BACK)
NONE = -1
SLOT = np.dtype([("digest", "<u8"), ("clock_ms", "<i8"), ("newest", "<i8", (RINGS,))])
TILE = np.dtype([("number", "<i4"), ("older", "<i4"), ("counts", "<i4", (len(COUNTED),)), ("thousandths", "<f8")])
_BACK = np.array(TILES_BACK)


@compiled
def _rehash(slots: Any, used: Any, table: Any) -> None:
    mask = np.uint64(table.size - 1)
    for slot in range(used):
        place = slots[slot].digest & mask
        while table[place] != NONE:
            place = (place + np.uint64(1)) & mask
        table[place] = slot


@compiled
def _place(digest: Any, slots: Any, table: Any) -> Any:
    """Where in the table the entity stands, or would stand."""
    mask = np.uint64(table.size - 1)
    place = digest & mask
    while table[place] != NONE and slots[table[place]].digest != digest:
        place = (place + np.uint64(1)) & mask
    return place


@compiled
def _add(newest: Any, ring: Any, number: Any, oldest: Any, counts: Any, thousandths: Any, tiles: Any, used: Any) -> None:
    """One more change in a ring whose newest tile is `newest[ring]`; its tiles before `oldest` are left behind.

    used: how many tiles of the pool were taken, and the first of those that were given back.
    """
    before, at = NONE, newest[ring]
    while at != NONE and tiles[at].number > number:
        before, at = at, tiles[at].older
    if number >= oldest:
        if at == NONE or tiles[at].number != number:
            if used[1] != NONE:
                new = used[1]
                used[1] = tiles[new].older
            else:
                new = used[0]
                used[0] += 1
            tiles[new].number, tiles[new].older, tiles[new].thousandths = number, at, 0.0
            tiles[new].counts[:] = 0
            if before == NONE:
                newest[ring] = new
            else:
                tiles[before].older = new
            at = new
        tiles[at].thousandths += thousandths
        for count in range(counts.size):
            tiles[at].counts[count] += counts[count]
    _leave_behind(newest, ring, oldest, tiles, used)


@compiled
def _leave_behind(newest: Any, ring: Any, oldest: Any, tiles: Any, used: Any) -> None:
    before, at = NONE, newest[ring]
    while at != NONE and tiles[at].number >= oldest:
        before, at = at, tiles[at].older
    if at == NONE:
        return
    if before == NONE:
        newest[ring] = NONE
    else:
        tiles[before].older = NONE
    last = at
    while tiles[last].older != NONE:
        last = tiles[last].older
    tiles[last].older, used[1] = used[1], at


@compiled
def _learn(change: Any, tile_ms: Any, tiles_back: Any, slots: Any, table: Any, tiles: Any, used: Any) -> None:
    digest, time_ms, counts, thousandths = change
    place = _place(digest, slots, table)
    if table[place] == NONE:
        table[place] = used[2]
        slots[used[2]].digest, slots[used[2]].clock_ms = digest, 0
        slots[used[2]].newest[:] = NONE
        used[2] += 1
    slot = slots[table[place]]
    slot.clock_ms = max(slot.clock_ms, time_ms)
    for ring in range(tile_ms.size):
        oldest = slot.clock_ms // tile_ms[ring] - tiles_back[ring]
        _add(slot.newest, ring, time_ms // tile_ms[ring], oldest, counts, thousandths, tiles, used)


@compiled
def _sum(newest: Any, tiles: Any, column: Any, ends: Any, sums: Any) -> None:
    """Sums float64 (3,) of a column whose window ends in the tile `ends`: whole tiles, where it begins, where it ends."""
    at = newest[column.ring]
    while at != NONE and tiles[at].number >= ends - column.tiles:
        back = ends - tiles[at].number
        if back >= 0:
            part = 1 if back == column.tiles else 2 if back == 0 and column.delay > 0 else 0
            if column.cell < tiles[at].counts.size:
                sums[part] += tiles[at].counts[column.cell]
            else:
                sums[part] += tiles[at].thousandths
        at = tiles[at].older


@compiled
def _fold(
    changes: Any, events: Any, columns: Any, rings: Any, slots: Any, table: Any, tiles: Any, used: Any, sums: Any
) -> None:
    """Let one kind of entity learn of changes and answer events, in one order.

    changes: (digest, time_ms, counts, thousandths, known_before), each (m,); events: (digest, time_ms, number), each (n,).
    rings: (tile_ms, tiles_back), each (3,). used: tiles taken, the first given back, entities. sums: float64 (n, c, 3).
    """
    changed, times_ms, counts, thousandths, known_before = changes
    asked, now_ms, numbers = events
    tile_ms, tiles_back = rings
    learnt = 0
    for i in range(asked.size + 1):
        while learnt < changed.size and (i == asked.size or known_before[learnt] <= numbers[i]):
            if changed[learnt] != 0:
                change = (changed[learnt], times_ms[learnt], counts[learnt], thousandths[learnt])
                _learn(change, tile_ms, tiles_back, slots, table, tiles, used)
            learnt += 1
        if i < asked.size and asked[i] != 0:
            place = _place(asked[i], slots, table)
            if table[place] != NONE:
                for c in range(columns.size):
                    ends = now_ms[i] // tile_ms[columns[c].ring] - columns[c].delay
                    _sum(slots[table[place]].newest, tiles, columns[c], ends, sums[i, c])


class _Kind:
    """All that is known of one kind of entity; `places` are its columns among those asked for."""

    def __init__(self, name: str, columns: npt.NDArray[np.void]) -> None:
        self.name, self.places = name, np.flatnonzero(columns["kind"] == CHANGED_KINDS.index(name))
        self.columns = columns[self.places]
        self.used = np.array([0, NONE, 0])  # tiles taken, the first of those given back, entities
        self.table = np.full(16, NONE)
        self.slots, self.tiles = np.zeros(0, SLOT), np.zeros(0, TILE)

    def make_room(self, more: int) -> None:
        """Room for what so many changes need at worst."""
        entities = int(self.used[2])
        self.slots = _grown(self.slots, entities, more)
        self.tiles = _grown(self.tiles, int(self.used[0]), RINGS * more)
        if self.table.size < 2 * self.slots.size:
            self.table = np.full(1 << (2 * self.slots.size - 1).bit_length(), NONE)
            _rehash(self.slots, entities, self.table)

    def fold(self, changes: Changes, known_before: Any, events: Events, numbers: Any, windows: Any, out: Any) -> None:
        """Learn of changes (m,), and write the features of events (n,) into the columns of out that are of this kind."""
        self.make_room(len(changes))
        counts = np.stack([changes[count] for count in COUNTED], axis=1)
        thousandths = whole_thousandths(changes["thousandths"])
        learnt = (np.ascontiguousarray(changes[self.name]), times_of(changes["time_ms"]), counts, thousandths, known_before)
        digests, times_ms = np.ascontiguousarray(events[self.name]), times_of(events["time_ms"])
        sums, values = np.zeros((len(events), len(self.columns), 3)), np.empty((len(events), len(self.columns)), np.float32)
        state = (self.slots, self.table, self.tiles, self.used)
        _fold(learnt, (digests, times_ms, numbers), self.columns, (TILE_MS, _BACK), *state, sums)
        write_columns(digests != 0, times_ms, self.columns, TILE_MS, sums, windows, PRIOR, values)
        out[:, self.places] = values


def _grown(array: npt.NDArray[Any], used: int, more: int) -> npt.NDArray[Any]:
    if used + more <= len(array):
        return array
    larger = np.zeros(max(used + more, used + used // 2), array.dtype)
    larger[:used] = array[:used]
    return larger


class RiskWindows:
    """What the rows of risk would have said, had they learnt of changes (m,) CHANGE in that order.

    known_before int64 (m,), ascending: change j is known before the event of number known_before[j]. columns (c,) COLUMN.
    Raises ValueError where it doesn't ascend.
    """

    def __init__(self, columns: npt.NDArray[np.void], changes: Changes, known_before: npt.NDArray[np.int64]) -> None:
        if len(changes) != len(known_before) or (np.diff(known_before) < 0).any():
            raise ValueError("changes need the order in which they became known, and each the event that it was known before")
        self._columns, self._changes, self._known_before = columns, changes, known_before
        self._kinds = [_Kind(CHANGED_KINDS[kind], columns) for kind in np.unique(columns["kind"])]
        self._learnt = 0

    def read(self, events: Events, numbers: npt.NDArray[np.int64], windows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Features float32 (n, c) of events (n,), whose numbers ascend, also from call to call; windows (n, block)."""
        out = np.empty((len(events), len(self._columns)), np.float32)
        known = self._known_before
        stop = int(np.searchsorted(known, numbers[-1], side="right")) if len(events) else self._learnt
        first = 0
        while first < len(events):
            upto = min(self._learnt + CHUNK, stop)
            last = len(events) if upto == stop else int(np.searchsorted(numbers, known[upto]))
            learnt, asked = slice(self._learnt, upto), slice(first, last)
            for kind in self._kinds:
                kind.fold(self._changes[learnt], known[learnt], events[asked], numbers[asked], windows[asked], out[asked])
            self._learnt, first = upto, last
        return out
