"""From records to requests: a bad record costs only itself, and nothing raises."""

import json
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.schemas.decode import Decoded, Request, decode
from assay.schemas.limits import LATE_AFTER_MS, MAX_FUTURE_MS, MAX_VALUE_BYTES
from assay.schemas.refusal import Refusal, RefusalCode, dead_letter, error_reply
from assay.schemas.source import Source, SourceRecord

APPENDED = 1_772_362_800_250
CARD = "4111111111111111"
ESCAPED = b"".join(b"\\u%04x" % ord(digit) for digit in CARD)
FULL: dict[str, Any] = {
    "transaction_id": "t-1",
    "user_id": "u-1",
    "payment_id": "p-1",
    "kind": "purchase",
    "amount": 129.9,
    "currency": "EUR",
    "timestamp": "2026-03-01T12:00:00.250+01:00",
    "merchant": {"id": "m-1", "category": "5411", "country": "DE"},
    "instrument": {"id": "tok_9f8e", "bin": "411111", "issuer_country": "DE"},
    "location": {"country": "DE", "latitude": 52.520008, "longitude": 13.404954, "time_zone": "Europe/Berlin"},
    "device": {"id": "d-1", "ip": "203.0.113.77", "type": "mobile"},
    "channel": "ecom",
    "attributes": {"basket": 3, "coupon": "SPRING"},
}
REPLY = (("reply-to", b"shop.reply"), ("correlation-id", b"c-1"))


def record(
    value: bytes | None,
    headers: Any = (),
    key: bytes | None = b"u-1",
    offset: int = 0,
    timestamp: int = APPENDED,
) -> SourceRecord:
    sizes = len(key or b""), len(value or b"")
    return ConsumerRecord("transactions", 0, offset, timestamp, 1, key, value, None, *sizes, headers)


def body(**changes: Any) -> bytes:
    return json.dumps(FULL | changes).encode()


def one(value: bytes | None, headers: Any = (), **more: Any) -> Request | Refusal:
    decoded = decode([record(value, headers, **more)])
    assert decoded.tombstones == 0
    (only,) = [*decoded.requests, *decoded.refusals]
    return only


def refusal(value: bytes | None, headers: Any = REPLY, **more: Any) -> Refusal:
    refused = one(value, headers, **more)
    assert isinstance(refused, Refusal)
    return refused


def test_a_request_has_all_that_its_record_asks_for() -> None:
    headers = (*REPLY, ("assay-timeout-ms", b"80"), ("traceparent", b"00-x"), ("content-type", b"application/json"))
    request = one(body(), headers, offset=41)
    assert isinstance(request, Request)
    assert request.source == Source("transactions", 0, 41)
    assert request.transaction.merchant.id == "m-1"
    assert (request.key, request.appended_ms, request.late_event) == (b"u-1", APPENDED, False)
    assert request.address is not None
    assert request.address.topic == "shop.reply"
    assert request.correlation == ("correlation-id", b"c-1")
    assert request.deadline_ms == APPENDED + 80
    assert request.trace == [("traceparent", b"00-x")]


@pytest.mark.parametrize(
    ("value", "code", "field"),
    [
        (b"", "malformed", "value"),
        (b" ", "malformed", "value"),
        (b"{", "malformed", "value"),
        (b"[]", "malformed", "value"),
        (b"null", "malformed", "value"),
        (b"12", "malformed", "value"),
        (b'"x"', "malformed", "value"),
        (b"\xff\xfe{}", "malformed", "value"),
        (b"{}{}", "malformed", "value"),
        (b"},{", "malformed", "value"),
        (b"NaN", "malformed", "value"),
        (b'{"amount": NaN}', "malformed", "value"),
        (b'{"amount": -Infinity}', "malformed", "value"),
        (b'{"user_id": "a", "user_id": "b"}', "malformed", "value"),
        (b'{"a": "\\ud800"}', "malformed", "value"),
        (b"[" * 60_000, "malformed", "value"),
        (b'{"a":' * 10_000, "malformed", "value"),
        (b"[" * 150 + b"]" * 150, "malformed", "value"),
        (b'{"amount": 1e99999999999999999999}', "malformed", "value"),
        (b"{}", "missing", "transaction_id"),
        (body(amount="1.234"), "invalid", "amount"),
        (body(amount=True), "invalid", "amount"),
        (body(merchant={}), "missing", "merchant.id"),
        (body(merchant="m"), "invalid", "merchant"),
        (body(user_id=7), "invalid", "user_id"),
        (body(device={"ip": "nowhere"}), "invalid", "device.ip"),
        (body(attributes={"a": [1]}), "invalid", "attributes"),
        (body(timestamp="yesterday"), "invalid", "timestamp"),
        (b"x" * 1_000_000, "too_large", "value"),
        (b'"' + b"x" * MAX_VALUE_BYTES + b'"', "too_large", "value"),
    ],
)
def test_what_is_wrong_is_named(value: bytes, code: str, field: str) -> None:
    refused = refusal(value)
    assert (refused.code, refused.field) == (code, field)
    assert refused.expected
    assert refused.address is not None
    assert error_reply(refused) is not None


