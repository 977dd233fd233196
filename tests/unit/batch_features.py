"""Batch features of a made-up list, and events that look them up."""

from math import nan

import numpy as np

from assay.tables.batch_rows import BatchRows, name_digest, pack_row, pack_value
from assay.tables.events import EVENT, Events
from assay.tables.features import DAY, Feature, Origin

NOW_MS = 1_760_000_000_000
DAY_MS = DAY * 1000
NEVER = -7.0


def feature(name: str, entity: str = "merchant", allowed_age_s: int = 2 * DAY, absent: float = nan) -> Feature:
    return Feature(name, "what it measures", entity, None, Origin.BATCH, allowed_age_s, 0, absent, NEVER)


RATE, DAYS, SHARED = feature("rate"), feature("days", allowed_age_s=DAY), feature("shared", "device", absent=-1.0)
FAMILY = BatchRows((RATE, DAYS, SHARED), slice(0, 3))


def row(**values: tuple[float, int]) -> bytes:
    """Of name=(value, as-of time)."""
    return pack_row([pack_value(name_digest(name), value, as_of_ms) for name, (value, as_of_ms) in values.items()])


def read(rows: list[bytes | None], index: list[list[int]], time_ms: int = NOW_MS) -> tuple[np.ndarray, np.ndarray, int]:
    """(values (n, 3), ages in ms (n, 3), unreadable rows)"""
    events: Events = np.zeros(len(index), EVENT)
    events["time_ms"] = time_ms
    out = np.full((len(index), 3), np.inf, np.float32)
    windows = np.zeros((len(index), 3), np.float32)
    reading = FAMILY.read(rows, np.array(index, np.int32).reshape(-1, 2), events, windows, out)
    return out, reading.ages_ms, reading.unreadable
