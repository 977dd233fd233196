"""Transactions in another shape: mapped field by field, refused with our field and their place; a bad file is said at once."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from assay.deploy import cli
from assay.schemas.decode import decode
from assay.schemas.errors import MappingError
from assay.schemas.limits import MAX_MAPPED_FIELDS, MAX_MAPPING_BYTES
from assay.schemas.mapping import TARGETS, Mapped
from assay.schemas.mapping_file import load_mapping, parse_mapping
from assay.schemas.refusal import Refusal
from assay.schemas.refused import RefusalCode
from assay.schemas.rekeyed import copy_of
from assay.schemas.source import SourceRecord
from assay.schemas.transaction import Transaction

PAGES = Path(__file__).parents[2] / "docs" / "integrate" / "mappings"
APPENDED = 1_772_362_800_250  # 2026-03-01T11:00:00.250Z
PLAIN = """\
fields:
  transaction_id: id
  user_id: who
  amount: {from: cents, as: minor_units}
  currency: money
  timestamp: {from: when, as: epoch_seconds}
  merchant.id: {constant: m-1}
"""
THEIRS: dict[str, Any] = {"id": "t-1", "who": "u-1", "cents": 1999, "money": "EUR", "when": 1_772_362_800}

# Written by hand after the field lists that the mapping files name.
STRIPE = {
    "id": "evt_1", "type": "charge.succeeded",
    "data": {
        "object": {
            "id": "ch_3", "object": "charge", "amount": 1099, "currency": "usd", "created": 1_772_362_800, "customer": "cus_9",
            "payment_intent": "pi_7", "outcome": {"risk_score": 12}, "billing_details": {"address": {"country": "US"}},
            "payment_method_details": {"type": "card", "card": {"country": "DE", "fingerprint": "Xt5EWLLDS7FJjR1c"}},
        }
    },
}  # fmt: skip
PACS = {
    "FIToFICstmrCdtTrf": {
        "GrpHdr": {"MsgId": "MSG-1", "CreDtTm": "2026-03-01T12:00:00", "NbOfTxs": "1"},
        "CdtTrfTxInf": [
            {
                "PmtId": {"EndToEndId": "E2E-5", "TxId": "TX-77"},
                "IntrBkSttlmAmt": {"Amt": 250.5, "Ccy": "EUR"},
                "Dbtr": {"Nm": "Ada", "PstlAdr": {"Ctry": "DE"}}, "DbtrAcct": {"Id": {"IBAN": "DE89370400440532013000"}},
                "Cdtr": {"Nm": "Shop", "PstlAdr": {"Ctry": "FR"}}, "CdtrAcct": {"Id": {"IBAN": "FR1420041010050500013M02606"}},
            }
        ],
    }
}  # fmt: skip
ADYEN = {
    "live": "false",
    "notificationItems": [
        {
            "NotificationRequestItem": {
                "additionalData": {"shopperReference": "shopper-1", "cardBin": "411111", "cardIssuingCountry": "NL",
                                   "shopperIP": "203.0.113.7"},
                "amount": {"currency": "JPY", "value": 500}, "eventCode": "AUTHORISATION",
                "eventDate": "2026-03-01T12:00:00+01:00", "merchantAccountCode": "ShopCOM", "merchantReference": "order-1",
                "pspReference": "7914073381342284", "success": "true",
            }
        }
    ],
}  # fmt: skip


def record(body: object, content_type: bytes = b"") -> SourceRecord:
    value = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = (("content-type", content_type),) if content_type else ()
    return ConsumerRecord("transactions", 0, 0, APPENDED, 1, None, value, None, 0, 0, headers)


def transaction(mapped: Mapped, body: object, content_type: bytes = b"") -> Transaction:
    decoded = decode([record(body, content_type)], mapped=mapped)
    assert not decoded.refusals, decoded.refusals[0].message
    return decoded.requests[0].transaction


def refusal(mapped: Mapped, body: object) -> Refusal:
    [refused] = decode([record(body)], mapped=mapped).refusals
    return refused


def plain(*more: str) -> Mapped:
    """The plain mapping, with lines that replace its own or come to them."""
    lines = {line.strip().split(":")[0]: line for line in PLAIN.splitlines()[1:]}
    lines |= {line.split(":")[0]: f"  {line}" for line in more}
    return parse_mapping("\n".join(["fields:", *lines.values()]).encode(), "plain.yaml")


def shipped(name: str) -> Mapped:
    mapped = load_mapping(PAGES / name)
    assert mapped is not None
    return mapped


def test_a_charge_of_stripe_becomes_a_transaction() -> None:
    for body in (STRIPE, STRIPE["data"]["object"]):  # type: ignore[index]
        found = transaction(shipped("stripe.yaml"), body)
        assert (found.transaction_id, found.user_id, found.payment_id) == ("ch_3", "cus_9", "pi_7")
        assert (found.amount, found.currency, found.timestamp.ms) == (Decimal("10.99"), "USD", 1_772_362_800_000)
        assert found.instrument is not None
        assert (found.instrument.id, found.instrument.issuer_country) == ("Xt5EWLLDS7FJjR1c", "DE")
        assert (found.merchant.id, found.channel, found.attributes) == ("platform", "ecom", {"radar_score": 12})


def test_a_credit_transfer_of_iso_20022_becomes_a_transaction() -> None:
    found = transaction(shipped("pacs008.yaml"), PACS)
    assert (found.transaction_id, found.user_id, found.payment_id) == ("TX-77", "DE89370400440532013000", "MSG-1/E2E-5")
    assert (found.amount, found.currency, found.channel) == (Decimal("250.5"), "EUR", "transfer")
    assert (found.timestamp.ms, found.timestamp.offset_minutes) == (1_772_362_800_000, 60)  # local time of the zone it names
    assert (found.merchant.id, found.merchant.country) == ("FR1420041010050500013M02606", "FR")


def test_a_notification_of_adyen_becomes_a_transaction_beside_ours() -> None:
    mapped = shipped("adyen.yaml")
    found = transaction(mapped, ADYEN, b"application/vnd.adyen+json; charset=utf-8")
    assert (found.transaction_id, found.user_id, found.kind) == ("7914073381342284", "shopper-1", "purchase")
    assert (found.amount, found.currency, found.attributes) == (Decimal(500), "JPY", {"live": False})
    ours = THEIRS | {"transaction_id": "t", "user_id": "u", "amount": "1", "currency": "EUR", "merchant": {"id": "m"}}
    assert transaction(mapped, ours | {"timestamp": APPENDED}).user_id == "u"


@pytest.mark.parametrize(
    ("changes", "code", "field", "expected"),
    [
        ({"id": None}, "missing", "transaction_id", "a value at id"),
        ({"cents": 1.5}, "invalid", "amount", "a whole number of minor units at cents"),
        ({"cents": True}, "invalid", "amount", "a whole number of minor units at cents"),
        ({"money": "???"}, "invalid", "amount", "beside a currency"),
        ({"when": "yesterday"}, "invalid", "timestamp", "seconds since 1970 at when"),
        ({"who": {"name": "u"}}, "invalid", "user_id", "1 to 128"),
        ({"id": "x" * 129}, "invalid", "transaction_id", "1 to 128"),
    ],
)
def test_what_does_not_map_is_refused_with_our_field_and_their_place(
    changes: dict[str, Any], code: str, field: str, expected: str
) -> None:
    refused = refusal(plain(), THEIRS | changes)
    assert (refused.code, refused.field) == (code, field)
    assert expected in refused.expected


@pytest.mark.parametrize("body", [b"[]", b"1", b'"text"', b"null", b"{}"])
def test_a_body_of_another_shape_is_refused(body: bytes) -> None:
    assert refusal(plain(), body).code == "missing"


def test_i7_a_card_number_is_found_where_nothing_is_mapped() -> None:
    assert refusal(plain(), THEIRS | {"elsewhere": {"pan": "4111111111111111"}}).code == "card_number"


def test_what_is_not_mapped_is_dropped() -> None:
    assert transaction(plain(), THEIRS | {"channel": "pos", "attributes": {"a": 1}}).channel is None


@pytest.mark.parametrize(
    ("line", "theirs", "ours"),
    [
        ("channel: {from: how, values: {CNP: ecom, 5: pos}}", "CNP", "ecom"),
        ("channel: {from: how, values: {CNP: ecom, 5: pos}}", 5, "pos"),
        ("channel: {from: how, values: {CNP: ecom}, otherwise: other}", "?", "other"),
        ("channel: {from: how, default: atm}", None, "atm"),
        ("channel: [nowhere, how]", "transfer", "transfer"),
        ("payment_id: {from: how, as: text}", 17, "17"),
        ("payment_id: {join: [how, who], with: ':'}", 17, "17:u-1"),
    ],
)
def test_values_are_converted(line: str, theirs: Any, ours: str) -> None:
    found = transaction(plain(line), THEIRS | {"how": theirs})
    assert getattr(found, line.split(":")[0]) == ours


def test_a_value_that_a_table_does_not_name_is_refused() -> None:
    refused = refusal(plain("channel: {from: how, values: {CNP: ecom, POS: pos}}"), THEIRS | {"how": "?"})
    assert (refused.field, refused.expected) == ("channel", "one of CNP, POS at how, by the mapping")


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("timestamp: {from: at, as: time, format: '%d.%m.%Y %H:%M', zone: Europe/Berlin}", "01.03.2026 12:00"),
        ("timestamp: {from: at, as: time}", "2026-03-01T12:00:00+0100"),
        ("timestamp: {from: at, as: time, zone: UTC}", "20260301T110000"),
    ],
)
def test_times_of_other_forms_are_read(line: str, written: str) -> None:
    assert transaction(plain(line), THEIRS | {"at": written}).timestamp.ms == 1_772_362_800_000


def test_a_time_without_a_zone_is_refused() -> None:
    assert refusal(plain("timestamp: {from: at, as: time}"), THEIRS | {"at": "2026-03-01T12:00:00"}).field == "timestamp"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text + "  merchant.nmae: x\n", "merchant.nmae: no such field of ours"),
        (lambda text: text + "  chanel: x\n", "chanel: no such field of ours: channel?"),
        (lambda text: text.replace("as: epoch_seconds", "ass: x"), "timestamp: there is no ass: as?"),
        (lambda text: text.replace("epoch_seconds", "epoch"), "timestamp: as: "),
        (lambda text: text.replace("  user_id: who\n", ""), "says nothing of user_id"),
        (
            lambda text: text.replace("user_id: who", "user_id: {from: a, constant: b}"),
            "exactly one of from, join",
        ),
        (lambda text: text + "  channel: {from: x, as: minor_units}\n", "minor_units are of the amount"),
        (
            lambda text: text.replace("as: epoch_seconds", "as: time, zone: Europe/Berln"),
            "Europe/Berln: Europe/Berlin",
        ),
        (lambda text: text.replace("as: epoch_seconds", 'as: time, format: "%d.%m.%Y %Q"'), "format: 'Q' is a bad directive"),
        (lambda text: text.replace("user_id: who", "user_id: []"), "names no path"),
        (lambda text: text.replace("user_id: who", "user_id: {join: []}"), "names no path"),
        (lambda text: text + "contents: []\n", "there is no contents"),
        (lambda text: "fields: [", "is not YAML"),
        (lambda text: "a: 1", "has no `fields`"),
    ],
)
def test_a_bad_file_is_an_error_that_names_the_place_and_what_is_near(change: Callable[[str], str], said: str) -> None:
    with pytest.raises(MappingError) as raised:
        parse_mapping(change(PLAIN).encode(), "plain.yaml")
    assert said in str(raised.value)
    assert str(raised.value).startswith("plain.yaml")


def test_the_user_of_a_mapped_record_is_what_its_copy_is_keyed_by() -> None:
    copy = copy_of(record(THEIRS), b"key", plain())
    assert (copy.key, copy.value) == (b"u-1", json.dumps(THEIRS).encode())


@pytest.mark.parametrize("target", ["transaction_id", "user_id", "instrument.id", "attributes.both"])
def test_i7_no_card_number_is_made_of_parts_that_are_none(target: str) -> None:
    mapped, sent = plain(f"{target}: {{join: [head, tail]}}"), THEIRS | {"head": "41111111", "tail": 11111111}
    refused = refusal(mapped, sent)
    assert (refused.code, refused.field) == (RefusalCode.CARD_NUMBER, target.removesuffix(".both"))
    copy = copy_of(record(sent), b"key", mapped)
    assert (copy.key, copy.value) == (None, b"")
    assert isinstance(transaction(mapped, sent | {"tail": 11111112}), Transaction)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner)))
def test_no_body_raises_anything_but_a_refusal(body: Any) -> None:
    mapped = plain("channel: {from: how, values: {CNP: ecom}}", "payment_id: {join: [how, who], with: ':'}")
    for each in (body, THEIRS | {"how": body}, THEIRS | {"cents": body}, THEIRS | {"when": body}, THEIRS | {"who": body}):
        decoded = decode([record(each)], mapped=mapped)
        assert len(decoded.requests) + len(decoded.refusals) == 1


def test_i5_max_mapped_fields_one_more_is_refused() -> None:
    room = MAX_MAPPED_FIELDS - 6
    most = [f"attributes.a{number}: a" for number in range(room)]
    plain(*most)
    with pytest.raises(MappingError, match="too many fields"):
        plain(*most, "channel: c")


def test_i5_max_mapping_bytes_one_more_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "long.yaml"
    file.write_text(PLAIN + "#" * (MAX_MAPPING_BYTES - len(PLAIN)))
    load_mapping(file)
    file.write_text(PLAIN + "#" * (MAX_MAPPING_BYTES - len(PLAIN) + 1))
    with pytest.raises(MappingError, match="too large"):
        load_mapping(file)


def test_every_field_of_ours_may_be_mapped() -> None:
    assert {"transaction_id", "merchant.id", "location.time_zone", "device.ip", "channel", "kind"} <= set(TARGETS)
    assert not {"merchant", "attributes"} & set(TARGETS)


def test_the_command_shows_what_comes_out_and_fails_where_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(PLAIN)
    (tmp_path / "sample.jsonl").write_text(json.dumps(THEIRS) + "\n" + json.dumps(THEIRS | {"cents": "x"}) + "\n")
    done = CliRunner().invoke(
        cli.app, ["mapping", "check", str(tmp_path / "map.yaml"), "--sample", str(tmp_path / "sample.jsonl")]
    )
    first, second = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 1
    assert (first["line"], first["transaction"]["amount"], first["transaction"]["merchant"]) == (1, "19.99", {"id": "m-1"})
    assert second["refused"]["field"] == "amount"
