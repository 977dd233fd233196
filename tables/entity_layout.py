"""The layouts that the Redis function shares with us, and the windows that are read out of a row.

A row (`entity_windows.lua` writes it; little-endian):

    header   24 bytes: sequence f8, clock f8 (ms), latest tile u4, short tiles u1, long tiles u1, people u2
    tiles    16 bytes each: number u4, count u4, sum f8 (thousandths of the base currency's major unit);
             first the short ones (5 minutes, for 1 h), then the long ones (1 hour, for 24 h), oldest first, none empty
    people   one byte each, then three bytes each: the short tile in which this person was last seen

Windows end at the row's clock: the latest event time of the entity so far. The tile that the window begins in counts by the
part of it that lies inside. Distinct users are told apart by 8 bits of their digest, and how many there were is read from
how many of the 256 values were seen (linear counting: Whang, Vander-Zanden, Taylor, "A linear-time probabilistic counting
algorithm for database applications", 1990): exact up to a handful, within 7 % at 100, at most 1,597.

All arithmetic that could round is here, in one compiled function that Redis rows and the offline fold both go through; what
Redis computes are whole numbers (amounts are rounded to thousandths first), so both give the same bits.
"""

from math import log
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from assay.schemas.transaction import Kind
from assay.tables.compiled import compiled
from assay.tables.events import Events

LAYOUT_VERSION = 1  # goes into every key: rows of another layout are never read
ENTITIES = ("instrument", "merchant", "device", "address")
KEY_LETTERS = b"imda"
WINDOWS_PER_ENTITY = 6  # count_1h, count_24h, sum_1h, sum_24h, users_1h, users_24h
ABSENT = -1.0  # what the features of an entity say that the transaction doesn't have

SHORT_TILE_MS = 5 * 60 * 1000
LONG_TILE_MS = 60 * 60 * 1000
SHORT_IN_LONG = LONG_TILE_MS // SHORT_TILE_MS
SHORT_TILES_BACK = 12  # how far behind the newest tile the one lies that a window begins in
LONG_TILES_BACK = 24
PEOPLE = 256
AMOUNT_SCALE = 1000.0
MAX_THOUSANDTHS = 1e15
MIN_TIME_MS = (LONG_TILES_BACK + 1) * LONG_TILE_MS  # no tile that a window reaches back to has a negative number
MAX_TIME_MS = (2**24 - 1) * SHORT_TILE_MS  # a tile's number has three bytes: until the year 2129
SPENDING = tuple(list(Kind).index(kind) for kind in (Kind.PURCHASE, Kind.PREAUTH, Kind.RECURRING))

_SPENDS = np.isin(np.arange(256), SPENDING)  # by kind

HEADER_BYTES = 24
TILE_BYTES = 16

PAYLOAD_HEADER = np.dtype([("records", "<u4"), ("partitions", "<u4"), ("expire_s", "<u4"), ("quiet", "<u4")])
QUIET = 12  # where that flag lies: 1 asks for no answer
RECORD = np.dtype(
    [
        ("time_ms", "<f8"),
        ("thousandths", "<f8"),
        ("offset", "<f8"),  # exact up to 2**53
        ("tile", "<u4"),
        ("partition", "<u2"),  # which of the payload's partitions, from 1
        ("person", "u1"),
        ("unused", "u1"),
        ("entity", "<u2", (4,)),  # which of the call's rows, from 1; 0 where absent or of another shard
    ]
)
MAX_RECORDS = 16_000  # of one call: the index of an entity has 16 bits

# How many distinct users left so many of the 256 values seen.
_CROWD = np.array([round(-PEOPLE * log(1 - seen / PEOPLE)) for seen in range(PEOPLE)] + [round(PEOPLE * log(2 * PEOPLE))], "f8")

FloatArray = npt.NDArray[np.float64]


class Observations(NamedTuple):
    """What entities are to learn from transactions, as columns of n.

    digests uint64 (n, 4), 0 where absent; time_ms int64; tile int64 (short); thousandths float64, whole; person uint8.
    """

    digests: npt.NDArray[np.uint64]
    time_ms: npt.NDArray[np.int64]
    tile: npt.NDArray[np.int64]
    thousandths: FloatArray
    person: npt.NDArray[np.uint8]

    def of(self, rows: npt.NDArray[np.int64] | slice) -> "Observations":
        """Some of them, in that order."""
        return Observations(self.digests[rows], self.time_ms[rows], self.tile[rows], self.thousandths[rows], self.person[rows])


