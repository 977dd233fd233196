"""Copies of transactions keyed by their user: nothing is lost on the way, and nothing gets through that may not."""

import json
import struct
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from assay.deploy.acls import Role, acls
from assay.schemas.decode import Decoded, decode
from assay.schemas.limits import LEAST_TOPIC_BYTES, MAX_HEADER_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES
from assay.schemas.refusal import Refusal, RefusalCode, dead_letter, error_reply
from assay.schemas.rekeyed import Copy, copy_of
from assay.schemas.source import Origin, Source, SourceRecord, origin_of
from assay.streams.lanes import appended_ms
from assay.streams.publisher import FENCE
from assay.streams.settings import Settings
from assay.streams.topics import topic_specs

APPENDED = 1_772_362_800_250
ORIGIN = ("assay-origin", b"transactions:3:41:1772362800250")
HASH_KEY = b"key"
CARD = "4111111111111111"
REPLY = (("reply-to", b"shop.reply"), ("correlation-id", b"c-1"))
BODY: dict[str, Any] = {
    "transaction_id": "t-1", "user_id": "ü-1", "amount": "1.00", "currency": "EUR", "timestamp": APPENDED,
    "merchant": {"id": "m-1"},
}  # fmt: skip


def record(value: bytes | None, headers: Any = (), key: bytes | None = b"t-1") -> SourceRecord:
    return ConsumerRecord("transactions", 3, 41, APPENDED, 1, key, value, None, 0, 0, headers)


def body(**changes: Any) -> bytes:
    return json.dumps(BODY | changes).encode()


def scored(copy: Copy) -> Decoded:
    """What a worker reads of a copy."""
    read = ConsumerRecord(
        "transactions-by-user", 1, 7, copy.appended_ms, 0, copy.key, copy.value, None, 0, 0, tuple(copy.headers)
    )  # fmt: skip
    return decode([read], rekeyed=True)


def refused(copy: Copy) -> Refusal:
    [refusal] = scored(copy).refusals
    return refusal


def test_a_copy_has_the_user_as_its_key_and_all_else_as_it_came() -> None:
    headers = (*REPLY, ("null", None), ("twice", b"1"), ("twice", b"2"))
    assert copy_of(record(body(), headers), HASH_KEY) == ("ü-1".encode(), "ü-1".encode(), body(), [*headers, ORIGIN], APPENDED)


def test_a_copy_asks_for_what_its_record_asked_for() -> None:
    original = record(body(), (*REPLY, ("assay-timeout-ms", b"90")))
    [request], [asked] = scored(copy_of(original, HASH_KEY)).requests, decode([original]).requests
    assert (request.address, request.deadline_ms, request.transaction) == (asked.address, asked.deadline_ms, asked.transaction)
    assert request.trace == [ORIGIN]


def test_what_callers_say_of_origins_is_left_out() -> None:
    assert copy_of(record(body(), (("assay-origin", b"elsewhere:0:0:1"),)), HASH_KEY).headers == [ORIGIN]


@pytest.mark.parametrize("value", [b"no JSON", b"[]", body(user_id=1), body(user_id=""), body(user_id="u" * 129), b'{"a":1}'])
def test_what_names_no_user_goes_as_it_is(value: bytes) -> None:
    assert copy_of(record(value, REPLY), HASH_KEY) == (None, b"t-1", value, [*REPLY, ORIGIN], APPENDED)


def test_a_tombstone_stays_one() -> None:
    assert scored(copy_of(record(None), HASH_KEY)).tombstones == 1


def test_i7_no_card_number_passes_as_the_key_of_a_tombstone() -> None:
    assert CARD not in repr(copy_of(record(None, key=CARD.encode()), HASH_KEY))


