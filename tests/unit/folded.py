"""Described events, and what the fold makes of them."""

from typing import Any

import numpy as np

from assay.schemas.transaction import Kind
from assay.tables.events import EVENT, NO_OFFSET, Events
from assay.tables.features import FEATURE_COUNT, NAMES
from assay.tables.fold import fold, recall
from assay.tables.profile import new_rows

START = 1_700_000_000_000  # a Tuesday, 22:13:20 UTC
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
WINDOWS = {"1m": MINUTE, "1h": HOUR, "24h": DAY, "7d": 7 * DAY, "30d": 30 * DAY}
KIND = {kind: index for index, kind in enumerate(Kind)}


def events_of(*described: dict[str, Any]) -> Events:
    """Events, one a description; ids and offsets count up where they are not given."""
    events = np.zeros(len(described), EVENT)
    events["latitude"] = events["longitude"] = np.nan
    events["utc_offset_minutes"] = NO_OFFSET
    for place, fields in enumerate(described):
        events[place]["id"] = (place + 1, 0)
        events[place]["offset"] = place
        for name, value in {"time_ms": START, "amount": 10.0, "user": 1, "merchant": 7, **fields}.items():
            events[place][name] = (value, 0) if name == "id" else value
    return events


def run(events: Events, batches: list[int] | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, rows and repeats of events folded in batches of these sizes (all at once unless said)."""
    users, slots = np.unique(events["user"], return_inverse=True)
    rows, slots = new_rows(len(users)), slots.astype(np.int32)
    features = np.full((len(events), FEATURE_COUNT), -7.0, np.float32)
    repeats = np.empty(len(events), np.int64)
    start = 0
    for size in batches or [len(events)]:
        part = slice(start, start + size)
        recall(rows, slots[part], events[part], repeats[part])
        fold(rows, slots[part], events[part], repeats[part], features[part])
        start += size
    return features, rows, repeats


def named(features: np.ndarray) -> dict[str, float]:
    return dict(zip(NAMES, features.tolist(), strict=True))


def features_of(*described: dict[str, Any]) -> list[dict[str, float]]:
    return [named(row) for row in run(events_of(*described))[0]]
