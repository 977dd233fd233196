"""What single features of a profile mean: hours, money, devices, merchants, places; and what stands for what is not there."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.schemas.transaction import Channel, Kind
from assay.tables.events import NO_OFFSET
from assay.tables.features import FEATURES, NAMES, PROFILE_FEATURES, Origin
from assay.tables.fold import SPENDING

from .folded import DAY, HOUR, KIND, START, events_of, features_of, run


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
