"""What entities have seen, in memory, and the fold that both sides go through: begun from nothing offline, live from the rows
that Redis had before a micro-batch.

An entity is a slot; its tiles, ring by ring and oldest first, and the people of its crowds lie in two arrays that all share,
and move to a larger place when they outgrow theirs. `entity_layout` has the meaning of it all, `entity_columns` what is read.

Distinct people are read from how many of the 256 values were seen (linear counting: Whang, Vander-Zanden, Taylor, "A
linear-time probabilistic counting algorithm for database applications", 1990): exact up to a handful, within 7 % at 100, at
most 1,597.
"""

from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.tables.compiled import compiled
from assay.tables.entity_columns import PLAN, Plan
from assay.tables.entity_layout import BACK, CROWDS, KEPT, PEOPLE, Observations
from assay.tables.entity_rows import RINGS, SLOT, TILE, dump, load
from assay.tables.features import ENTITIES

# What one transaction may take at most, with every list of its entities moved.
MOST = MOST_TILES, MOST_PEOPLE = len(ENTITIES) * (sum(BACK) + RINGS), len(ENTITIES) * len(CROWDS) * PEOPLE

# How many distinct people left so many of the 256 values seen.
_CROWD = np.array([round(-PEOPLE * log(1 - seen / PEOPLE)) for seen in range(PEOPLE)] + [round(PEOPLE * log(2 * PEOPLE))], "f8")


@compiled
def _tile(slot: Any, ring: Any, number: Any, back: Any, tiles: Any, filled: Any) -> Any:
    """Where the tile of this number lies, made if need be. The caller has seen to it that it is not too old."""
    start, count = slot.tiles_at[ring], np.int64(slot.tiles[ring])
    at = count
    while at > 0 and np.int64(tiles[start + at - 1].number) > number:
        at -= 1
    if at > 0 and np.int64(tiles[start + at - 1].number) == number:
        return start + at - 1
    if at == count:  # the newest: those that time has passed over make room
        passed = 0
        while passed < count and np.int64(tiles[start + passed].number) < number - back:
            passed += 1
        count -= passed
        at = count
        if passed > 0:
            for i in range(count):
                tiles[start + i] = tiles[start + passed + i]
    if count == slot.tiles_room[ring]:
        room = min(max(2 * count, 2), back + 1)
        for i in range(count):
            tiles[filled[0] + i] = tiles[start + i]
        start = filled[0]
        slot.tiles_at[ring], slot.tiles_room[ring] = start, room
        filled[0] += room
    for i in range(count, at, -1):
        tiles[start + i] = tiles[start + i - 1]
    tile = tiles[start + at]
    tile.number, tile.count, tile.small, tile.spare, tile.sum = number, 0, 0, 0, 0.0
    slot.tiles[ring] = count + 1
    return start + at


@compiled
def _meet(
    slot: Any, crowd: Any, person: Any, fine: Any, crowd_back: Any, many: Any, most: Any, people: Any, filled: Any
) -> None:
    """Remember in which tile a person was last seen. An entry is the tile's number << 8 | the person."""
    start, count = slot.crowd_at[crowd], np.int64(slot.crowd[crowd])
    entry = fine << 8 | np.int64(person)
    for i in range(start, start + count):
        if people[i] & 0xFF == person:
            people[i] = max(people[i], entry)
            return
    if count >= many:
        place = start + slot.sequence % count
        if people[place] >> 8 < slot.latest - crowd_back:
            people[place] = entry
            return
    if count == slot.crowd_room[crowd]:
        room = min(max(2 * count, 2), most)
        for i in range(count):
            people[filled[1] + i] = people[start + i]
        start = filled[1]
        slot.crowd_at[crowd], slot.crowd_room[crowd] = start, room
        filled[1] += room
    people[start + count] = entry
    slot.crowd[crowd] = count + 1


@compiled
def _begin_anew(slot: Any) -> None:
    """Time has passed over all of it: as a row that Redis has let expire."""
    slot.sequence, slot.clock_ms, slot.latest = 0, 0, 0
    for ring in range(slot.tiles.size):
        slot.tiles[ring] = 0
    for crowd in range(slot.crowd.size):
        slot.crowd[crowd] = 0


