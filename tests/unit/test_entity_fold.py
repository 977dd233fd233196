"""Entity windows, offline: against a plain reading of what a window is, and against golden vectors."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.tables import features
from assay.tables.entity_fold import EntityWindows
from assay.tables.entity_layout import ABSENT, ENTITIES, SPENDING, WINDOWS_PER_ENTITY
from assay.tables.events import EVENT, Events

START_MS = 1_760_000_000_000
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
GOLDEN = Path(__file__).parents[1] / "golden" / "entity_windows.json"

steps = st.one_of(
    st.integers(0, 90_000),
    st.integers(-20 * MINUTE_MS, 20 * MINUTE_MS),
    st.integers(-30 * HOUR_MS, 30 * HOUR_MS),
    st.sampled_from([5 * MINUTE_MS, HOUR_MS, 24 * HOUR_MS, 25 * HOUR_MS, -HOUR_MS]),
)
rows = st.tuples(
    steps,
    st.one_of(st.just(float("nan")), st.integers(0, 10**7).map(lambda cents: cents / 100)),
    st.integers(0, 5),  # kind
    st.integers(0, 6),  # user
    st.tuples(*[st.integers(0, 3)] * len(ENTITIES)),  # 0: absent
)


def events_of(drawn: list[tuple[int, float, int, int, tuple[int, ...]]]) -> Events:
    """Events whose times are sums of the steps drawn."""
    events = np.zeros(len(drawn), EVENT)
    time_ms = START_MS
    for i, (step, amount, kind, user, entities) in enumerate(drawn):
        time_ms += step
        events[i]["time_ms"], events[i]["amount"], events[i]["kind"], events[i]["offset"] = time_ms, amount, kind, i
        events[i]["user"] = (user + 1) << 56
        for name, entity in zip(ENTITIES, entities, strict=True):
            events[name][i] = entity * 0x9E3779B97F4A7C15 % 2**64
    return events


def read_plainly(events: Events) -> np.ndarray:
    """The windows, from the definition: whole tiles inside, and the oldest by the part of it that is inside."""
    values = np.full((len(events), len(ENTITIES) * WINDOWS_PER_ENTITY), ABSENT)
    for slot, name in enumerate(ENTITIES):
        history: dict[int, list[tuple[int, float, int]]] = defaultdict(list)
        for i, event in enumerate(events):
            if event[name] == 0:
                continue
            seen = history[int(event[name])]
            spent = round(float(event["amount"]), 3) if event["kind"] in SPENDING and event["amount"] >= 0 else 0.0
            seen.append((int(event["time_ms"]), spent, int(event["user"])))
            clock = max(time for time, _, _ in seen)
            for w, (tile_ms, back) in enumerate([(5 * MINUTE_MS, 12), (HOUR_MS, 24)]):
                newest = clock // tile_ms
                share = 1 - clock % tile_ms / tile_ms
                parts = []
                for time, spent, _ in seen:
                    behind = newest - time // tile_ms
                    part = 1.0 if behind < back else share if behind == back else 0.0
                    parts.append((part, part * spent))
                last = {user: max(time for time, _, other in seen if other == user) for _, _, user in seen}
                behind = [newest - time // tile_ms for time in last.values()]
                at = slot * WINDOWS_PER_ENTITY + w
                values[i, at] = sum(part for part, _ in parts)
                values[i, at + 2] = sum(spent for _, spent in parts)
                values[i, at + 4] = sum(1.0 if b < back else share if b == back else 0.0 for b in behind)
    return values


@settings(max_examples=60, deadline=None)
@given(st.lists(rows, min_size=1, max_size=40))
def test_windows_are_what_their_definition_says(drawn: list) -> None:
    events = events_of(drawn)
    np.testing.assert_allclose(EntityWindows().observe(events)[0], read_plainly(events), rtol=1e-5, atol=2e-3)


@settings(max_examples=30, deadline=None)
@given(st.lists(rows, min_size=1, max_size=40), st.integers(1, 7))
def test_how_events_are_batched_changes_no_bit(drawn: list, size: int) -> None:
    events = events_of(drawn)
    whole, parts = EntityWindows(), EntityWindows()
    values, sequences = whole.observe(events)
    batches = [parts.observe(events[i : i + size]) for i in range(0, len(events), size)]
    assert values.tobytes() == np.concatenate([batch[0] for batch in batches]).tobytes()
    assert np.array_equal(sequences, np.concatenate([batch[1] for batch in batches]))


def test_golden_vectors_hold_offline() -> None:
    golden = json.loads(GOLDEN.read_text())
    events = np.zeros(len(golden["events"]), EVENT)
    for name in golden["columns"]:
        events[name] = [row[golden["columns"].index(name)] for row in golden["events"]]
    values, sequences = EntityWindows().observe(events)
    assert values.astype("<f4").tobytes().hex() == "".join(golden["values"])
    assert sequences.tolist() == golden["sequences"]


def test_columns_are_those_of_the_feature_list() -> None:
    windows = ("count_1h", "count_24h", "sum_1h", "sum_24h", "users_1h", "users_24h")
    expected = tuple(f"{entity}_{window}" for entity in ENTITIES for window in windows)
    windows = slice(features.PROFILE_FEATURES, features.PROFILE_FEATURES + features.ENTITY_FEATURES)
    assert features.NAMES[windows] == expected
    assert {feature.absent for feature in features.FEATURES[windows]} == {ABSENT}


@pytest.mark.parametrize(("users", "tolerance"), [(1, 0.0), (5, 0.0), (30, 0.2), (200, 0.2), (800, 0.4)])
def test_crowds_are_counted_roughly_and_few_exactly(users: int, tolerance: float) -> None:
    events = np.zeros(2 * users, EVENT)
    generator = np.random.default_rng(4)
    digests = generator.integers(1, 2**64, users, np.uint64)
    if tolerance == 0.0:
        digests = np.arange(1, users + 1, dtype=np.uint64) << np.uint64(56)
    events["user"], events["merchant"], events["time_ms"] = np.tile(digests, 2), 7, START_MS
    values, _ = EntityWindows().observe(events)
    assert values[-1, 10] == pytest.approx(users, rel=tolerance)
    assert values[-1, 6] == 2 * users


def test_a_growing_world_keeps_each_entity_apart() -> None:
    events = np.zeros(40_000, EVENT)
    events["instrument"] = np.arange(40_000) % 20_000 + 1
    events["user"], events["time_ms"], events["amount"] = 1 << 56, START_MS, 1.0
    values, sequences = EntityWindows().observe(events)
    assert (sequences[:20_000, 0] == 1).all()
    assert (sequences[20_000:, 0] == 2).all()
    assert (values[20_000:, 2] == 2.0).all()
