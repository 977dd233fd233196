"""Entities of their own, payments to observe, and the bits that the offline fold says they have to answer."""

import uuid
from typing import Any

import numpy as np

from assay.tables.entities import Entities
from assay.tables.entity_answer import EntityAnswer
from assay.tables.entity_fold import EntityWindows
from assay.tables.entity_layout import ENTITIES
from assay.tables.events import EVENT, Events
from assay.tables.features import ENTITY_FEATURES

START_MS = 1_760_000_000_000
HOUR_MS = 3_600_000
UNHURRIED_S = 30.0  # where a test is not about the deadline


def fresh(url: str, **options: Any) -> Entities:
    """Entities of a prefix that nobody else has."""
    options = {"prefix": uuid.uuid4().hex[:12], "deadline": UNHURRIED_S, "fingerprint": "of a key", **options}
    return Entities(url, **options)


def payments(n: int, seed: int = 1, *, few: int = 12, step_ms: int = 20_000) -> tuple[Events, np.ndarray]:
    """Events (n,) with entities that return, absent ones and some out of order; and their partitions."""
    generator = np.random.default_rng(seed)
    events = np.zeros(n, EVENT)
    events["offset"] = np.arange(n)
    events["time_ms"] = START_MS + np.cumsum(generator.integers(0, step_ms, n))
    late = generator.random(n) < 0.1
    events["time_ms"][late] -= generator.integers(0, 3 * HOUR_MS, int(late.sum()))
    events["amount"] = np.round(generator.lognormal(3, 2, n), 2)
    events["amount"][generator.random(n) < 0.05] = np.nan
    events["kind"] = generator.integers(0, 6, n)
    events["user"] = generator.integers(1, 2**64, n, np.uint64)
    for name in ENTITIES:
        events[name] = generator.integers(0, few, n).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return events, generator.integers(0, 4, n)


async def observe(entities: Entities, events: Events, partitions: np.ndarray, size: int = 10**6) -> EntityAnswer:
    """Observes in micro-batches of a size, all of which must be answered; the answers as one."""
    parts = []
    for i in range(0, len(events), size):
        parts.append(await entities.observe(events[i : i + size], partitions[i : i + size]))
        assert parts[-1].available, parts[-1].reason
    values, sequences = (np.concatenate([getattr(part, name) for part in parts]) for name in ("values", "sequences"))
    return EntityAnswer(values, sequences, available=True)


def expected(events: Events) -> EntityAnswer:
    return EntityAnswer(*EntityWindows().observe(events), available=True)


def assert_same(got: EntityAnswer, want: EntityAnswer) -> None:
    assert got.available, got.reason
    assert got.values[:, :ENTITY_FEATURES].tobytes() == want.values[:, :ENTITY_FEATURES].tobytes()
    assert np.array_equal(got.sequences, want.sequences)
