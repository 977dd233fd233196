"""Transactions as arrays: what the fold, the entity windows and the models see of them.

One event is one fixed-width record. Identifiers are digests (`tables.digests`): equality is all that is ever asked of them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from assay.tables.spilled import BLOCK, Spilled

NO_OFFSET = -32_768  # `utc_offset_minutes` where neither a zone nor an offset was given
_ODD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)  # so that three numbers become one

EVENT = np.dtype(
    [
        ("id", "<u8", (2,)),  # digest of the transaction id, 128 bits
        ("offset", "<i8"),  # of the source record
        ("time_ms", "<i8"),  # event time: epoch, milliseconds
        ("appended_ms", "<i8"),  # append time of the source record: epoch, milliseconds
        ("amount", "<f8"),  # base currency, major units; NaN where there is no rate
        ("user", "<u8"),  # digests; 0 where absent
        ("instrument", "<u8"),
        ("bin", "<u8"),  # of the instrument: its issuer's range
        ("merchant", "<u8"),
        ("device", "<u8"),
        ("address", "<u8"),
        ("latitude", "<f4"),  # degrees; NaN where absent
        ("longitude", "<f4"),
        ("country", "<u2"),  # of the location: two letters as one number; 0 where absent
        ("merchant_country", "<u2"),
        ("issuer_country", "<u2"),
        ("category", "<u2"),  # MCC; 0 where absent
        ("utc_offset_minutes", "<i2"),  # local time at the payment; NO_OFFSET where unknown
        ("kind", "u1"),  # index into `schemas.transaction.Kind`
        ("channel", "u1"),  # 1 + index into `Channel`; 0 where absent
        ("card_present", "u1"),  # channel pos or atm
    ],
    align=True,
)

Events = npt.NDArray[np.void]


def first_times(events: Events | Spilled) -> npt.NDArray[np.bool_]:
    """Which events are the first with their user and id, bool (n,)."""
    firsts = np.zeros(len(events), np.bool_)
    firsts[np.unique(names_of(events), return_index=True)[1]] = True
    return firsts


def names_of(events: Events | Spilled) -> npt.NDArray[np.uint64]:
    """User and transaction id of events as one number each, (n,): of two that differ the same once in 2^64."""
    names = np.empty(len(events), np.uint64)
    for start in range(0, len(events), BLOCK):
        part = events[start : start + BLOCK]
        names[start : start + BLOCK] = mixed(part["user"], part["id"][:, 0], part["id"][:, 1])
    return names


def mixed(user: Any, first: Any, second: Any) -> Any:
    """The number of a user and the two halves of an id, uint64."""
    with np.errstate(over="ignore"):
        return first ^ (second * _ODD[0]) ^ (user * _ODD[1])