def test_what_was_expected_is_said_and_what_came_is_not() -> None:
    refused = refusal(body(merchant={"id": "m", "category": "SECRET"}))
    assert refused.message == "merchant.category: expected a merchant category code: 4 digits"
    assert "SECRET" not in repr(refused)
    assert refused.transaction_id == "t-1"


def test_noise_of_a_megabyte_is_refused_beside_a_good_record() -> None:
    noise = bytes(range(256)) * 4096
    decoded = decode([record(noise, offset=0), record(body(), offset=1), record(noise, offset=2)])
    assert [request.source.offset for request in decoded.requests] == [1]
    assert [refused.source.offset for refused in decoded.refusals] == [0, 2]


def test_unknown_fields_are_ignored() -> None:
    assert isinstance(one(body(new={"a": [1, {"b": None}]}, score=0.5)), Request)


@pytest.mark.parametrize("content_type", [b"", b"application/json", b"Application/JSON; charset=utf-8", b" application/json "])
def test_json_is_read(content_type: bytes) -> None:
    assert isinstance(one(body(), [("content-type", content_type)]), Request)


@pytest.mark.parametrize("content_type", [b"text/plain", b"application/avro", b"\xff", b"x" * 2000])
def test_an_unknown_content_type_is_refused(content_type: bytes) -> None:
    refused = refusal(body(), [*REPLY, ("content-type", content_type)])
    assert (refused.code, refused.field) == (RefusalCode.CONTENT_TYPE, "content-type")
    assert refused.address is not None


def test_bodies_are_never_read_as_one() -> None:
    halves = body().split(b",", 1)
    decoded = decode([record(halves[0]), record(halves[1])])
    assert [refused.code for refused in decoded.refusals] == [RefusalCode.MALFORMED] * 2


def test_a_timestamp_ahead_is_refused_and_one_behind_is_marked() -> None:
    sent = 1_772_362_800_250
    assert isinstance(one(body(timestamp=sent), timestamp=sent - MAX_FUTURE_MS), Request)
    refused = refusal(body(timestamp=sent), timestamp=sent - MAX_FUTURE_MS - 1)
    assert (refused.code, refused.field) == (RefusalCode.TIMESTAMP_AHEAD, "timestamp")
    for appended, late in ((sent + LATE_AFTER_MS, False), (sent + LATE_AFTER_MS + 1, True), (sent + 10**10, True)):
        request = one(body(timestamp=sent), timestamp=appended)
        assert isinstance(request, Request)
        assert request.late_event is late


def test_a_key_that_is_not_the_user_is_no_reason_to_refuse() -> None:
    for key in (None, b"", b"someone else", b"\xff"):
        request = one(body(), key=key)
        assert isinstance(request, Request)
        assert request.key == (key or b"")
    assert refusal(body(), key=b"x" * 2000).field == "key"


def test_tombstones_are_counted() -> None:
    assert decode([record(None), record(body()), record(None, [("reply-to", b"/")])]).tombstones == 2


def test_a_wrong_reply_address_gets_no_reply() -> None:
    for headers in ([("reply-to", b"/")], [*REPLY, ("reply-partition", b"x")], [*REPLY, ("correlation-id", b"x" * 257)]):
        refused = refusal(body(), headers)
        assert refused.address is None
        assert error_reply(refused) is None