def observations(events: Events) -> Observations:
    """The columns that windows are made from; what isn't spending or has no rate counts with a sum of 0."""
    digests = np.empty((len(events), len(ENTITIES)), np.uint64)
    for slot, name in enumerate(ENTITIES):
        digests[:, slot] = events[name]
    time_ms = np.minimum(np.maximum(events["time_ms"], MIN_TIME_MS), MAX_TIME_MS)
    thousandths = np.minimum(np.maximum(np.floor(events["amount"] * AMOUNT_SCALE + 0.5), 0.0), MAX_THOUSANDTHS)
    spent = _SPENDS[events["kind"]] & ~np.isnan(thousandths)
    person = (events["user"] >> np.uint64(56)).astype(np.uint8)
    return Observations(digests, time_ms, time_ms // SHORT_TILE_MS, np.where(spent, thousandths, 0.0), person)


@compiled
def number_entities(digests: Any, shards: Any, shard: Any) -> Any:
    """Number the distinct entities of one shard in order of appearance.

    Returns (slot of each uint8 (m,), digest of each uint64 (m,), index from 1 uint16 (n, 4), 0 where absent or elsewhere).
    """
    n = digests.shape[0]
    size = 16
    while size < 8 * n:
        size *= 2
    table = np.zeros(size, np.uint16)
    mask = np.uint64(size - 1)
    slots, keys = np.empty(4 * n, np.uint8), np.empty(4 * n, np.uint64)
    index = np.zeros((n, 4), np.uint16)
    found = 0
    for i in range(n):
        for slot in range(4):
            digest = digests[i, slot]
            if digest == 0 or digest % np.uint64(shards) != np.uint64(shard):
                continue
            place = (digest ^ (digest >> np.uint64(32)) ^ np.uint64(slot)) & mask
            while table[place] != 0:
                known = table[place] - 1
                if keys[known] == digest and slots[known] == slot:
                    break
                place = (place + np.uint64(1)) & mask
            if table[place] == 0:
                slots[found], keys[found] = slot, digest
                found += 1
                table[place] = found
            index[i, slot] = table[place]
    return slots[:found], keys[:found], index


@compiled
def _crowd_size(seen: Any) -> Any:
    """Distinct users, from how many of the 256 values were seen (with a fraction where a tile was apportioned)."""
    whole = int(seen)
    if whole >= PEOPLE:
        return _CROWD[PEOPLE]
    return _CROWD[whole] + (seen - whole) * (_CROWD[whole + 1] - _CROWD[whole])


@compiled
def _write_windows(out: Any, clock_ms: Any, counts: Any, sums: Any, people: Any) -> None:
    """Write the six windows of one entity.

    counts, sums and people are float64 (4,): whole short tiles, the oldest short tile, whole long tiles, the oldest long
    tile. sums are thousandths.
    """
    short = (SHORT_TILE_MS - clock_ms % SHORT_TILE_MS) / SHORT_TILE_MS  # the part of the oldest tile that is still inside
    long = (LONG_TILE_MS - clock_ms % LONG_TILE_MS) / LONG_TILE_MS
    out[0] = counts[0] + short * counts[1]
    out[1] = counts[2] + long * counts[3]
    out[2] = (sums[0] + short * sums[1]) / AMOUNT_SCALE
    out[3] = (sums[2] + long * sums[3]) / AMOUNT_SCALE
    out[4] = _crowd_size(people[0] + short * people[1])
    out[5] = _crowd_size(people[2] + long * people[3])


@compiled
def write_windows(present: Any, clock_ms: Any, counts: Any, sums: Any, people: Any, values: Any) -> None:
    """The windows of one kind of entity: present bool (n,), clock_ms int64 (n,), the others (n, 4); values float32 (n, 6)."""
    for i in range(present.size):
        if present[i]:
            _write_windows(values[i], clock_ms[i], counts[i], sums[i], people[i])


@compiled
def read_rows(
    wide: Any, narrow: Any, small: Any, tiny: Any, people_bytes: Any, index: Any, rows: Any, values: Any, sequences: Any
) -> Any:
    """Read the answer of one call: windows into values (n, 24), numbers into sequences (n, 4). False if it is cut short.

    wide, narrow, small and tiny are the tiles of the answer as float64, uint32, uint16 and uint8; index (m, 4) is what the
    records of the call said, rows (m,) which transactions they are.
    """
    counts, sums, people = np.empty(4), np.empty(4), np.empty(4)
    at, place = np.int64(0), np.int64(0)  # in bytes
    for record in range(index.shape[0]):
        for slot in range(4):
            if index[record, slot] == 0:
                continue
            if at + HEADER_BYTES > tiny.size:
                return False
            sequence, clock_ms = wide[at // 8], np.int64(wide[at // 8 + 1])
            latest = np.int64(narrow[at // 4 + 4])
            short, long, crowd = np.int64(tiny[at + 20]), np.int64(tiny[at + 21]), np.int64(small[at // 2 + 11])
            at += HEADER_BYTES
            if at + TILE_BYTES * (short + long) > tiny.size or place + 4 * crowd > people_bytes.size:
                return False
            counts[:], sums[:], people[:] = 0.0, 0.0, 0.0
            latest_long = latest // SHORT_IN_LONG
            for tile in range(short + long):
                if tile < short:
                    which = 1 if narrow[at // 4] == latest - SHORT_TILES_BACK else 0
                else:
                    which = 3 if narrow[at // 4] == latest_long - LONG_TILES_BACK else 2
                counts[which] += narrow[at // 4 + 1]
                sums[which] += wide[at // 8 + 1]
                at += TILE_BYTES
            short_begins = latest - SHORT_TILES_BACK
            long_begins = (latest_long - LONG_TILES_BACK) * SHORT_IN_LONG
            for mark in range(place + crowd, place + 4 * crowd, 3):
                last = people_bytes[mark] | np.int64(people_bytes[mark + 1]) << 8 | np.int64(people_bytes[mark + 2]) << 16
                if last >= short_begins:
                    people[1 if last == short_begins else 0] += 1.0
                if last >= long_begins:
                    people[3 if last < long_begins + SHORT_IN_LONG else 2] += 1.0
            place += 4 * crowd
            row = rows[record]
            first = slot * WINDOWS_PER_ENTITY
            _write_windows(values[row, first : first + WINDOWS_PER_ENTITY], clock_ms, counts, sums, people)
            sequences[row, slot] = np.int64(sequence)
    return at == tiny.size and place == people_bytes.size
