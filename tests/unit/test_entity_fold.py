"""Entity windows, offline: against a plain reading of what a window is, and against golden vectors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.tables import entity_state
from assay.tables.entity_fold import EntityWindows
from assay.tables.events import EVENT
from assay.tables.features import ENTITY_FEATURES, NAMES, PROFILE_FEATURES
from tests.entity_reference import START_MS, built, drawn_events, referred

GOLDEN = Path(__file__).parents[1] / "golden" / "entity_windows.json"
WINDOW = {name: column for column, name in enumerate(NAMES[PROFILE_FEATURES:])}


@settings(max_examples=120, deadline=None)
@given(drawn_events)
def test_windows_are_what_their_definition_says(drawn: list[Any]) -> None:
    events = built(drawn)
    values, sequences = EntityWindows().observe(events)
    expected, numbers = referred(events)
    np.testing.assert_allclose(values[:, :ENTITY_FEATURES], expected, rtol=1e-5, atol=2e-3)
    assert np.array_equal(sequences, numbers)


@settings(max_examples=30, deadline=None)
@given(drawn_events, st.integers(1, 7))
def test_how_events_are_batched_changes_no_bit(drawn: list[Any], size: int) -> None:
    events = built(drawn)
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
    columns = [WINDOW[name] for name in golden["windows"]]
    assert values[:, columns].astype("<f4").tobytes().hex() == "".join(golden["values"])
    assert sequences.tolist() == golden["sequences"]


@pytest.mark.parametrize(("users", "tolerance"), [(1, 0.0), (5, 0.0), (30, 0.2), (200, 0.2), (800, 0.4)])
def test_crowds_are_counted_roughly_and_few_exactly(users: int, tolerance: float) -> None:
    events = np.zeros(2 * users, EVENT)
    generator = np.random.default_rng(4)
    digests = generator.integers(1, 2**64, users, np.uint64)
    if tolerance == 0.0:
        digests = np.arange(1, users + 1, dtype=np.uint64) << np.uint64(56)
    events["user"], events["merchant"], events["time_ms"] = np.tile(digests, 2), 7, START_MS
    values, _ = EntityWindows().observe(events)
    assert values[-1, WINDOW["merchant_users_1h"]] == pytest.approx(users, rel=tolerance)
    assert values[-1, WINDOW["merchant_count_1h"]] == 2 * users


def test_a_growing_world_keeps_each_entity_apart() -> None:
    events = np.zeros(40_000, EVENT)
    events["instrument"] = np.arange(40_000) % 20_000 + 1
    events["user"], events["time_ms"], events["amount"] = 1 << 56, START_MS, 1.0
    values, sequences = EntityWindows().observe(events)
    assert (sequences[:20_000, 0] == 1).all()
    assert (sequences[20_000:, 0] == 2).all()
    assert (values[20_000:, WINDOW["instrument_sum_1h"]] == 2.0).all()


def test_an_instrument_and_a_device_of_the_same_digest_are_two_entities() -> None:
    events = np.zeros(2, EVENT)
    events["user"], events["time_ms"], events["instrument"], events["device"] = 1, START_MS, [7, 0], [0, 7]
    assert EntityWindows().observe(events)[1].tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 1, 0]]


def test_running_out_of_room_in_the_middle_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    events = np.zeros(3_000, EVENT)
    generator = np.random.default_rng(8)
    events["user"] = generator.integers(1, 2**64, 3_000, np.uint64)
    events["merchant"], events["time_ms"] = generator.integers(1, 4, 3_000), START_MS + np.arange(3_000) * 900_000
    roomy = EntityWindows()
    roomy._state = entity_state.State(0, 10**6, 10**6)
    assert EntityWindows().observe(events)[0].tobytes() == roomy.observe(events)[0].tobytes()