@compiled
def _add(slot: Any, fine: Any, amount: Any, small: Any, fine_in: Any, back: Any, tiles: Any, filled: Any) -> None:
    """One observation more in the tiles of its time."""
    for ring in range(back.size):
        number = fine // fine_in[ring]
        if number >= slot.latest // fine_in[ring] - back[ring]:
            tile = tiles[_tile(slot, ring, number, back[ring], tiles, filled)]
            tile.count += 1
            tile.small += small
            tile.sum += amount


@compiled
def _read_span(span: Any, slot: Any, fine_in: Any, fine_ms: Any, scale: Any, tiles: Any, values: Any, row: Any) -> None:
    """Attempts, spending and small attempts of one window."""
    tile_ms = fine_in[span.ring] * fine_ms
    newest = slot.latest // fine_in[span.ring] - span.delay
    oldest = newest - span.back
    gone = (slot.clock_ms % tile_ms) / tile_ms  # the part of a tile that the clock has passed
    left = (tile_ms - slot.clock_ms % tile_ms) / tile_ms
    count, total, small = 0.0, 0.0, 0.0
    old_count, old_total, old_small, new_count, new_total, new_small = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    start = slot.tiles_at[span.ring]
    for i in range(start + slot.tiles[span.ring] - 1, start - 1, -1):
        tile = tiles[i]
        number = np.int64(tile.number)
        if number < oldest:
            break
        if number == oldest:
            old_count, old_total, old_small = np.float64(tile.count), tile.sum, np.float64(tile.small)
        elif number == newest and span.delay > 0:
            new_count, new_total, new_small = np.float64(tile.count), tile.sum, np.float64(tile.small)
        elif number <= newest:
            count += tile.count
            total += tile.sum
            small += tile.small
    if span.columns[0] >= 0:
        values[row, span.columns[0]] = count + left * old_count + gone * new_count
    if span.columns[1] >= 0:
        values[row, span.columns[1]] = (total + left * old_total + gone * new_total) / scale
    if span.columns[2] >= 0:
        values[row, span.columns[2]] = small + left * old_small + gone * new_small


@compiled
def _read_gathering(gathering: Any, slot: Any, fine_ms: Any, people: Any) -> Any:
    """Distinct people of one window, from how many of the 256 values were seen in it."""
    oldest = slot.latest - gathering.back
    left = (fine_ms - slot.clock_ms % fine_ms) / fine_ms
    seen, seen_oldest = 0, 0
    start = slot.crowd_at[gathering.crowd]
    for i in range(start, start + slot.crowd[gathering.crowd]):
        last = people[i] >> 8
        seen += last > oldest
        seen_oldest += last == oldest
    partly = seen + left * seen_oldest
    whole = int(partly)
    if whole >= _CROWD.size - 1:
        return _CROWD[_CROWD.size - 1]
    return _CROWD[whole] + (partly - whole) * (_CROWD[whole + 1] - _CROWD[whole])


@compiled
def _fold(
    begin: Any,
    at: Any,
    fresh: Any,
    seen: Any,
    kept: Any,
    plan: Any,
    state: Any,
    most: Any,
    rows: Any,
    values: Any,
    sequences: Any,
) -> Any:
    """Observe from event `begin` on; returns the event that there was no more room for, or n.

    state: slots, tiles, people and how many of both are given out. most: tiles and people that one event may take.
    Arrays are taken out of tuples here and once: each time counts references.
    """
    times_ms, thousandths, small, persons, met = seen
    slots, tiles, people, filled = state
    fine_in, back, crowds, fine_ms, crowd_back, many_people, most_people, scale = kept
    spans, gatherings, first_span, first_gathering = plan
    coarsest = back.size - 1
    for i in range(begin, at.shape[0]):
        if filled[0] + most[0] > tiles.size or filled[1] + most[1] > people.size:
            return i
        row, fine = rows[i], times_ms[i] // fine_ms
        for kind in range(at.shape[1]):
            if at[i, kind] < 0:
                continue
            slot = slots[at[i, kind]]
            if fresh[i]:
                if fine // fine_in[coarsest] - slot.latest // fine_in[coarsest] > back[coarsest]:
                    _begin_anew(slot)
                slot.sequence += 1
                slot.clock_ms, slot.latest = max(slot.clock_ms, times_ms[i]), max(slot.latest, fine)
                _add(slot, fine, thousandths[i], small[i], fine_in, back, tiles, filled)
                if fine >= slot.latest - crowd_back:
                    for crowd in range(crowds.shape[1]):
                        if met[i, crowd] and crowds[kind, crowd]:
                            _meet(slot, crowd, persons[i, crowd], fine, crowd_back, many_people, most_people, people, filled)
            if row < 0:
                continue
            sequences[row, kind] = slot.sequence
            for s in range(first_span[kind], first_span[kind + 1]):
                _read_span(spans[s], slot, fine_in, fine_ms, scale, tiles, values, row)
            for s in range(first_gathering[kind], first_gathering[kind + 1]):
                values[row, gatherings[s].column] = _read_gathering(gatherings[s], slot, fine_ms, people)
    return at.shape[0]