# -- card numbers


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (body(transaction_id=CARD), "transaction_id"),
        (body(user_id=CARD), "user_id"),
        (body(payment_id=f"pay {CARD}"), "payment_id"),
        (body(kind=CARD), "kind"),
        (body(currency=CARD), "currency"),
        (body(amount=int(CARD)), "amount"),
        (body(timestamp=CARD), "timestamp"),
        (body(merchant={"id": "4111 1111 1111 1111"}), "merchant.id"),
        (body(instrument={"id": CARD}), "instrument.id"),
        (body(instrument={"id": int(CARD)}), "instrument.id"),
        (body(instrument={"id": float(CARD)}), "instrument.id"),
        (body(instrument={"bin": CARD}), "instrument.bin"),
        (body(device={"type": "4111-1111-1111-1111"}), "device.type"),
        (body(attributes={"note": "4111\u00a01111\u00a01111\u00a01111"}), "attributes"),
        (body(attributes={"note": "4111\u20111111\u20111111\u20111111"}), "attributes"),
        (body(attributes={"note": f"paid with {CARD}"}), "attributes"),
        (body(attributes={CARD: 1}), "attributes"),
        (body(attributes={"n": int(CARD)}), "attributes"),
        (body(anything={"deep": [[CARD]]}), "value"),
        (body(**{CARD: 1}), "value"),
        (body(instrument={"id": "X"}).replace(b"X", b"\\u0034" + CARD[1:].encode()), "instrument.id"),
        (b"not JSON: " + CARD.encode(), "value"),
        (b"not JSON: " + ESCAPED, "value"),
        (b"not JSON: 4111\\u00201111\\u002D1111\\u002d1111", "value"),
        (f"not JSON: {CARD}".encode("utf-16"), "value"),
        (b"x" * 500_000 + b" " + ESCAPED, "value"),
        (b'["' + CARD.encode() + b'"]', "value"),
        (b"x" * 500_000 + b" " + CARD.encode(), "value"),
    ],
)
def test_a_card_number_is_refused_wherever_it_is_and_nothing_is_kept(value: bytes, field: str) -> None:
    refused = refusal(value)
    assert (refused.code, refused.field) == (RefusalCode.CARD_NUMBER, field)
    for out in (dead_letter(refused, 1_000_000, b"key"), error_reply(refused)):
        assert out is not None
        assert CARD not in repr(out).replace(" ", "").replace("-", "")
    assert CARD not in repr(refused)
    key, kept, headers = dead_letter(refused, 1_000_000, b"key")
    assert (key, kept) == (None, None)
    assert dict(headers)["assay-source"] == b"transactions:0:0"
    assert len(dict(headers)["assay-digest"]) == 64


@pytest.mark.parametrize(
    ("headers", "key", "field"),
    [
        (REPLY, CARD.encode(), "key"),
        (REPLY, CARD.encode("utf-16"), "key"),
        (REPLY, b'"' + ESCAPED + b'"', "key"),
        ([*REPLY, ("x-note", CARD.encode("utf-16-be"))], b"u", "headers"),
        ([*REPLY, ("x-note", ESCAPED)], b"u", "headers"),
        ([*REPLY, ("x-note", "4111\u00a01111\u00a01111\u00a01111".encode())], b"u", "headers"),
        ([("reply-to", b"shop.reply"), ("correlation-id", CARD.encode())], b"u", "headers"),
        ([*REPLY, ("x-note", b"4111-1111-1111-1111")], b"u", "headers"),
        ([*REPLY, (CARD, b"")], b"u", "headers"),
        ([*REPLY, ("content-type", CARD.encode())], b"u", "headers"),
        ([*REPLY, ("reply-partition", CARD.encode())], b"u", "headers"),
    ],
)
def test_a_card_number_beside_the_body_is_refused(headers: Any, key: bytes, field: str) -> None:
    refused = refusal(body(), headers, key=key)
    assert (refused.code, refused.field) == (RefusalCode.CARD_NUMBER, field)
    out = error_reply(refused)
    assert (out is None) == (field == "headers")
    assert CARD not in repr(out)


@pytest.mark.parametrize(
    ("value", "content_type"),
    [
        (b"\x9a\x06\x10" + CARD.encode(), b"application/protobuf"),  # an unknown field
        (b'{"specversion":"1.0","subject":"%b","data":{}}' % CARD.encode(), b"application/cloudevents+json"),
    ],
)
def test_i7_a_card_number_in_the_body_does_not_hide_one_that_a_reply_would_echo(value: bytes, content_type: bytes) -> None:
    headers = [("reply-to", b"shop.reply"), ("correlation-id", CARD.encode()), ("content-type", content_type)]
    refused = refusal(value, headers)
    assert (refused.code, refused.field, refused.address) == (RefusalCode.CARD_NUMBER, "headers", None)


