"""Changes: what became known of transactions, as arrays. The risk windows of entities are made from them.

One change is a difference, so that a reversal takes back exactly what it reverses: together, those of one transaction are
never less than nothing. A change belongs to the time of its transaction, whenever it became known.
"""

import numpy as np
import numpy.typing as npt

from assay.tables.events import Events
from assay.tables.spilled import Spilled

CHANGED_KINDS = ("user", "instrument", "bin", "merchant", "device", "address")  # entities that learn of it, by digest
COUNTED = ("issuer_declines", "verdicts", "disputes", "frauds")  # verdicts: our own declines, from the tier full alone

CHANGE = np.dtype(
    [
        ("offset", "<i8"),  # of the record that made it known; within a partition they ascend
        ("partition", "<i4"),  # of that record
        ("time_ms", "<i8"),  # event time of the transaction: epoch, milliseconds
        *[(kind, "<u8") for kind in CHANGED_KINDS],  # digests; 0 where absent
        *[(count, "i1") for count in COUNTED],  # differences: +1 and -1
        ("thousandths", "<f8"),  # difference of the amount of fraud: whole thousandths of the base currency's major unit
    ]
)

Changes = npt.NDArray[np.void]


def changes_of_labels(
    events: Events | Spilled, fraud: npt.NDArray[np.bool_], delay_ms: int
) -> tuple[Changes, npt.NDArray[np.int64]]:
    """What labels (n,) say of events (n,) in the order of their time, where nothing else is told of how they became known.

    Each fraud becomes known `delay_ms` after its event. Returns changes (m,) in that order, and the number of the event that
    each is known before, int64 (m,): the first event at that time or later, after its own.
    """
    times = np.maximum.accumulate(events["time_ms"])
    rows = np.flatnonzero(fraud)
    told = events[rows]
    _, firsts = np.unique(told[["user", "id"]], return_index=True)  # one that comes again is no second fraud
    firsts.sort()
    rows, told = rows[firsts], told[firsts]
    known_before = np.maximum(np.searchsorted(times, told["time_ms"] + delay_ms), rows + 1)
    order = np.argsort(known_before, kind="stable")
    told = told[order]
    changes = np.zeros(len(rows), CHANGE)
    for name in ("offset", "time_ms", *CHANGED_KINDS):
        changes[name] = told[name]
    changes["frauds"] = 1
    changes["thousandths"] = np.nan_to_num(np.rint(told["amount"] * 1000.0))
    return changes, known_before[order].astype(np.int64)


def with_declines(
    events: Events | Spilled, declined: npt.NDArray[np.bool_], changes: Changes, known_before: npt.NDArray[np.int64]
) -> tuple[Changes, npt.NDArray[np.int64]]:
    """Changes (m,) and the event that each is known before, and among them our declines of events, bool (n,).

    A decline is known from the next event on.
    """
    own, next_ = changes_of_labels(events, declined, 0)
    own["frauds"], own["thousandths"], own["verdicts"] = 0, 0.0, 1
    known = np.concatenate([known_before, next_])
    order = np.argsort(known, kind="stable")
    return np.concatenate([changes, own])[order], known[order]
