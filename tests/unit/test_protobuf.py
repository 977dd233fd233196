"""Transactions in Protobuf: the same ones as in JSON, refused with the same codes, and no card number passes."""

import math
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.schemas.decode import Request
from assay.schemas.limits import MAX_VALUE_BYTES
from assay.schemas.protobuf import message_class, parse_protobuf
from assay.schemas.refusal import dead_letter, error_reply
from assay.schemas.refused import RefusalCode
from tests.unit.test_decode import APPENDED, CARD, FULL, REPLY, body, one, refusal

CONTENT = ("content-type", b"application/protobuf")
_NAMES = {str: "text", bool: "flag", int: "integer", float: "number"}


def protobuf(**changes: Any) -> bytes:
    """The transaction of `test_decode` in Protobuf; a field that is None is left out."""
    sent = {name: value for name, value in (FULL | {"amount": "129.9"} | changes).items() if value is not None}
    sent["attributes"] = {
        name: {_NAMES[type(value)]: "Infinity" if value == math.inf else value}
        for name, value in sent.get("attributes", {}).items()
    }
    return ParseDict(sent, message_class("Transaction")()).SerializeToString()


@pytest.mark.parametrize(
    "media_type", [b"application/protobuf", b"application/x-protobuf", b"Application/Vnd.Google.Protobuf; x=1"]
)
def test_a_transaction_is_the_same_in_either_format(media_type: bytes) -> None:
    asked, plain = one(protobuf(), [("content-type", media_type)]), one(body())
    assert isinstance(asked, Request)
    assert isinstance(plain, Request)
    assert asked.transaction == plain.transaction


def test_scalars_keep_their_types() -> None:
    sent = {"text": "x", "whole": -(2**63), "number": 0.1, "flag": False}
    request = one(protobuf(attributes=sent), [CONTENT])
    assert isinstance(request, Request)
    assert request.transaction.attributes == sent
    assert [type(value) for value in request.transaction.attributes.values()] == [
        type(sent[name]) for name in request.transaction.attributes
    ]


@pytest.mark.parametrize(
    ("value", "code", "field"),
    [
        (b"\xff", "malformed", "value"),
        (body(), "malformed", "value"),
        (b"", "missing", "transaction_id"),
        (protobuf(merchant={}), "missing", "merchant.id"),
        (protobuf(amount="1.234"), "invalid", "amount"),
        (protobuf(currency="eur"), "invalid", "currency"),
        (protobuf(kind="gift"), "invalid", "kind"),
        (protobuf(location={"latitude": 91.0}), "invalid", "location.latitude"),
        (protobuf(location={"latitude": "NaN"}), "invalid", "location.latitude"),
        (protobuf(attributes={"a": math.inf}), "invalid", "attributes"),
        (protobuf(attributes={str(n): n for n in range(33)}), "invalid", "attributes"),
        (protobuf(timestamp="1772362800250"), "invalid", "timestamp"),
        (protobuf(timestamp="2026-03-01T12:00:00.250-11:00"), "timestamp_ahead", "timestamp"),
        (b"\x0a" * (MAX_VALUE_BYTES + 1), "too_large", "value"),
    ],
)
def test_what_is_wrong_is_refused_as_in_json(value: bytes, code: str, field: str) -> None:
    refused = refusal(value, [*REPLY, CONTENT])
    assert (refused.code, refused.field) == (code, field)


def test_unknown_fields_are_ignored() -> None:
    unknown = b"\xa2\x06\x03abc" + b"\xa8\x06\x07"  # fields 100, a text, and 101, a number
    asked, plain = one(protobuf() + unknown, [CONTENT]), one(protobuf(), [CONTENT])
    assert isinstance(asked, Request)
    assert isinstance(plain, Request)
    assert asked.transaction == plain.transaction