def test_a_declared_field_may_look_like_a_card_number() -> None:
    exempt = frozenset({"user_id", "merchant.id", "attributes.order", "x-order"})
    sent = body(user_id=CARD, merchant={"id": CARD}, attributes={"order": CARD})
    records = [record(sent, [("x-order", CARD.encode())], key=CARD.encode())]
    assert len(decode(records, exempt).requests) == 1
    assert len(decode(records, exempt - {"merchant.id"}).refusals) == 1


def test_no_number_of_an_ordinary_record_is_taken_for_a_card() -> None:
    ordinary = body(
        timestamp=1_772_362_800_250,
        location={"latitude": 52.4111111111111111, "longitude": 13.405400000000001},
        device={"id": "9f86d081-4111-4111-8111-1111abcdefab"},
        attributes={"phone": "+4915123456789", "iban": "DE89370400440532013000", "sha": "ab" * 16},
    )
    assert isinstance(one(ordinary), Request)


@pytest.mark.parametrize("prefix", ["13", "15", "16", "18"])
@pytest.mark.parametrize("length", [17, 18, 19])
def test_no_id_of_digits_is_taken_for_a_card_wherever_it_stands(prefix: str, length: int) -> None:
    """No network issues such numbers; one in ten fulfils Luhn's check."""
    for number in range(0, 10 ** (length - 2), 10 ** (length - 2) // 97):
        written = f"{prefix}{number:0{length - 2}}".encode()
        note = body(attributes={"note": "X"}).replace(b"X", b"\\u0041")  # for which all is looked at closely
        headers = [("x-order", written), ("x-other", written.decode().encode("utf-16")), ("kafka_replyPartition", b"\0\0\0\1")]
        assert isinstance(one(note, headers, key=written), Request)
        assert refusal(b"{", [*headers, *REPLY], key=written).code == RefusalCode.MALFORMED


# -- whatever comes

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
_FIELDS = st.sampled_from([*FULL, "merchant", "unknown"])
_CHANGED = st.dictionaries(_FIELDS, _JSON | st.just(CARD), max_size=3).map(lambda changes: body(**changes))
_VALUES = st.none() | st.binary(max_size=60) | _JSON.map(lambda value: json.dumps(value).encode()) | _CHANGED | st.just(body())
_NAMES = st.sampled_from(
    ["reply-to", "correlation-id", "reply-partition", "kafka_replyTopic", "kafka_replyPartition", "content-type",
     "assay-timeout-ms", "ce_expirytime", "traceparent"]
)  # fmt: skip
_HEADERS = st.lists(
    st.tuples(_NAMES | st.text(max_size=10), st.none() | st.binary(max_size=30) | st.just(CARD.encode())), max_size=4
)
_RECORDS = st.lists(st.tuples(_VALUES, _HEADERS, st.none() | st.binary(max_size=20)), max_size=6)


@settings(max_examples=300, deadline=None)
@given(_RECORDS)
def test_every_record_ends_as_exactly_one_thing_and_in_order(drawn: list[tuple[Any, Any, Any]]) -> None:
    records = [record(value, headers, key=key, offset=offset) for offset, (value, headers, key) in enumerate(drawn)]
    decoded = decode(records)
    requests = [request.source.offset for request in decoded.requests]
    refusals = [refused.source.offset for refused in decoded.refusals]
    tombstones = [offset for offset, (value, _, _) in enumerate(drawn) if value is None]
    assert requests == sorted(requests)
    assert refusals == sorted(refusals)
    assert sorted(requests + refusals + tombstones) == list(range(len(records)))
    assert decoded.tombstones == len(tombstones)
    for refused in decoded.refusals:
        dead_letter(refused, 2000, b"key")
        error_reply(refused)


@settings(max_examples=100, deadline=None)
@given(_RECORDS)
def test_a_record_is_decoded_the_same_alone_and_among_others(drawn: list[tuple[Any, Any, Any]]) -> None:
    records = [record(value, headers, key=key, offset=offset) for offset, (value, headers, key) in enumerate(drawn)]
    alone = Decoded([], [], 0)
    for each in records:
        decoded = decode([each])
        alone.requests += decoded.requests
        alone.refusals += decoded.refusals
        alone.tombstones += decoded.tombstones
    assert decode(records) == alone
