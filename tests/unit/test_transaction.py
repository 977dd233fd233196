"""Every field and bound of a transaction."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from assay.schemas.codes import COUNTRIES, CURRENCY_DIGITS, currency_digits
from assay.schemas.formats import parse_json
from assay.schemas.instant import Instant
from assay.schemas.transaction import Channel, Kind, Transaction

LEAST = {
    "transaction_id": "t-1",
    "user_id": "u-1",
    "amount": "12.50",
    "currency": "EUR",
    "timestamp": 1_772_362_800_250,
    "merchant": {"id": "m-1"},
}


def transaction(**changes: object) -> Transaction:
    return Transaction.model_validate(LEAST | changes)


def refused(**changes: object) -> str:
    """The path of the first field that is complained of."""
    with pytest.raises(ValidationError) as raised:
        transaction(**changes)
    problem = raised.value.errors()[0]
    return problem.get("ctx", {}).get("field") or ".".join(map(str, problem["loc"]))


def from_json(text: str) -> Transaction:
    return Transaction.model_validate(parse_json(json.dumps(LEAST | {"amount": 0}).replace(": 0", ": " + text).encode()))


def test_the_least_transaction_has_defaults_for_the_rest() -> None:
    least = transaction()
    assert least.kind is Kind.PURCHASE
    assert (least.payment_id, least.instrument, least.location, least.device, least.channel) == (None,) * 5
    assert least.attributes == {}


@pytest.mark.parametrize("field", LEAST)
def test_a_required_field_is_required(field: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Transaction.model_validate({name: value for name, value in LEAST.items() if name != field})
    assert [(problem["type"], problem["loc"]) for problem in raised.value.errors()] == [("missing", (field,))]


@pytest.mark.parametrize(
    "text", ["0.1", "12345678901.23", "1e3", '"1.10"', "1000000000000", "0.10", "1.100", '"1E+3"', "0.1e1", "1e12"]
)
def test_an_amount_is_exact_to_the_digit(text: str) -> None:
    assert from_json(text).amount == Decimal(text.strip('"'))


@pytest.mark.parametrize(
    "text",
    [
        "-1", '"-1"', "-0.01", "1000000000000.01", "1e13", "1e999999999", "1e-999999999", '"1e999999999"', "0.1234567890",
        '"NaN"', '"Infinity"', '"sNaN"', '"1_000"', '" 1"', '"1 "', '"1,50"', '""', '".5"', '"5."', '"٣"', '"0x10"', '"+1"',
        "true", "null", "[1]", "{}", "9" * 4000, '"' + "9" * 4000 + '"', "0." + "1" * 60_000, "1." + "0" * 60_000, "0",
        "0.00", '"0"', "1.001", "0e999999999",
    ],
)  # fmt: skip
def test_what_is_no_amount_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValidationError) as raised:
        from_json(text)
    problem = raised.value.errors()[0]
    assert problem["loc"] == ("amount",) or problem["ctx"]["field"] == "amount"


def test_an_amount_that_went_through_a_float_is_refused() -> None:
    assert refused(amount=12.5) == "amount"


@pytest.mark.parametrize(
    ("currency", "digits"),
    [("JPY", 0), ("KRW", 0), ("XOF", 0), ("UYI", 0), ("EUR", 2), ("MGA", 2), ("KWD", 3), ("TND", 3), ("CLF", 4), ("UYW", 4)],
)
def test_an_amount_has_at_most_the_currencys_digits(currency: str, digits: int) -> None:
    assert currency_digits(currency) == digits
    most = Decimal(1).scaleb(-digits)
    assert transaction(currency=currency, amount=most).amount == most
    assert transaction(currency=currency, amount="1.0000000000").amount == 1
    assert refused(currency=currency, amount=most / 10) == "amount"


def test_jpy_with_a_half_is_refused() -> None:
    assert refused(currency="JPY", amount="1.5") == "amount"


def test_only_a_verification_is_of_nothing() -> None:
    assert transaction(kind="verification", amount=0).amount == 0
    for kind in Kind:
        if kind is not Kind.VERIFICATION:
            assert refused(kind=kind, amount="0.00") == "amount"


@given(st.integers(0, 10**14), st.integers(0, 2))
def test_any_amount_comes_back_from_its_json(units: int, digits: int) -> None:
    sent = transaction(amount=Decimal(units).scaleb(-digits) if units <= 10 ** (12 + digits) else 1, kind="verification")
    again = Transaction.model_validate(parse_json(sent.model_dump_json().encode()))
    assert again == sent
    assert "e" not in json.loads(sent.model_dump_json())["amount"].lower()


@pytest.mark.parametrize("field", ["transaction_id", "user_id", "payment_id"])
def test_an_id_is_1_to_128_printable_characters(field: str) -> None:
    for good in ("a", "x" * 128, "Ünïcode-✓ 1", "a b"):
        assert getattr(transaction(**{field: good}), field) == good
    for bad in ("", "x" * 129, "a\nb", "a\x00", "a\u200b", "a\u2028", 7, 7.5, True, ["a"], {"a": 1}, b"a"):
        assert refused(**{field: bad}) == field


def test_a_number_where_a_string_belongs_is_refused_with_the_field_named() -> None:
    assert refused(merchant={"id": 20017}) == "merchant.id"
    assert refused(merchant={"id": "m", "category": 5411}) == "merchant.category"
    assert refused(instrument={"bin": 411111}) == "instrument.bin"
    assert refused(device={"ip": 1}) == "device.ip"
    assert refused(location={"latitude": "52.5"}) == "location.latitude"
    assert refused(location={"longitude": True}) == "location.longitude"


@pytest.mark.parametrize(
    ("part", "good", "bad"),
    [
        ({"merchant": "category"}, ["5411", "0742"], ["541", "54111", "541a", "٥٤١١", "5411\n"]),
        ({"merchant": "country"}, ["DE", "US"], ["de", "DEU", "XX", "EU", ""]),
        ({"instrument": "bin"}, ["411111", "41111122"], ["41111", "411111223", "4111 1"]),
        ({"instrument": "issuer_country"}, ["FR"], ["UK"]),
        ({"location": "country"}, ["BR"], ["Brazil"]),
        ({"location": "time_zone"}, ["Europe/Berlin", "UTC"], ["Berlin", "+01:00", "localtime", ""]),
        ({"location": "latitude"}, [-90, 90, 0, 52.5], [90.0001, -91, 1e400, float("nan"), 10**400]),
        ({"location": "longitude"}, [-180, 180, 13.4], [180.1, -181]),
        ({"device": "ip"}, ["203.0.113.7", "2001:db8::1"], ["1.2.3", "1.2.3.4.", "256.1.1.1", "01.2.3.4", "fe80::1%eth0", "x"]),
        ({"device": "type"}, ["mobile"], [""]),
    ],
)
def test_a_part_has_its_bounds(part: dict[str, str], good: list[object], bad: list[object]) -> None:
    ((name, field),) = part.items()
    rest = {"id": "m"} if name == "merchant" else {}
    for value in good:
        assert getattr(getattr(transaction(**{name: rest | {field: value}}), name), field) == value
    for value in bad:
        assert refused(**{name: rest | {field: value}}) == f"{name}.{field}"


def test_coordinates_from_json_are_floats() -> None:
    body = parse_json(json.dumps(LEAST | {"location": {"latitude": 52.520008, "longitude": 13}}).encode())
    location = Transaction.model_validate(body).location
    assert location is not None
    assert (location.latitude, location.longitude) == (52.520008, 13.0)
    assert type(location.latitude) is type(location.longitude) is float


@pytest.mark.parametrize(
    ("written", "canonical"),
    [("2001:DB8:0:0::1", "2001:db8::1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("192.0.2.1", "192.0.2.1")],
)
def test_equal_addresses_are_equal_strings(written: str, canonical: str) -> None:
    device = transaction(device={"ip": written}).device
    assert device is not None
    assert device.ip == canonical


def test_kind_and_channel_are_of_their_lists() -> None:
    for kind in Kind:
        assert transaction(kind=kind.value).kind is kind
    for channel in Channel:
        assert transaction(channel=channel.value).channel is channel
    assert refused(kind="Purchase") == "kind"
    assert refused(kind=0) == "kind"
    assert refused(channel="web") == "channel"


def test_stored_order_of_kinds_and_channels() -> None:
    assert [*Kind] == ["purchase", "verification", "preauth", "recurring", "refund", "reversal"]
    assert [*Channel] == ["ecom", "pos", "atm", "transfer", "other"]


def test_null_stands_for_absent() -> None:
    optional = ("payment_id", "kind", "instrument", "location", "device", "channel", "attributes")
    assert transaction(**dict.fromkeys(optional)) == transaction()
    assert refused(merchant=None) == "merchant"


def test_unknown_fields_are_kept_nowhere() -> None:
    sent = transaction(extra={"deep": [1]}, merchant={"id": "m-1", "extra": 1})
    assert sent == transaction()
    assert "extra" not in sent.model_dump_json()


def test_attributes_are_up_to_32_named_scalars() -> None:
    given_ = {"a": "x", "b": 1, "c": 1.5, "d": True, "e": None}
    body = parse_json(json.dumps(LEAST | {"attributes": given_}).encode())
    attributes = Transaction.model_validate(body).attributes
    assert attributes == {"a": "x", "b": 1, "c": 1.5, "d": True}
    assert [type(value) for value in attributes.values()] == [str, int, float, bool]
    assert len(transaction(attributes={f"a{i}": i for i in range(32)}).attributes) == 32
    for bad in (
        {f"a{i}": i for i in range(33)}, {"a": [1]}, {"a": {}}, {"a": "x" * 257}, {"a" * 257: 1}, {"": 1}, {"a": 2**63},
        {"a": Decimal("1e400")}, {"a": float("inf")}, {"a": Decimal("NaN")}, [], "x", 1,
    ):  # fmt: skip
        assert refused(attributes=bad) == "attributes"


@pytest.mark.parametrize(
    ("text", "ms", "offset"),
    [
        ("2026-03-01T12:00:00Z", 1_772_366_400_000, None),
        ("2026-03-01T12:00:00.25+01:00", 1_772_362_800_250, 60),
        ("2026-03-01t12:00:00.123456789z", 1_772_366_400_123, None),
        ("2026-03-01 12:00:00Z", 1_772_366_400_000, None),
        ("2026-03-01T12:00:00-03:30", 1_772_379_000_000, -210),
        ("2026-03-01T12:00:00-00:00", 1_772_366_400_000, None),
        ("2026-03-01T12:00:00+00:00", 1_772_366_400_000, None),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000, None),
        ("1970-01-01T00:00:00Z", 0, None),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999, None),
    ],
)
def test_a_timestamp_is_rfc_3339(text: str, ms: int, offset: int | None) -> None:
    assert transaction(timestamp=text).timestamp == Instant(ms, offset)


@pytest.mark.parametrize(
    "bad",
    [
        "2026-03-01T12:00:00", "2026-03-01", "20260301T120000Z", "2026-02-29T00:00:00Z", "2026-W09-7",
        "2026-03-01T24:00:00Z", "2026-03-01T12:60:00Z", "2026-03-01T12:00:00+24:00", "2026-03-01T12:00:00+01", "1772362800250",
        "1969-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "2026-03-01T12:00:00,5Z", "２026-03-01T12:00:00Z", "", "x" * 60_000, -1,
        253_402_300_800_000, 1.5, True, None, 10**4000, "9999-12-31T23:59:59-23:59", "2026-03-01T12:00:00Z\n",
    ],
)  # fmt: skip
def test_what_is_no_timestamp_is_refused(bad: object) -> None:
    assert refused(timestamp=bad) == "timestamp"


@given(st.integers(0, 253_370_764_800_000), st.none() | st.integers(-1439, 1439))
def test_an_instant_comes_back_from_its_text(ms: int, offset: int | None) -> None:
    if ms < 86_400_000 and offset is not None and offset < 0:
        ms += 86_400_000
    assert Instant.parse(str(Instant(ms, offset or None))) == Instant(ms, offset or None)


def test_codes_are_those_of_the_standards() -> None:
    assert len(COUNTRIES) == 249
    assert {"EUR", "USD", "JPY", "XTS"} < CURRENCY_DIGITS.keys()
    assert all(len(code) == 3 and 0 <= digits <= 4 for code, digits in CURRENCY_DIGITS.items())
    assert refused(currency="eur") == refused(currency="DEM") == refused(currency=978) == "currency"


def test_a_transaction_does_not_change() -> None:
    with pytest.raises(ValidationError):
        transaction().amount = Decimal(1)  # type: ignore[misc]


def test_the_json_schema_can_be_made() -> None:
    schema = Transaction.model_json_schema()
    assert set(schema["required"]) == set(LEAST)
    assert schema["properties"]["currency"]["enum"]
