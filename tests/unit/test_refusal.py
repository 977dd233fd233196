"""Dead letters and error replies."""

import json
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from hypothesis import given
from hypothesis import strategies as st

from assay.schemas.headers import Dialect, ReplyAddress
from assay.schemas.refusal import Refusal, RefusalCode, dead_letter, error_reply
from assay.schemas.source import OutRecord

ADDRESS = ReplyAddress("shop.reply", 2, ("kafka_correlationId", b"\x00\xff"), Dialect.SPRING)


def refusal(value: bytes | None = b"{}", key: bytes | None = b"u-1", headers: Any = (("a", b"1"),), **more: Any) -> Refusal:
    sizes = len(key or b""), len(value or b"")
    record = ConsumerRecord("transactions", 3, 41, 1_772_362_800_250, 1, key, value, None, *sizes, headers)
    given_ = {"code": RefusalCode.INVALID, "field": "merchant.id", "expected": "a string", "address": ADDRESS}
    return Refusal(record, **(given_ | more))


def size(out: OutRecord) -> int:
    key, value, headers = out
    return len(key or b"") + len(value or b"") + sum(len(name.encode()) + len(text) for name, text in headers)


def test_a_dead_letter_is_the_record_with_the_reason() -> None:
    key, value, headers = dead_letter(refusal(), 1_000_000)
    assert (key, value) == (b"u-1", b"{}")
    assert headers == [
        ("a", b"1"),
        ("assay-error", b"invalid"),
        ("assay-error-detail", b"merchant.id: expected a string"),
        ("assay-source", b"transactions:3:41"),
        ("kafka_dlt-original-topic", b"transactions"),
        ("kafka_dlt-original-partition", b"\x00\x00\x00\x03"),
        ("kafka_dlt-original-offset", b"\x00\x00\x00\x00\x00\x00\x00\x29"),
        ("kafka_dlt-original-timestamp", (1_772_362_800_250).to_bytes(8, "big")),
        ("kafka_dlt-exception-message", b"invalid: merchant.id: expected a string"),
    ]


def test_null_key_and_null_header_values_are_taken() -> None:
    key, _, headers = dead_letter(refusal(key=None, headers=(("a", None),)), 1_000_000)
    assert key is None
    assert headers[0] == ("a", b"")


@pytest.mark.parametrize("limit", [2_000, 10_000, 100_000])
def test_what_is_too_large_for_the_topic_is_cut(limit: int) -> None:
    value = bytes(range(256)) * 4000
    out = dead_letter(refusal(value, headers=(("a", b"x" * 500),)), limit)
    assert size(out) < limit
    key, kept, headers = out
    assert key == b"u-1"
    assert kept
    assert value.startswith(kept)
    named = dict(headers)
    assert named["assay-cut"] == b"1024000"
    assert len(named["assay-digest"]) == 64
    assert named["assay-source"] == b"transactions:3:41"
    assert named["a"] == b"x" * 500


@given(st.integers(0, 40_000), st.integers(0, 40_000), st.integers(0, 40_000), st.integers(1_200, 50_000))
def test_a_dead_letter_always_fits(key: int, value: int, header: int, limit: int) -> None:
    out = dead_letter(refusal(b"v" * value, b"k" * key, (("ü" * (header // 4), b"h" * header),)), limit)
    assert size(out) < limit


def test_the_digest_is_of_the_whole_record_and_keyed() -> None:
    def digest(hash_key: bytes = b"key", **more: Any) -> bytes:
        return dict(dead_letter(refusal(code=RefusalCode.CARD_NUMBER, **more), 1_000_000, hash_key)[2])["assay-digest"]

    assert digest() == digest()
    others = [digest(b"other"), digest(b"k" * 100), digest(value=b"{ }"), digest(key=None), digest(headers=())]
    assert len({digest(), *others}) == 6


def test_nothing_of_a_card_number_record_is_kept() -> None:
    refused = refusal(b"VALUE", b"KEY", (("NAME", b"TEXT"),), code=RefusalCode.CARD_NUMBER)
    written = repr(dead_letter(refused, 1_000_000, b"key")) + repr(error_reply(refused)) + repr(refused)
    assert not any(word in written for word in ("VALUE", "KEY", "NAME", "TEXT"))
    assert "assay-digest" not in dict(dead_letter(refused, 1_000_000)[2])  # an unkeyed digest could be guessed


def test_a_caller_with_an_address_gets_an_error_that_reads_as_a_review() -> None:
    out = error_reply(refusal(transaction_id="t-1", headers=(("traceparent", b"00-x"), ("__TypeId__", b"a.B"))))
    assert out is not None
    key, value, headers = out
    error = {"code": "invalid", "message": "merchant.id: expected a string", "field": "merchant.id"}
    assert key == b"u-1"
    assert json.loads(value or b"") == {"action": "review", "tier": "refused", "error": error, "transaction_id": "t-1"}
    named = dict(headers)
    assert json.loads(named["kafka_nest-err"]) == error
    assert named["assay-error"] == b"invalid"
    assert named["kafka_correlationId"] == b"\x00\xff"
    assert named["traceparent"] == b"00-x"
    assert "__TypeId__" not in named


def test_a_caller_without_a_usable_address_gets_none() -> None:
    assert error_reply(refusal(address=None)) is None


def test_an_error_is_small_however_large_the_key() -> None:
    out = error_reply(refusal(key=b"k" * 1_048_000))
    assert out is not None
    assert out[0] is None
    assert size(out) < 4_096


def test_codes_are_stable() -> None:
    assert [*RefusalCode] == [
        "too_large", "content_type", "malformed", "missing", "invalid", "timestamp_ahead", "card_number", "correlation",
        "reply_address", "deadline", "unsigned", "signature",
    ]  # fmt: skip
