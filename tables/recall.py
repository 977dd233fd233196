"""Recall: which events of a batch are transactions that already have a decision.

A row remembers its user's last decisions. Each event is held against those as they would stand if the batch had come
one event at a time, so that a batch's size decides nothing (invariant I4).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from assay.tables.compiled import compiled
from assay.tables.events import Events
from assay.tables.profile import Rows

NEW = -1
ALREADY_FOLDED = 1 << 20  # far above any position in a ring

Array = npt.NDArray[Any]


@compiled
def _same(row: Any, place: Any, event: Any) -> Any:
    return row.decision_id[place, 0] == event.id[0] and row.decision_id[place, 1] == event.id[1]


@compiled
def _in_ring(row: Any, event: Any, pending: Any) -> Any:
    """Its position in the ring of decisions, less the oldest that `pending` new ones push out; -1 if it has none."""
    size = len(row.decision_offset)
    for turn in range(max(row.attempts + pending - size, 0), row.attempts):
        if _same(row, turn % size, event):
            return turn % size
    return -1


@compiled
def _in_batch(events: Array, earlier: Array, latest: Any, event: Any, horizon: Any) -> Any:
    """The new event of this user in this batch with the same id, among the last `horizon`; -1 if there is none."""
    place = latest
    for _ in range(horizon):
        if place < 0:
            break
        if events[place].id[0] == event.id[0] and events[place].id[1] == event.id[1]:
            return place
        place = earlier[place]
    return -1


@compiled
def _recall(rows: Array, slots: Array, events: Array, repeats: Array) -> None:
    latest = np.full(len(rows), -1)  # by row: its latest new event in this batch
    earlier = np.empty(len(events), np.int64)  # by event: the new one of the same row before it
    rank = np.empty(len(events), np.int64)  # by event: how many new ones of the same row came before it
    for i in range(len(events)):
        slot = slots[i]
        row, event, last = rows[slot], events[i], latest[slot]
        pending = rank[last] + 1 if last >= 0 else 0
        first = _in_batch(events, earlier, last, event, len(row.decision_offset))
        place = _in_ring(row, event, pending)
        if first >= 0:
            repeats[i] = -(first + 2)
        elif place >= 0:
            repeats[i] = place
        elif event.offset <= row.last_offset:
            repeats[i] = ALREADY_FOLDED
        else:
            repeats[i] = NEW
            earlier[i], rank[i], latest[slot] = last, pending, i


def recall(rows: Rows, slots: npt.NDArray[np.int32], events: Events, repeats: npt.NDArray[np.int64]) -> None:
    """Writes into `repeats` (n,) int64 what each event is to its row:

    - NEW: a transaction not seen among the user's last decisions: it is to be folded and judged;
    - 0 and up: the position of its decision in the row's `decision_*` rings;
    - -(first + 2): the same transaction as event `first` of this batch;
    - ALREADY_FOLDED: the row was folded past its source offset and its decision has left the ring. It is not to be judged
      anew: its decision lies in the topic, after the commit that the replay began at.

    `rows` (users,) ROW; `slots` (n,) int32: the row of each event; `events` (n,) EVENT.
    """
    _recall(rows, slots, events, repeats)
