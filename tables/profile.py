"""The profile: all that is remembered of one user, as one fixed-width row.

Times are event times. Money is float32 where it is one amount or the sum of one tile (a relative error of 6e-8, as in
the features, and no sum can wrap), and float64 where it accumulates for ever. Counts in tiles stop at 65,535.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from assay.schemas.errors import ChangelogError
from assay.schemas.limits import DECISIONS_REMEMBERED_PER_USER

LAYOUT_VERSION = 1
RING = 32  # recent events: exact windows as far back as they reach
HOURS, DAYS = 25, 32  # tiles: the windows of 24 hours and of 30 days, and the tile that each begins in
NEVER_MS = -(2**62)  # before every event time
NO_SOURCE_OFFSET = -1


def _tiles(size: int) -> np.dtype[np.void]:
    """Counts and sums per hour or day since the epoch, in UTC; tile k holds the index k modulo `size`."""
    return np.dtype(
        [
            ("head", "<i4"),  # the latest index that was seen
            ("spent", "<f4", (size,)),
            ("attempts", "<u2", (size,)),
            ("spends", "<u2", (size,)),
        ],
        align=True,
    )


def _known(size: int) -> np.dtype[np.void]:
    """The last `size` merchants, devices ... that the user was seen with; the least recently seen makes room."""
    return np.dtype(
        [
            ("key", "<u4", (size,)),  # of the digest, the lower half: it need only differ within this row
            ("first_s", "<u4", (size,)),
            ("last_s", "<u4", (size,)),
            ("count", "<u2", (size,)),  # stops at 65,535; 0: a free place
        ],
        align=True,
    )


_REMEMBERED = DECISIONS_REMEMBERED_PER_USER

# No padding: equal rows are equal bytes, however they were copied.
ROW = np.dtype(
    [
        ("layout", "<i8"),
        ("last_offset", "<i8"),  # source offset of the last event folded: none at or before it may be folded again
        ("attempts", "<i8"),  # events of all kinds: also the position in both rings
        ("spends", "<i8"),  # those that count as spending, with a known amount
        ("first_ms", "<i8"),  # when the user was first seen
        ("last_ms", "<i8"),  # the user's clock: the latest event time so far
        ("evicted_ms", "<i8"),  # the latest event time that has left the ring
        # Of the amounts spent, by Welford's method: mean, sum of squared differences from it, and the largest.
        ("mean", "<f8"),
        ("squares", "<f8"),
        ("largest", "<f8"),
        # Where the card was last present, and when.
        ("present_ms", "<i8"),
        ("present_latitude", "<f4"),
        ("present_longitude", "<f4"),
        # The ring of recent events.
        ("recent_ms", "<i8", (RING,)),
        ("recent_amount", "<f4", (RING,)),
        ("recent_kind", "u1", (RING,)),
        ("hours", _tiles(HOURS)),
        ("days", _tiles(DAYS)),
        ("merchants", _known(18)),
        ("devices", _known(6)),
        ("instruments", _known(6)),
        ("countries", _known(6)),
        # Where the last decisions lie: the source record of each, and when that was appended.
        ("decision_id", "<u8", (_REMEMBERED, 2)),
        ("decision_offset", "<i8", (_REMEMBERED,)),
        ("decision_appended_ms", "<i8", (_REMEMBERED,)),
    ],
    align=True,
)
ROW_BYTES = ROW.itemsize

Rows = npt.NDArray[np.void]


def new_rows(count: int) -> Rows:
    """Rows of users never seen, (count,) ROW."""
    rows = np.zeros(count, ROW)
    rows["layout"] = LAYOUT_VERSION
    rows["last_offset"] = NO_SOURCE_OFFSET
    for name in ("first_ms", "last_ms", "evicted_ms", "present_ms"):
        rows[name] = NEVER_MS
    return rows


def new_row() -> np.void:
    """The row of a user never seen: a ROW scalar of its own."""
    row: np.void = new_rows(1)[0]
    return row


def last_offset_of(row: bytes) -> int:
    """The source offset of the last event that was folded into a stored row.

    >>> last_offset_of(new_row().tobytes())
    -1
    """
    return int.from_bytes(row[_LAST_OFFSET], "little", signed=True)


_NEW_ROW_BYTES = new_rows(1).tobytes()
_AT = ROW.fields["last_offset"][1] if ROW.fields else 0
_LAST_OFFSET = slice(_AT, _AT + 8)


def gather(values: Sequence[bytes | None]) -> Rows:
    """Stored rows as one array of their own, (n,) ROW; None is a user never seen.

    Raises ChangelogError where a value is not a row of this layout.
    """
    for value in values:
        if value is not None and len(value) != ROW_BYTES:
            raise _foreign(f"{len(value)} bytes")
    rows = np.frombuffer(bytearray().join([_NEW_ROW_BYTES if value is None else value for value in values]), ROW)
    foreign = rows["layout"] != LAYOUT_VERSION
    if foreign.any():
        raise _foreign(f"layout {rows['layout'][foreign][0]}")
    return rows


def _foreign(got: str) -> ChangelogError:
    return ChangelogError(
        "a stored profile is not a row of this version",
        expected=f"{ROW_BYTES} bytes of layout {LAYOUT_VERSION}",
        got=got,
        mend="run the version that wrote it, or stop the workers and run `assay rebuild`",
    )
