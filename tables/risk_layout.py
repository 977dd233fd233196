"""The layout of the rows of risk, and how the features of risk are read out of them.

A row (`risk_windows.lua` writes it; little-endian):

    header   24 bytes: sequence f8, clock f8 (ms), how many tiles of minutes, hours and days there are (u1 each), 5 unused
    tiles    32 bytes each: number u4, then how many issuer declines, verdicts, disputes, frauds (i4 each), 4 unused, and the
             amount of fraud f8 (thousandths of the base currency's major unit); by ring, oldest first

Each change is in up to three rings, by the time of its transaction: 61 minutes, 25 hours and 38 days up to the row's clock,
which is the latest time of a transaction so far. Windows end at the time of the event that asks, not at that clock: what is
read depends on the row and the event alone. Frauds are counted in windows that end a label delay earlier, as in the Fraud
Detection Handbook (Le Borgne et al., 2022, "terminal ID transformations"), so that what is young and has no label yet
doesn't look genuine. A tile that a window begins or ends in counts by the part of it that lies inside; the newest, at the
time of the event, counts whole.

A fraud share is the m-estimate of Cestnik ("Estimating probabilities: a crucial task in machine learning", ECAI 1990):
(frauds + m * prior) / (matured + m), where `matured` are the attempts in that same window, of the entity windows.

All arithmetic that could round is in this file, for Redis rows and for the offline fold.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.tables.changes import CHANGED_KINDS
from assay.tables.compiled import compiled
from assay.tables.events import Events
from assay.tables.features import DAY, FRAUD_PRIOR, FRAUD_PRIOR_WEIGHT, HOUR, LABEL_DELAY_S, MINUTE, Feature

MARKER = b"r"  # of the keys; rows of another layout need another one
ABSENT = -1.0

HEADER_BYTES = 24
TILE_BYTES = 32
TILE_S = (MINUTE, HOUR, DAY)
TILES_BACK = (60, 24, 37)  # how far behind the clock's tile the oldest lies
MEASURES = ("issuer_declines", "declined", "disputes", "frauds", "fraud_sum", "fraud_share")  # those of a tile first
FRAUDS, FRAUD_SUM, FRAUD_SHARE = 3, 4, 5
MIN_TIME_MS = (TILES_BACK[-1] + 1) * DAY * 1000  # no tile that a window reaches back to has a negative number
MAX_TIME_MS = (2**24 - 1) * 300_000  # as in the entity windows: until the year 2129
MAX_THOUSANDTHS = 1e15
TILE_MS = np.array(TILE_S) * 1000
PRIOR = np.array([FRAUD_PRIOR, FRAUD_PRIOR_WEIGHT])

# A column: of which kind, which measure, which count of a tile (the one after them is the amount), from which ring, over how
# many tiles, how many tiles before the event it ends, and where in the block from Redis a share finds what it divides by.
COLUMN = np.dtype([(name, "<i8") for name in ("kind", "measure", "cell", "ring", "tiles", "delay", "matured")])
_NOTHING, _UNREADABLE = -1, -2  # instead of where a row begins


def columns_of(features: Sequence[Feature], block: Sequence[str]) -> npt.NDArray[np.void]:
    """What it takes to compute features of risk, (c,) COLUMN. block: the names of all columns from Redis.

    Raises ValueError for one that can't be had: a measure or an entity that rows don't have, a window that no ring holds.
    """
    return np.array([_column(feature, block) for feature in features], COLUMN)


def _column(feature: Feature, block: Sequence[str]) -> tuple[int, ...]:
    window_s, measure = feature.window_s or 0, MEASURES.index(feature.measure)
    delay = LABEL_DELAY_S // DAY if measure >= FRAUDS else 0
    ring = 2 if delay else next((ring for ring in range(3) if window_s <= TILES_BACK[ring] * TILE_S[ring]), 2)
    tiles = window_s // TILE_S[ring]
    if not 0 < tiles + delay <= TILES_BACK[ring] or window_s % TILE_S[ring]:
        raise ValueError(f"{feature.name}: no ring holds a window of {window_s} seconds")
    matured = _matured(feature, block) if measure == FRAUD_SHARE else -1
    cell = FRAUDS if measure == FRAUD_SHARE else measure
    return CHANGED_KINDS.index(feature.entity), measure, cell, ring, tiles, delay, matured


def _matured(share: Feature, block: Sequence[str]) -> int:
    """The column that a fraud share divides by: the attempts in its window."""
    name = share.name.replace("_fraud_share_", "_matured_")
    if name not in block:
        raise ValueError(f"{share.name} divides by {name}, which the list must have, too")
    return block.index(name)


def whole_thousandths(thousandths: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Amounts as rows hold them: whole, bounded, and of an amount and its reversal one the negative of the other."""
    whole: npt.NDArray[np.float64] = np.clip(np.nan_to_num(np.rint(thousandths)), -MAX_THOUSANDTHS, MAX_THOUSANDTHS)
    return whole


