"""The fold against a plain reference in Python, and the rules that hold for every feature."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.schemas.transaction import Channel, Kind
from assay.tables.events import EVENT, NO_OFFSET, Events
from assay.tables.features import FEATURE_COUNT, FEATURES, NAMES, PROFILE_FEATURES, Origin
from assay.tables.fold import SPENDING, fold, recall
from assay.tables.profile import ROW_BYTES, new_rows

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


@pytest.mark.parametrize(
    ("time_ms", "offset", "hour", "weekend", "night"),
    [
        (START, 0, 22, 0, 0),
        (START, 120, 0, 0, 1),
        (START, -330, 16, 0, 0),
        (START + 4 * DAY, 0, 22, 1, 0),  # Saturday
        (START + 3 * DAY, 120, 0, 1, 1),  # Friday in UTC
        (START, NO_OFFSET, -1, -1, -1),
        (0, -60, 23, 0, 0),  # a Wednesday
    ],
)
def test_hours_are_local_and_absent_without_a_zone(time_ms: int, offset: int, hour: int, weekend: int, night: int) -> None:
    (got,) = features_of({"time_ms": time_ms, "utc_offset_minutes": offset})
    assert (got["local_hour"], got["weekend"], got["night"]) == (hour, weekend, night)


# --- money ---------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.01, 1e6), min_size=3, max_size=60))
def test_means_and_ratios_are_of_what_came_before(values: list[float]) -> None:
    last = features_of(*[{"amount": value} for value in values])[-1]
    before, amount = np.array(values[:-1]), values[-1]
    deviation = before.std(ddof=1)
    assert last["amount_mean"] == pytest.approx(before.mean(), rel=1e-5)
    assert last["amount_deviation"] == pytest.approx(deviation, rel=1e-4, abs=1e-4)
    assert last["amount_ratio"] == pytest.approx(amount / before.mean(), rel=1e-5)
    assert last["amount_to_max"] == pytest.approx(amount / before.max(), rel=1e-5)
    assert last["amount_z"] == pytest.approx((amount - before.mean()) / max(deviation, 1), rel=1e-3, abs=1e-3)
    assert last["amount_ratio_30d"] == pytest.approx(amount / before.mean(), rel=1e-5)


@pytest.mark.parametrize("kind", [Kind.REFUND, Kind.REVERSAL, Kind.VERIFICATION])
def test_refunds_reversals_and_verifications_are_attempts_and_never_spending(kind: Kind) -> None:
    other = {"kind": KIND[kind], "amount": 500.0}
    own, last = features_of({}, {"amount": 20.0}, other, {"amount": 30.0})[2:]
    assert own["count_1h"] == 3
    assert own["sum_1h"] == 30
    assert own["amount_ratio"] == pytest.approx(500 / 15)
    assert last["count_1h"] == 4
    assert last["sum_30d"] == 60
    assert last["amount_mean"] == 15
    assert last["amount_to_max"] == 1.5
    assert last["merchant_count"] == 3


def test_the_kinds_that_count_as_spending_are_the_ones_of_the_schema() -> None:
    assert [list(Kind)[index] for index in SPENDING] == [Kind.PURCHASE, Kind.PREAUTH, Kind.RECURRING]
    assert len(Channel) == 5


def test_an_amount_without_a_rate_is_not_a_number_and_poisons_nothing() -> None:
    own, last = features_of({}, {}, {"amount": math.nan}, {"amount": 30.0})[2:]
    for name in ("amount", "amount_z", "amount_ratio", "amount_ratio_7d", "amount_to_max"):
        assert math.isnan(own[name])
    assert own["count_1h"] == 3
    assert last["sum_1h"] == 50
    assert last["amount_mean"] == 10
    assert not any(math.isnan(value) for value in list(last.values())[:PROFILE_FEATURES])


# --- absent, never, unavailable ------------------------------------------------------------------------------------


def test_what_was_never_seen_and_what_is_absent_have_their_declared_values() -> None:
    (bare,) = features_of({"merchant": 7})
    full = {"device": 1, "instrument": 2, "country": 3, "latitude": 50, "longitude": 8, "card_present": 1}
    (rich,) = features_of(full)
    for feature in FEATURES[:PROFILE_FEATURES]:
        if feature.source is Origin.PROFILE and feature.name.endswith(("_age_s", "_count", "_km", "_kmh")):
            assert rich[feature.name] == feature.never
        if not math.isnan(feature.absent) and not feature.name.startswith("merchant_count"):
            assert bare[feature.name] == (feature.never if feature.name == "merchant_age_s" else feature.absent)
    for name in ("since_last_s", "amount_mean", "amount_z", "amount_ratio", "amount_to_max"):
        assert bare[name] == FEATURES[NAMES.index(name)].never


def test_what_is_known_of_a_device_is_its_age_and_how_often_it_was_seen() -> None:
    described = [{"device": 5}, {"device": 5, "time_ms": START + 9_000}, {"device": 6, "time_ms": START + 20_000}]
    second, third = features_of(*described)[1:]
    assert (second["device_age_s"], second["device_count"], second["devices_24h"]) == (9, 1, 1)
    assert (third["device_age_s"], third["device_count"], third["devices_24h"]) == (0, 0, 2)


def test_the_least_recently_seen_device_makes_room() -> None:
    described = [{"device": device, "time_ms": START + device * 1000} for device in range(1, 7)]  # all six places
    again = {"device": 1, "time_ms": START + 8_000}
    new = {"device": 9, "time_ms": START + 9_000}  # drops 2
    last = features_of(*described, again, new, {"device": 1, "time_ms": START + 10_000})[-1]
    assert last["device_count"] == 2
    last = features_of(*described, again, new, {"device": 2, "time_ms": START + 10_000})[-1]
    assert last["device_count"] == 0
    assert last["devices_24h"] == 7


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 16), st.integers(0, 2 * DAY // 1000)), min_size=1, max_size=60))
def test_distinct_merchants_are_exact_while_the_table_holds_them_all(visits: list[tuple[int, int]]) -> None:
    events = events_of(*[{"merchant": merchant} for merchant, _ in visits])
    events["time_ms"] = START // 1000 * 1000 + np.cumsum([seconds for _, seconds in visits]) * 1000
    features = run(events)[0]
    for place in range(len(events)):
        inside = events["time_ms"][: place + 1] > events["time_ms"][place] - DAY
        expected = len(np.unique(events["merchant"][: place + 1][inside]))
        assert features[place, NAMES.index("merchants_24h")] == expected


# --- places --------------------------------------------------------------------------------------------------------

BERLIN = {"latitude": 52.52, "longitude": 13.405}
PARIS = {"latitude": 48.8566, "longitude": 2.3522}


def test_distance_and_speed_are_from_where_the_card_was_last_present() -> None:
    here, online, there = features_of(
        {**BERLIN, "card_present": 1},
        {**PARIS, "time_ms": START + HOUR // 2},
        {**PARIS, "card_present": 1, "time_ms": START + HOUR},
    )
    assert (here["distance_km"], here["speed_kmh"]) == (0, 0)
    assert online["distance_km"] == pytest.approx(878, abs=2)
    assert online["speed_kmh"] == -1
    assert there["speed_kmh"] == pytest.approx(878, abs=2)


def test_a_late_payment_has_a_speed_and_does_not_move_the_card_back() -> None:
    late, after = features_of(
        {**BERLIN, "card_present": 1},
        {**PARIS, "card_present": 1, "time_ms": START - HOUR},
        {**BERLIN, "card_present": 1, "time_ms": START + HOUR},
    )[1:]
    assert late["speed_kmh"] == pytest.approx(878, abs=2)
    assert (after["distance_km"], after["speed_kmh"]) == (0, 0)


def test_two_payments_in_one_moment_have_a_finite_speed() -> None:
    there = features_of({**BERLIN, "card_present": 1}, {**PARIS, "card_present": 1})[-1]
    assert there["speed_kmh"] == pytest.approx(878 * 60, rel=0.01)


def test_countries_are_held_against_the_issuer_s() -> None:
    (got,) = features_of({"country": 5, "merchant_country": 6, "issuer_country": 5})
    assert (got["issuer_abroad"], got["merchant_abroad"]) == (0, 1)


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
