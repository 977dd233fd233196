"""Profile rows while they are worked on: gathered for a micro-batch, folded in an overlay, made durable later.

Micro-batches overlap, so the newest row of a user may not be durable yet. Each micro-batch has its own copy, so that a row
never carries folds of a later one into the log. Rows used lately are kept too: a look-up on disk costs 10-20 us.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from assay.schemas import limits
from assay.tables.profile import ROW_BYTES, Rows, gather


class StoredRows(Protocol):
    """What is durable of one worker; `tables.store.RowStore` is it."""

    def get(self, partition: int, keys: Sequence[bytes]) -> list[bytes | None]: ...


class FoldedRow(NamedTuple):
    """A row as it is after its folds, and the source offset of the last of them."""

    row: bytes
    last_offset: int


Folded = dict[int, dict[bytes, FoldedRow]]  # {source partition: {user: row}}


class UserKey(NamedTuple):
    """A user as a worker sees one: source partition and record key (UTF-8 user_id)."""

    partition: int
    user: bytes


@dataclass(slots=True)
class Gathered:
    """The rows of one micro-batch: its own copy, to be folded in place.

    Attributes:
        users: one for each row.
        rows: ROW (len(users),).
        slots: int32 (n,): the row of each event.
    """

    users: list[UserKey]
    rows: Rows
    slots: npt.NDArray[np.int32]


@dataclass(slots=True)
class _Held:
    row: bytes
    folds_in_flight: int = 0


class WorkingRows:
    """The newest row of each user of this worker: what is in flight, what was used lately, else what is on disk."""

    def __init__(self, store: StoredRows, max_rows: int = limits.RECENT_ROWS) -> None:
        self._store, self._max_rows = store, max_rows
        self._held: OrderedDict[UserKey, _Held] = OrderedDict()

    def gather(self, users: Sequence[UserKey]) -> Gathered:
        """The rows for the users of n events, in order; users may repeat."""
        index: dict[UserKey, int] = {}
        slots = np.fromiter((index.setdefault(user, len(index)) for user in users), np.int32, len(users))
        distinct = list(index)
        found: list[bytes | None] = []
        missing: dict[int, list[int]] = {}
        for position, user in enumerate(distinct):
            held = self._held.get(user)
            found.append(held.row if held else None)
            if held is None:
                missing.setdefault(user.partition, []).append(position)
        for partition, positions in missing.items():
            rows = self._store.get(partition, [distinct[position].user for position in positions])
            for position, row in zip(positions, rows, strict=True):
                found[position] = row
        return Gathered(distinct, gather(found), slots)

    def folded(self, gathered: Gathered, fresh: npt.NDArray[np.bool_]) -> Folded:
        """Take note of the rows that were folded (`fresh`: (n,), which events were): they are the newest now."""
        packed, last_offsets = gathered.rows.tobytes(), gathered.rows["last_offset"].tolist()
        changed: Folded = {}
        for position in sorted(set(gathered.slots[fresh].tolist())):
            user = gathered.users[position]
            row = packed[position * ROW_BYTES : (position + 1) * ROW_BYTES]
            held = self._held.get(user)
            if held is None:
                held = self._held[user] = _Held(row)
            else:
                held.row = row
                self._held.move_to_end(user)
            held.folds_in_flight += 1
            changed.setdefault(user.partition, {})[user.user] = FoldedRow(row, last_offsets[position])
        return changed

    def durable(self, micro_batches: Sequence[Folded]) -> None:
        """The rows of these micro-batches are on disk: they may be forgotten here."""
        for folded in micro_batches:
            for partition, rows in folded.items():
                for user in rows:
                    if (held := self._held.get(UserKey(partition, user))) is not None:
                        held.folds_in_flight -= 1
        for _ in range(len(self._held) - self._max_rows):
            oldest, held = next(iter(self._held.items()))
            if held.folds_in_flight > 0:
                self._held.move_to_end(oldest)
            else:
                del self._held[oldest]

    def clear(self) -> None:
        """Forget everything: partitions changed hands."""
        self._held.clear()