def times_of(time_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Event times as rows hold them and windows end at: bounded."""
    return np.clip(time_ms, MIN_TIME_MS, MAX_TIME_MS)


@compiled
def _value(column: Any, time_ms: Any, tile_ms: Any, sums: Any, matured: Any, prior: Any) -> Any:
    """A feature from sums float64 (3,): of the whole tiles, of the one its window begins in and of the one it ends in.

    prior: float64 (2,), the share that is expected of an entity without history, and how many attempts that weighs.
    """
    into = (time_ms % tile_ms) / tile_ms
    total = max(sums[0] + (1.0 - into) * sums[1] + into * sums[2], 0.0)
    if column.measure == FRAUD_SUM:
        return total / 1000.0
    if column.measure == FRAUD_SHARE:
        return min((total + prior[1] * prior[0]) / (matured + prior[1]), 1.0)
    return total


@compiled
def write_columns(
    present: Any, time_ms: Any, columns: Any, tile_ms: Any, sums: Any, windows: Any, prior: Any, out: Any
) -> None:
    """Features float32 (n, c) of one kind, where it is present bool (n,), from sums float64 (n, c, 3) and the block (n, b)."""
    for i in range(present.size):
        for c in range(columns.size):
            column = columns[c]
            matured = windows[i, column.matured] if column.matured >= 0 else np.float32(0.0)
            value = _value(column, time_ms[i], tile_ms[column.ring], sums[i, c], np.float64(matured), prior)
            out[i, c] = value if present[i] else ABSENT


@compiled
def _read_tiles(tiny: Any, narrow: Any, wide: Any, start: Any, column: Any, newest: Any, sums: Any) -> None:
    """Sums of a column from the row that begins at the byte `start`; `newest` is the tile that its window ends in."""
    at = start + HEADER_BYTES
    for ring in range(column.ring):
        at += TILE_BYTES * tiny[start + 16 + ring]
    sums[:] = 0.0
    for _ in range(tiny[start + 16 + column.ring]):
        back = newest - narrow[at // 4]
        if 0 <= back <= column.tiles:
            part = 1 if back == column.tiles else 2 if back == 0 and column.delay > 0 else 0
            if column.cell == FRAUD_SUM:
                sums[part] += wide[at // 8 + 3]
            else:
                sums[part] += narrow[at // 4 + 1 + column.cell]
        at += TILE_BYTES


@compiled
def _read_rows(
    views: Any, starts: Any, index: Any, time_ms: Any, columns: Any, tile_ms: Any, windows: Any, prior: Any, out: Any
) -> None:
    """Features float32 (n, c) from rows that begin at starts (r,), or _NOTHING or _UNREADABLE; index (n, kinds) into them."""
    tiny, narrow, wide = views
    sums = np.zeros(3)
    for i in range(index.shape[0]):
        for c in range(columns.size):
            column = columns[c]
            row = index[i, column.kind]
            if row < 0:
                out[i, c] = ABSENT
                continue
            if starts[row] == _UNREADABLE:
                out[i, c] = np.nan
                continue
            sums[:] = 0.0
            width = tile_ms[column.ring]
            if starts[row] != _NOTHING:
                _read_tiles(tiny, narrow, wide, starts[row], column, time_ms[i] // width - column.delay, sums)
            matured = windows[i, column.matured] if column.matured >= 0 else np.float32(0.0)
            out[i, c] = _value(column, time_ms[i], width, sums, np.float64(matured), prior)


def read_rows(
    rows: Sequence[bytes | None],
    index: npt.NDArray[np.int32],
    events: Events,
    columns: npt.NDArray[np.void],
    windows: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.int64], int]:
    """Write the features of events (n,) into out (n, c).

    Returns how many changes the rows have seen, int64 (n, 6), 0 where there is none, and how many rows can't be read.
    index (n, 6) says which row belongs to event and kind, -1 where the event has no such entity; windows (n, block) are the
    columns from Redis. Of a row that can't be read nothing is known: NaN.
    """
    readable = [row if row is not None and _is_row(row) else b"" for row in rows]
    starts = np.array(list(accumulate(map(len, readable), initial=0))[:-1], np.int64)
    for number, (row, kept) in enumerate(zip(rows, readable, strict=True)):
        if not kept:
            starts[number] = _NOTHING if row is None else _UNREADABLE
    tiny = np.frombuffer(b"".join(readable), np.uint8)
    wide = np.require(tiny.view(np.float64), requirements="A")  # a copy where the bytes don't lie as compiled loops need them
    views = (wide.view(np.uint8), wide.view(np.int32), wide)
    _read_rows(views, starts, index, times_of(events["time_ms"]), columns, TILE_MS, windows, PRIOR, out)
    counted = np.zeros(len(starts) + 1, np.int64)  # the last: of those that have no row
    there = np.flatnonzero(starts >= 0)
    with np.errstate(invalid="ignore"):  # whatever stands there
        counted[there] = wide[starts[there] // 8].astype(np.int64)
    return counted[index], int(np.count_nonzero(starts == _UNREADABLE))


def _is_row(row: bytes) -> bool:
    return len(row) >= HEADER_BYTES and len(row) == HEADER_BYTES + TILE_BYTES * sum(row[16:19])
