"""Profiles of millions of made-up users: rows as the fold leaves them, no two alike, under keys spread evenly."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.schemas.transaction import Transaction
from assay.streams.simulator import simulate
from assay.tables.features import FEATURE_COUNT
from assay.tables.fold import fold
from assay.tables.profile import ROW, ROW_BYTES, Rows, new_rows
from assay.tables.rates import SHIPPED_RATES, Rates
from assay.tables.recall import recall
from assay.tables.replay import events_of

FOLDED_USERS, PAYMENTS_EACH = 400, 50
START_MS = 1_767_225_600_000
_DAY_MS = 86_400_000
_GOLDEN, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def folded_rows() -> Rows:
    """Rows of `FOLDED_USERS` simulated users with some weeks of history, (users,) ROW."""
    payments = simulate(seed=3, transactions=FOLDED_USERS * PAYMENTS_EACH, start_ms=START_MS, users=FOLDED_USERS)
    events = events_of((Transaction.model_validate(payment.transaction) for payment in payments), Rates.load(SHIPPED_RATES))
    users, inverse = np.unique(events["user"], return_inverse=True)
    rows, slots = new_rows(len(users)), inverse.astype(np.int32)
    repeats = np.empty(len(events), np.int64)
    recall(rows, slots, events, repeats)
    fold(rows, slots, events, repeats, np.zeros((len(events), FEATURE_COUNT), np.float32))
    return rows


def other_rows(folded: Rows, count: int, generator: np.random.Generator) -> Rows:
    """Rows of `count` other users with histories like those: digests, times, offsets and amounts are their own.

    So they compress as real rows do and no better, whatever block they share.
    """
    rows = folded[generator.integers(0, len(folded), count)]
    for name in ("merchants", "devices", "instruments"):
        known = rows[name]
        used = known["count"] > 0
        known["key"][used] = generator.integers(1, 2**32, np.count_nonzero(used), np.uint32)
        _add(known["first_s"], used, 3_600, generator)
    recent, decided = (np.arange(rows[ring].shape[1]) < rows["attempts"][:, None] for ring in ("recent_ms", "decision_offset"))
    rows["decision_id"][decided] = generator.integers(1, 2**64, (np.count_nonzero(decided), 2), np.uint64)
    _add(rows["decision_offset"], decided, 10**9, generator)
    _add(rows["decision_appended_ms"], decided, _DAY_MS, generator)
    _add(rows["recent_ms"], recent, _DAY_MS, generator)
    scale = generator.uniform(0.5, 2.0, count)
    for amounts in (rows["recent_amount"], rows["hours"]["spent"], rows["days"]["spent"]):
        amounts *= scale[:, None].astype(np.float32)
    for name in ("mean", "squares", "largest"):
        rows[name] *= scale
    return rows


def _add(
    values: npt.NDArray[np.integer[Any]], where: npt.NDArray[np.bool_], below: int, generator: np.random.Generator
) -> None:
    values[where] += generator.integers(0, below, np.count_nonzero(where), values.dtype)


def packed(rows: Rows) -> Iterator[bytes]:
    """One after another, as they are stored."""
    whole = rows.astype(ROW, copy=False).tobytes()
    return (whole[at : at + ROW_BYTES] for at in range(0, len(whole), ROW_BYTES))


def keys_of(users: npt.NDArray[np.int64]) -> list[bytes]:
    """A key for each number of a user: 16 hexadecimal digits, by the finalizer of splitmix64, which is one-to-one."""
    mixed = users.astype(np.uint64) + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    whole = mixed.astype(">u8").tobytes().hex().encode()
    return [whole[at : at + 16] for at in range(0, len(whole), 16)]