@pytest.mark.parametrize("content_type", [(), (("content-type", b"application/protobuf"),)])
@pytest.mark.parametrize("head", [b"", b"\0\0\0\0\7", b"\0\0\0\0\7\0"], ids=["plain", "framed", "framed Protobuf"])
def test_a_refusal_of_what_was_withheld_is_written_like_that_of_its_record(head: bytes, content_type: Any) -> None:
    value = body(instrument={"id": CARD}) if head != b"\0\0\0\0\7\0" else b"\x0a\x10" + CARD.encode()
    original = record(head + value, (*REPLY, *content_type))
    refusal, [plain] = refused(copy_of(original, HASH_KEY)), decode([original]).refusals
    assert plain.address is not None
    assert refusal.address == plain.address


@pytest.mark.parametrize(
    ("value", "headers", "field"),
    [
        (body(instrument={"id": CARD}), REPLY, "instrument.id"),
        (CARD.encode(), REPLY, "value"),
        (body(), (*REPLY, ("x", CARD.encode())), "headers"),
    ],
)
def test_i7_what_holds_a_card_number_is_withheld_and_refused_as_it_would_have_been(
    value: bytes, headers: Any, field: str
) -> None:
    original = record(value, headers)
    copy, [plain] = copy_of(original, HASH_KEY), decode([original]).refusals
    assert CARD not in repr(copy)
    refusal = refused(copy)
    assert (refusal.code, refusal.field, refusal.address) == (RefusalCode.CARD_NUMBER, field, plain.address)
    letter, expected = (dict(dead_letter(each, 10**6, HASH_KEY, rekeyed=True)[2]) for each in (refusal, plain))
    assert letter["assay-digest"] == expected["assay-digest"]
    assert (error_reply(refusal) is None) == (error_reply(plain) is None)


def test_i7_nobody_else_can_say_what_a_withheld_record_was() -> None:
    forged = record(body(), (("assay-withheld", b"value x"),))
    assert len(decode([forged]).requests) == 1
    assert scored(copy_of(forged, HASH_KEY)).refusals == []


def test_i7_where_a_card_number_was_is_said_in_our_own_words_only() -> None:
    [refusal] = decode([record(b"", (("assay-withheld", b"secret x"), *REPLY))], rekeyed=True).refusals
    assert (refusal.code, refusal.field) == (RefusalCode.CARD_NUMBER, "value")
    assert refusal.address is not None


def test_i7_a_card_number_among_the_headers_of_what_was_withheld_is_never_echoed() -> None:
    [refusal] = decode([record(b"", (("assay-withheld", CARD.encode()), *REPLY))], rekeyed=True).refusals
    assert (refusal.field, refusal.address) == ("headers", None)


def test_what_callers_say_of_origins_goes_no_further() -> None:
    named = record(body(), (*REPLY, ("assay-origin", b"elsewhere:0:0:1"), ("traceparent", b"00-x")))
    assert [request.trace for request in decode([named]).requests] == [[("traceparent", b"00-x")]]
    [refusal] = decode([record(b"{", named.headers)]).refusals
    reply, of_a_copy = error_reply(refusal), error_reply(refusal, rekeyed=True)
    assert reply is not None
    assert of_a_copy is not None
    assert "assay-origin" not in dict(reply[2])
    assert "assay-origin" in dict(of_a_copy[2])