def _varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out += bytes(((number & 0x7F) | 0x80,))
        number >>= 7
    return out + bytes((number,))


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (protobuf(transaction_id=CARD), "transaction_id"),
        (protobuf(merchant={"id": CARD}), "merchant.id"),
        (protobuf(payment_id=f"{CARD} and more than forty-eight letters, so that its length is a digit"), "payment_id"),
        (protobuf(attributes={"n": int(CARD)}), "attributes"),
        (protobuf(attributes={"n": float(CARD)}), "attributes"),
        (protobuf(attributes={CARD: True}), "attributes"),
        (protobuf(location={"latitude": float(CARD)}), "location.latitude"),
        (protobuf() + b"\xa2\x06\x10" + CARD.encode(), "value"),
        (protobuf() + b"\xa8\x06" + _varint(int(CARD)), "value"),
    ],
    ids=["id", "nested", "behind a length", "integer", "double", "name", "degrees", "unknown text", "unknown number"],
)
def test_i7_a_card_number_is_refused_wherever_it_is(value: bytes, field: str) -> None:
    refused = refusal(value, [*REPLY, CONTENT])
    assert (refused.code, refused.field) == (RefusalCode.CARD_NUMBER, field)
    assert CARD not in repr((dead_letter(refused, 1_000_000, b"key"), error_reply(refused)))


def _attributes(entry: bytes) -> bytes:
    number = message_class("Transaction").DESCRIPTOR.fields_by_name["attributes"].number
    return _varint(number << 3 | 2) + _varint(len(entry)) + entry


_HIDDEN = b"\x0a\x10" + CARD.encode()  # a first transaction_id; or of an entry of a map, its name


@pytest.mark.parametrize(
    "before",
    [
        _HIDDEN,
        _HIDDEN + b"".join(_attributes(b"\x0a\x01" + bytes((name,))) for name in range(97, 106)),  # which grow by 2 bytes each
        _attributes(b"\x0a\x01a\x12\x12" + _HIDDEN) + _attributes(b"\x0a\x01a\x12\x00"),
        _attributes(_HIDDEN + b"\x0a\x01a"),
    ],
    ids=["field", "field beside attributes without a value", "attribute", "name of an attribute"],
)
def test_i7_a_card_number_does_not_hide_in_what_comes_twice(before: bytes) -> None:
    refused = refusal(before + protobuf(currency="eur"), [*REPLY, CONTENT])
    assert (refused.code, refused.field) == (RefusalCode.CARD_NUMBER, "value")


def test_what_comes_twice_without_a_card_number_is_taken() -> None:
    assert isinstance(one(b"\x0a\x03t-0" + protobuf(), [CONTENT]), Request)


@pytest.mark.parametrize("content_type", [b"application/x-google-protobuf", b"application/octet-stream", b"", b"text/plain"])
@pytest.mark.parametrize("length", [16, 49, 57])
def test_i7_a_card_number_is_found_in_a_message_that_does_not_say_what_it_is(content_type: bytes, length: int) -> None:
    value = b"\x12\x01u\x0a" + bytes((length,)) + CARD.ljust(length, "x").encode() + b"2\x03EUR"
    assert refusal(value, [*REPLY, ("content-type", content_type)]).code == RefusalCode.CARD_NUMBER


@pytest.mark.parametrize("length", [16, 49, 57])
def test_i7_a_card_number_is_found_in_what_is_no_whole_message(length: int) -> None:
    """A text's length before it, and the tag of the next field behind it, may look like digits of the number."""
    text = CARD.ljust(length, "x") if length != 16 else CARD
    broken = b"\x0a" + bytes((length,)) + text.encode() + b"2\x7f"
    assert refusal(broken, [*REPLY, CONTENT]).code == RefusalCode.CARD_NUMBER


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80) | st.integers(0, len(protobuf())).map(lambda cut: protobuf()[:cut]))
def test_whatever_comes_is_a_request_or_a_refusal(value: bytes) -> None:
    one(value, [*REPLY, CONTENT])


def test_an_amount_is_never_read_through_a_float() -> None:
    assert parse_protobuf(protobuf(amount="0.10"))["amount"] == "0.10"
    assert isinstance(one(protobuf(amount="0.10"), [CONTENT], timestamp=APPENDED), Request)
