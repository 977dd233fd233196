"""The fold against a plain reference in Python, and the rules that hold for every feature."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.schemas.transaction import Kind
from assay.tables.events import NO_OFFSET, Events
from assay.tables.features import FEATURE_COUNT, NAMES, PROFILE_FEATURES
from assay.tables.fold import SPENDING, fold, recall
from assay.tables.profile import ROW_BYTES, new_rows

from .folded import DAY, HOUR, MINUTE, START, WINDOWS, events_of, features_of, named, run

amounts = st.one_of(st.floats(0.01, 5_000), st.sampled_from([0.0, math.nan, 1e12, 0.01]))
steps = st.one_of(st.integers(0, 90_000), st.integers(0, 3 * HOUR), st.integers(0, 20 * DAY), st.integers(-2 * DAY, 0))
degrees = st.one_of(st.just(math.nan), st.floats(-80, 80, width=32))


@st.composite
def streams(draw: st.DrawFn, max_size: int = 120) -> Events:
    """Streams with hot users, late events, repeated ids, amounts without a rate, and all that may be absent."""
    size = draw(st.integers(1, max_size))
    described, now = [], START
    for _ in range(size):
        step = draw(steps)
        described.append(
            {
                "id": draw(st.integers(1, max(size, 2))),
                "time_ms": now + step,
                "amount": draw(amounts),
                "user": draw(st.sampled_from([1, 1, 1, 2, 3])),
                "merchant": draw(st.integers(1, 25)),
                "device": draw(st.integers(0, 9)),
                "instrument": draw(st.integers(0, 3)),
                "country": draw(st.integers(0, 9)),
                "kind": draw(st.integers(0, len(Kind) - 1)),
                "latitude": draw(degrees),
                "longitude": draw(degrees),
                "card_present": draw(st.integers(0, 1)),
                "utc_offset_minutes": draw(st.sampled_from([NO_OFFSET, 0, 60, -300])),
            }
        )
        now = max(now, now + step)
    return events_of(*described)


# --- I4 ------------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(streams(), st.data())
def test_i4_features_and_rows_do_not_depend_on_the_batches(events: Events, data: st.DataObject) -> None:
    whole = run(events)
    ones = run(events, [1] * len(events))
    cut = data.draw(st.integers(0, len(events)))
    two = run(events, [cut, len(events) - cut])
    for other in (ones, two):
        assert whole[0].tobytes() == other[0].tobytes()
        assert whole[1].tobytes() == other[1].tobytes()


def test_i4_a_batch_of_256_equals_256_batches_of_one_and_a_replay() -> None:
    generator = np.random.default_rng(4)
    events = events_of(*[{"user": user, "id": key} for user, key in generator.integers(1, 200, (1_024, 2))])
    events["user"][::3] = 1
    events["time_ms"] += np.cumsum(generator.integers(-60_000, 90_000, len(events)))
    events["amount"] = generator.lognormal(3, 1, len(events))
    events["merchant"] = generator.integers(1, 60, len(events))
    replay = run(events)
    for sizes in ([256] * 4, [1] * 1_024):
        other = run(events, sizes)
        assert replay[0].tobytes() == other[0].tobytes()
        assert replay[1].tobytes() == other[1].tobytes()


@settings(max_examples=30, deadline=None)
@given(streams(60), st.data())
def test_i4_a_row_that_was_stored_half_way_is_folded_on_from_there(events: Events, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(events)))
    whole, expected, _ = run(events)
    users, slots = np.unique(events["user"], return_inverse=True)
    rows, slots, repeats = new_rows(len(users)), slots.astype(np.int32), np.empty(len(events), np.int64)
    features = np.full_like(whole, -7.0)
    recall(rows, slots[:cut], events[:cut], repeats[:cut])
    fold(rows, slots[:cut], events[:cut], repeats[:cut], features[:cut])
    rows = np.frombuffer(bytearray(rows.tobytes()), rows.dtype)  # as after a crash: the commit is behind the row
    recall(rows, slots, events, repeats)
    fold(rows, slots, events, repeats, features)
    assert rows.tobytes() == expected.tobytes()
    assert features.tobytes() == whole.tobytes()


# --- windows -------------------------------------------------------------------------------------------------------


def spent(event: np.void) -> float:
    return float(event["amount"]) if event["kind"] in SPENDING and not math.isnan(event["amount"]) else 0.0


@settings(max_examples=60, deadline=None)
@given(streams(32))
def test_windows_are_exact_where_the_ring_reaches_back(events: Events) -> None:
    events["user"], events["id"] = 1, np.stack([np.arange(len(events)), np.ones(len(events))], 1)
    features = run(events)[0]
    clock = 0
    for place, event in enumerate(events):
        clock = max(clock, int(event["time_ms"]))
        got = named(features[place])
        for name, length in WINDOWS.items():
            inside = [before for before in events[:place] if before["time_ms"] > clock - length]
            assert got[f"count_{name}"] == len(inside) + 1
            assert got[f"sum_{name}"] == pytest.approx(sum(map(spent, inside)) + spent(event), rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([40_000, 600_000, 3_000_000, 20_000_000]))
def test_long_windows_lie_between_those_without_and_with_their_oldest_tile(seed: int, mean_step_ms: int) -> None:
    generator = np.random.default_rng(seed)
    events = events_of(*[{}] * 400)
    late = generator.choice([0, 0, 0, 2 * HOUR], len(events))
    events["time_ms"] += np.cumsum(generator.exponential(mean_step_ms, len(events)).astype(np.int64)) - late
    events["amount"] = generator.lognormal(3, 1, len(events))
    features = run(events)[0]
    for place in range(0, len(events), 7):
        clock = events["time_ms"][: place + 1].max()
        got, before = named(features[place]), events[:place]
        for name, tile in (("1h", HOUR), ("24h", HOUR), ("7d", DAY), ("30d", DAY)):
            begins = clock - WINDOWS[name]
            oldest = begins // tile * tile
            inner, outer = before["time_ms"] >= oldest + tile, before["time_ms"] >= oldest
            assert inner.sum() + 1 <= got[f"count_{name}"] * (1 + 1e-6)
            assert got[f"count_{name}"] <= outer.sum() + 1 + 1e-3
            own = events["amount"][place]
            assert (before["amount"][inner].sum() + own) * (1 - 1e-5) <= got[f"sum_{name}"]
            assert got[f"sum_{name}"] <= (before["amount"][outer].sum() + own) * (1 + 1e-5)


def test_long_windows_of_a_steady_user_are_near_the_exact_ones() -> None:
    events = events_of(*[{}] * 4_000)
    events["time_ms"] += np.cumsum(np.random.default_rng(7).exponential(DAY / 60, len(events)).astype(np.int64))
    features = run(events)[0]
    for name in ("7d", "30d"):
        column = NAMES.index(f"count_{name}")
        for place in range(2_000, 4_000, 100):
            exact = (events["time_ms"][: place + 1] > events["time_ms"][place] - WINDOWS[name]).sum()
            assert features[place, column] == pytest.approx(exact, rel=0.06)


def test_a_user_who_comes_back_after_a_year_has_empty_windows() -> None:
    described = [{"time_ms": START + minute * MINUTE} for minute in range(50)]
    last = features_of(*described, {"time_ms": START + 365 * DAY})[-1]
    assert [last[f"count_{name}"] for name in WINDOWS] == [1] * 5
    assert last["user_count"] == 50


def test_sums_of_the_largest_amounts_do_not_wrap() -> None:
    described = [{"amount": 1e12, "time_ms": START + second * 1000} for second in range(2_000)]
    last = features_of(*described)[-1]
    assert last["sum_24h"] == pytest.approx(2_000e12, rel=1e-4)
    assert last["sum_30d"] == pytest.approx(2_000e12, rel=1e-4)
    assert last["amount_z"] == 0


def test_a_tile_counter_stops_at_its_limit_instead_of_beginning_again() -> None:
    last = features_of(*[{}] * 70_000)[-1]
    assert last["count_30d"] == 65_536
    assert last["user_count"] == 69_999


# --- time ----------------------------------------------------------------------------------------------------------


def test_a_late_event_does_not_turn_the_clock_back_and_lands_in_its_own_window() -> None:
    late = {"time_ms": START - 2 * HOUR}
    first, second, third = features_of({}, late, {"time_ms": START + MINUTE // 2})
    assert second["since_last_s"] == 0
    assert second["count_1h"] == 2  # the first, and itself
    assert third["since_last_s"] == 30
    assert third["count_1h"] == 2
    assert third["count_24h"] == 3
    assert third["user_age_s"] == 7_230  # first seen when the late one happened
    assert first["user_age_s"] == 0


@settings(max_examples=40, deadline=None)
@given(streams())
def test_no_age_distance_or_speed_is_negative_but_where_it_is_declared_absent(events: Events) -> None:
    features, rows, repeats = run(events)
    for name in ("user_age_s", "user_count", "amount_mean", "amount_deviation", *(f"count_{w}" for w in WINDOWS)):
        assert (features[repeats == -1, NAMES.index(name)] >= 0).all()
    for name in ("device_age_s", "merchant_count", "distance_km", "speed_kmh", "since_last_s"):
        column = features[repeats == -1, NAMES.index(name)]
        assert ((column >= 0) | (column == -1)).all()
    assert (rows["squares"] >= 0).all()


# --- bounds --------------------------------------------------------------------------------------------------------


def test_a_row_fits_two_kilobytes() -> None:
    assert ROW_BYTES <= 2_048


def test_nothing_is_written_beyond_the_profile_features() -> None:
    features = run(events_of({}, {}))[0]
    assert (features[:, PROFILE_FEATURES:] == -7).all()
    assert (features[:, :PROFILE_FEATURES] != -7).all()


def test_an_empty_batch_is_folded_to_nothing() -> None:
    events = events_of()
    fold(new_rows(0), np.zeros(0, np.int32), events, np.zeros(0, np.int64), np.zeros((0, FEATURE_COUNT), np.float32))
