"""Events that ask, changes that became known before them, and all features of risk that two kinds of entities can have."""

from itertools import product

import numpy as np
from hypothesis import strategies as st

from assay.tables.changes import CHANGE, COUNTED, Changes
from assay.tables.events import EVENT, Events
from assay.tables.features import DAY, HOUR, MINUTE, MONTH, TEN_MINUTES, WEEK, Feature, Origin
from assay.tables.risk_fold import RiskWindows
from assay.tables.risk_layout import columns_of

START_MS = 1_760_000_000_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
KINDS = ("user", "merchant")
LONG, SHORT = (WEEK, MONTH), (MINUTE, TEN_MINUTES, HOUR, DAY)
ASKED = [
    *product(KINDS, ("issuer_declines", "declined", "disputes"), SHORT + LONG),
    *product(KINDS, ("frauds", "fraud_sum", "fraud_share"), LONG),
]
BLOCK = ("merchant_matured_604800", "merchant_matured_2592000", "user_matured_604800", "user_matured_2592000")


def feature(entity: str, measure: str, window_s: int) -> Feature:
    return Feature(f"{entity}_{measure}_{window_s}", "", entity, window_s, Origin.RISK, 0, 0, -1.0, 0.0, measure=measure)


COLUMNS = columns_of([feature(*asked) for asked in ASKED], BLOCK)

History = tuple[Events, Changes, np.ndarray]  # the last: the event that each change is known before
UNITS = {MINUTE_MS: 70, HOUR_MS: 30, DAY_MS: 45}  # how many of each come into play


def _times(generator: np.random.Generator, unit_ms: int, n: int) -> np.ndarray:
    """At the edges of tiles, beside them and within them."""
    beside = generator.choice([0, 0, 1, -1, unit_ms // 3], n)
    return generator.integers(0, UNITS[unit_ms], n) * unit_ms + beside


def history(seed: int, unit_ms: int, events: int, changes: int) -> History:
    """Changes of transactions from before `START_MS`, and events that ask: after it, or as long ago, so that some are late."""
    generator = np.random.default_rng(seed)
    asking, known = np.zeros(events, EVENT), np.zeros(changes, CHANGE)
    asking["time_ms"] = START_MS + _times(generator, unit_ms, events) * generator.choice([1, 1, -1])
    known["time_ms"] = START_MS - _times(generator, unit_ms, changes)
    for kind in KINDS:
        asking[kind] = generator.choice([0, 1, 1, 1, 2], events)
        known[kind] = generator.choice([0, 1, 1, 1, 2], changes)
    for count in COUNTED:
        known[count] = generator.choice([-1, 0, 1, 1], changes)
    known["thousandths"] = generator.integers(-(10**6), 10**9, changes)
    return asking, known, np.sort(generator.integers(0, events + 1, changes))


# Drawn by a seed: lists that are drawn element by element stay too short for tiles to be met again.
histories = st.builds(history, st.integers(0, 2**32), st.sampled_from(list(UNITS)), st.integers(1, 12), st.integers(0, 60))


def events_at(*times_ms: int, digest: int = 1) -> Events:
    """Events of one user and merchant, so long after `START_MS`."""
    events = np.zeros(len(times_ms), EVENT)
    events["time_ms"] = START_MS + np.array(times_ms)
    for kind in KINDS:
        events[kind] = digest
    return events


def change(**values: int) -> Changes:
    """One change of a transaction at `START_MS`."""
    one = np.zeros(1, CHANGE)
    one["time_ms"] = START_MS
    for name, value in values.items():
        one[name] = value
    return one


def windows_of(count: int) -> np.ndarray:
    return np.arange(count * len(BLOCK), dtype=np.float32).reshape(count, len(BLOCK))


def replayed(events: Events, changes: Changes, known_before: np.ndarray) -> np.ndarray:
    return RiskWindows(COLUMNS, changes, known_before).read(events, np.arange(len(events)), windows_of(len(events)))
