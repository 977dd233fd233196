"""Transactions as events."""

import math
from typing import Any

import numpy as np
import pytest

from assay.schemas.transaction import Channel, Kind, Transaction
from assay.tables.digests import OFFLINE
from assay.tables.encode import encode_events
from assay.tables.events import EVENT, NO_OFFSET
from assay.tables.rates import Rates

RATES = Rates.load()
BARE: dict[str, Any] = {
    "transaction_id": "t-1",
    "user_id": "u-1",
    "amount": "12.34",
    "currency": "EUR",
    "timestamp": 1_700_000_000_000,
    "merchant": {"id": "m-1"},
}
FULL = BARE | {
    "kind": "refund",
    "merchant": {"id": "m-1", "category": "0763", "country": "FR"},
    "instrument": {"id": "i-1", "bin": "400000", "issuer_country": "DE"},
    "location": {"country": "US", "latitude": 40.5, "longitude": -74.25, "time_zone": "America/New_York"},
    "device": {"id": "d-1", "ip": "192.0.2.7", "type": "phone"},
    "channel": "atm",
}


def encoded(**fields: Any) -> np.void:
    event: np.void = encode_events([Transaction.model_validate(BARE | fields)], [41], [1_700_000_000_500], RATES, OFFLINE)[0]
    return event


def test_every_field_of_a_full_transaction_is_where_its_name_says() -> None:
    event = encoded(**FULL)
    expected = {
        "offset": 41,
        "time_ms": 1_700_000_000_000,
        "appended_ms": 1_700_000_000_500,
        "amount": 12.34,
        "user": OFFLINE.of64("u-1"),
        "instrument": OFFLINE.of64("i-1"),
        "bin": OFFLINE.of64("400000"),
        "merchant": OFFLINE.of64("m-1"),
        "device": OFFLINE.of64("d-1"),
        "address": OFFLINE.of_address("192.0.2.7"),
        "latitude": 40.5,
        "longitude": -74.25,
        "country": ord("U") * 256 + ord("S"),
        "merchant_country": ord("F") * 256 + ord("R"),
        "issuer_country": ord("D") * 256 + ord("E"),
        "category": 763,
        "utc_offset_minutes": -300,
        "kind": list(Kind).index(Kind.REFUND),
        "channel": 1 + list(Channel).index(Channel.ATM),
        "card_present": 1,
    }
    assert {name: event[name] for name in expected} == expected
    assert set(expected) | {"id"} == set(EVENT.names or ())


def test_what_is_absent_is_marked_so() -> None:
    event = encoded()
    for name in ("instrument", "bin", "device", "address", "country", "merchant_country", "issuer_country", "category"):
        assert event[name] == 0
    assert event["channel"] == event["card_present"] == event["kind"] == 0
    assert math.isnan(event["latitude"])
    assert math.isnan(event["longitude"])
    assert event["utc_offset_minutes"] == NO_OFFSET


def test_parts_without_their_optional_fields_are_absent_too() -> None:
    event = encoded(instrument={}, device={}, location={"latitude": 1.5})
    assert event["instrument"] == event["bin"] == event["device"] == event["address"] == event["country"] == 0
    assert math.isnan(event["latitude"])  # half a place is none


def test_local_time_is_of_the_zone_else_of_the_offset_else_absent() -> None:
    summer, zone = "2024-07-01T12:00:00+05:30", {"time_zone": "Europe/Berlin"}
    assert encoded(timestamp=summer, location=zone)["utc_offset_minutes"] == 120
    assert encoded(timestamp="2024-01-01T12:00:00Z", location=zone)["utc_offset_minutes"] == 60
    assert encoded(timestamp=summer)["utc_offset_minutes"] == 330


@pytest.mark.parametrize("moment", ["2023-11-14T22:13:20Z", "2023-11-14T22:13:20+00:00", 1_700_000_000_000])
def test_a_moment_in_utc_tells_no_local_time_however_it_is_written(moment: str | int) -> None:
    event = encoded(timestamp=moment)
    assert (event["time_ms"], event["utc_offset_minutes"]) == (1_700_000_000_000, NO_OFFSET)


@pytest.mark.parametrize(
    ("moment", "offset"), [("2024-04-06T14:59:59Z", 660), ("2024-04-06T15:00:00Z", 630), ("2024-10-05T15:30:00Z", 660)]
)
def test_clocks_change_at_the_minute_even_by_half_an_hour(moment: str, offset: int) -> None:
    assert encoded(timestamp=moment, location={"time_zone": "Australia/Lord_Howe"})["utc_offset_minutes"] == offset


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York", "Africa/Monrovia"])
@pytest.mark.parametrize("time_ms", [0, 253_402_300_799_999])
def test_the_first_and_the_last_moment_that_can_be_sent_are_encoded(zone: str, time_ms: int) -> None:
    assert encoded(timestamp=time_ms, location={"time_zone": zone})["time_ms"] == time_ms


def test_amounts_are_in_the_base_currency_of_the_day_and_not_a_number_without_a_rate() -> None:
    assert encoded(currency="USD")["amount"] == pytest.approx(RATES.rate("USD", 1_700_000_000_000) * 12.34)
    assert math.isnan(encoded(currency="FJD")["amount"])


def test_ids_are_compared_by_128_bits() -> None:
    one, same, other = (encoded(transaction_id=key)["id"] for key in ("a", "a", "b"))
    assert (one == same).all()
    assert (one != other).all()


def test_an_ipv6_subscriber_is_one_address() -> None:
    assert OFFLINE.of_address("2001:db8:1:2::1") == OFFLINE.of_address("2001:0DB8:1:2:ffff::9")
    assert OFFLINE.of_address("2001:db8:1:2::1") != OFFLINE.of_address("2001:db8:1:3::1")
    assert OFFLINE.of_address("::ffff:192.0.2.7") == OFFLINE.of_address("192.0.2.7")
    assert OFFLINE.of_address("192.0.2.7") != OFFLINE.of_address("192.0.2.8")


def test_i4_events_do_not_depend_on_the_batches() -> None:
    transactions = [Transaction.model_validate(FULL | {"transaction_id": str(number)}) for number in range(20)]
    whole = encode_events(transactions, range(20), range(20), RATES, OFFLINE)
    ones = [encode_events([t], [i], [i], RATES, OFFLINE) for i, t in enumerate(transactions)]
    assert whole.tobytes() == b"".join(one.tobytes() for one in ones)
    assert encode_events([], [], [], RATES, OFFLINE).shape == (0,)