@pytest.mark.parametrize(
    ("original", "field"),
    [
        (record(b"v" * (4 * MAX_VALUE_BYTES)), "value"),
        (record(body(), key=b"k" * (4 * MAX_KEY_BYTES)), "key"),
        (record(body(), (("h" * MAX_HEADER_BYTES, b"v" * MAX_HEADER_BYTES), ("x", b"y" * MAX_HEADER_BYTES))), "headers"),
        (record(body(), [("", b"")] * 400_000), "headers"),
        (record(body(), [("", None)] * 400_000), "headers"),
        (record(body(), [("n", b"v")] * (MAX_HEADER_BYTES // 2 + 1)), "headers"),
    ],
)
def test_what_is_too_large_is_cut_and_still_too_large(original: SourceRecord, field: str) -> None:
    copy = copy_of(original, HASH_KEY)
    refusal = refused(copy)
    assert (refusal.code, refusal.field) == (RefusalCode.TOO_LARGE, field)
    assert DefaultRecordBatchBuilder.estimate_size_in_bytes(copy.key, copy.value, copy.headers) < LEAST_TOPIC_BYTES


@pytest.mark.parametrize("header", [("", b""), ("x", b"x" * 100)])
def test_i7_what_is_withheld_takes_no_heap_of_headers_along(header: Any) -> None:
    copy = copy_of(record(body(instrument={"id": CARD}), [header] * 100_000), HASH_KEY)
    assert len(copy.headers) == 2
    assert refused(copy).code is RefusalCode.CARD_NUMBER


def test_a_dead_letter_of_a_copy_names_its_record_and_says_where_it_was_read() -> None:
    letter = dict(dead_letter(refused(copy_of(record(b"no JSON"), HASH_KEY)), 10**6, HASH_KEY, rekeyed=True)[2])
    assert letter["assay-source"] == b"transactions-by-user:1:7"
    names = ("topic", "partition", "offset", "timestamp")
    original = [b"transactions", struct.pack(">i", 3), struct.pack(">q", 41), struct.pack(">q", APPENDED)]
    assert [letter[f"kafka_dlt-original-{name}"] for name in names] == original


@given(st.text(min_size=1), st.integers(0, 10**4), st.integers(0, 2**62), st.integers(0, 2**41))
def test_an_origin_is_read_as_it_was_written(topic: str, partition: int, offset: int, ms: int) -> None:
    origin = Origin(Source(topic, partition, offset), ms)
    assert Origin.parse(origin.header()) == origin


@pytest.mark.parametrize(
    "header",
    [
        b"", b"transactions", b"transactions:3:41", b"transactions:3:41:-1", b"transactions:3:41:x", b"transactions:x:41:1",
        b":::", b"\xff:3:41:1", b"transactions:%d:41:1" % 2**31, b"transactions:3:%d:1" % 2**63,
        b"transactions:3:41:%d" % 2**63, b"transactions:3:41:" + b"1" * 5_000,
    ],
)  # fmt: skip
def test_what_names_no_record_is_no_copy_and_its_dead_letter_names_itself(header: bytes) -> None:
    [refusal] = decode([record(b"no JSON", (("assay-origin", header),))]).refusals
    assert origin_of(refusal.record) is None
    letter = dict(dead_letter(refusal, 10**6, HASH_KEY, rekeyed=True)[2])
    assert letter["kafka_dlt-original-offset"] == struct.pack(">q", 41)


def test_a_copy_gets_the_time_of_its_record_and_a_fence_its_own() -> None:
    assert appended_ms(copy_of(record(body()), HASH_KEY).headers) == APPENDED
    assert appended_ms(FENCE[2]) is None


def test_callers_write_to_the_same_topic_and_workers_score_the_other() -> None:
    settings = Settings.load(rekey=True, topic_prefix="eu-")
    assert (settings.incoming, settings.transactions) == ("eu-transactions", "eu-transactions-by-user")
    times = {spec.name: spec.configs.get("message.timestamp.type") for spec in topic_specs(settings)}
    assert (times[settings.incoming], times[settings.transactions]) == ("LogAppendTime", "CreateTime")


def test_only_the_step_in_front_writes_copies() -> None:
    settings = Settings.load(rekey=True)
    rights = {role: {acl.name: acl.operations for acl in acls(settings, role)} for role in Role}
    assert "Write" in rights[Role.WORKER][settings.transactions]
    assert "Write" not in rights[Role.WORKER][settings.incoming]
    assert settings.transactions not in rights[Role.CHECKOUT]
    assert rights[Role.WORKER][settings.rekeying_group] == ("Read",)