class State:
    """What a number of entities have seen. Slots are given out by whoever has one: they are numbers from 0 on."""

    def __init__(self, entities: int = 0, tiles: int = 0, people: int = 0, plan: Plan = PLAN) -> None:
        self._plan = plan
        self.slots = np.zeros(entities, SLOT)
        self._tiles, self._people = np.empty(tiles, TILE), np.empty(people, np.int64)
        self._filled = np.zeros(2, np.int64)  # tiles and people that are given out
        self.tails = np.zeros(entities, np.int64)  # by slot, how many observations were not part of the base that Redis has

    @classmethod
    def of_rows(cls, rows: Sequence[bytes | None], kinds: npt.NDArray[np.uint8]) -> "State | None":
        """From the row of each slot as Redis has it, None for one that is not there; None if these are no rows. kinds (n,)."""
        state = cls()
        loaded = load(rows, MOST_TILES, MOST_PEOPLE)
        if loaded is None:
            return None
        state.slots, state._tiles, state._people, state._filled = loaded[:4]
        state.tails = np.bincount(loaded.whose, minlength=len(rows))
        if len(loaded.tails):
            state._catch_up(loaded.tails, loaded.whose, kinds[loaded.whose])
        return state

    def _catch_up(self, tails: npt.NDArray[np.void], whose: npt.NDArray[np.int64], kinds: npt.NDArray[np.uint8]) -> None:
        """Fold the tails of rows: each is an observation of one entity, of which nobody asks what it saw."""
        n = len(tails)
        at = np.full((n, len(ENTITIES)), -1, np.int64)
        at[np.arange(n), kinds] = whose
        times_ms, people = tails["time_ms"].astype(np.int64), np.ascontiguousarray(tails["people"])
        amounts, small = np.ascontiguousarray(tails["thousandths"]), np.ascontiguousarray(tails["small"])
        seen = Observations(np.zeros((n, 0), np.uint64), times_ms, amounts, small, people, tails["met"] != 0)
        unread = np.empty((0, 0), np.float32), np.empty((0, 0), np.int64)
        self.fold(at, np.ones(n, np.bool_), seen, np.full(n, -1), *unread)

    def rows(self, slots: npt.NDArray[np.int64]) -> list[bytes]:
        """The rows of these slots as Redis is to have them, compacted."""
        return dump(self.slots[slots], self._tiles, self._people)

    def make_room(self, entities: int) -> None:
        """Room for so many slots."""
        if entities > len(self.slots):
            self.slots = _grown(self.slots, len(self.slots), entities, np.zeros)

    def fold(
        self,
        at: npt.NDArray[np.int64],
        fresh: npt.NDArray[np.bool_],
        seen: Observations,
        rows: npt.NDArray[np.int64],
        values: npt.NDArray[np.float32],
        sequences: npt.NDArray[np.int64],
    ) -> None:
        """Let the entities at slots `at`, int64 (m, 5), -1 where absent, observe m transactions, one after another.

        fresh, bool (m,): where not, nothing changes, and what stands is read. rows (m,): which rows of values, float32
        (n, ENTITY_FEATURES), and sequences, int64 (n, 5), to write; -1 for none.
        """
        done, columns = 0, tuple(seen)[1:]
        while done < len(at):
            state = (self.slots, self._tiles, self._people, self._filled)
            done = _fold(done, at, fresh, columns, KEPT, self._plan, state, MOST, rows, values, sequences)
            if done < len(at):
                tiles, people = self._filled.tolist()
                self._tiles = _grown(self._tiles, tiles, tiles + MOST_TILES, np.empty)
                self._people = _grown(self._people, people, people + MOST_PEOPLE, np.empty)


def _grown(array: npt.NDArray[Any], used: int, least: int, make: Any) -> npt.NDArray[Any]:
    if least <= len(array):
        return array
    larger: npt.NDArray[Any] = make(max(least, used + used // 2), array.dtype)
    larger[:used] = array[:used]
    return larger
