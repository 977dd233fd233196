"""Answers in the format of their request: nothing is lost on the way from JSON."""

import math
from typing import Any

import orjson
import pytest
from google.protobuf.json_format import MessageToDict

from assay.schemas.answer_format import ANSWER_SCHEMAS, PROTOBUF_SUBJECT, in_format
from assay.schemas.confluent import unframe
from assay.schemas.formats import Format
from assay.schemas.protobuf import message_class
from assay.schemas.refusal import error_reply
from assay.schemas.source import OutRecord
from tests.unit.test_decode import REPLY, refusal

PROTOBUF = Format(b"application/x-protobuf", is_protobuf=True)
DECISION: dict[str, Any] = {
    "transaction_id": "t-1",
    "user_id": "u-1",
    "fraud_score": 0.25,
    "action": "review",
    "explanation": [{"code": "amount", "text": "much", "weight": 1.5}],
    "rules": ["r-1", "r-2"],
    "model": {"version": "b", "role": "champion", "member_scores": [0.5, None]},
    "digests": {"bundle": "b", "rules": None},
    "tier": "full",
    "late_event": True,
    "deadline_missed": False,
    "decided_at": "2026-03-01T12:00:00.250Z",
    "latency_ms": 12,
    "decided_by": {"worker": "w", "generation": 3},
    "source": {"topic": "transactions", "partition": 1, "offset": 41},
}
HEADERS = [("content-type", b"application/json"), ("assay-source", b"transactions:1:41")]


def reply(**changes: Any) -> OutRecord:
    return b"u-1", orjson.dumps(DECISION | changes), HEADERS


def read(value: bytes | None, name: str = "Decision") -> Any:
    message = message_class(name)()
    message.ParseFromString(value or b"")
    return message


def test_a_decision_in_protobuf_says_what_its_json_says() -> None:
    out = in_format(reply(), PROTOBUF, {})
    assert out is not None
    decision = read(out[1])
    scores = list(decision.model.member_scores)
    assert scores[0] == 0.5
    assert math.isnan(scores[1])
    del decision.model.member_scores[:]
    said = MessageToDict(decision, preserving_proto_field_name=True)
    expected = DECISION | {
        "model": {"version": "b", "role": "champion"},
        "digests": {"bundle": "b"},
        "latency_ms": "12",
        "decided_by": {"worker": "w", "generation": "3"},
        "source": {"topic": "transactions", "partition": "1", "offset": "41"},
    }
    del expected["deadline_missed"]
    assert said == expected


def test_the_content_type_is_that_of_the_request_and_other_headers_stay() -> None:
    out = in_format(reply(), PROTOBUF, {})
    assert out is not None
    assert out[2] == [("content-type", b"application/x-protobuf"), ("assay-source", b"transactions:1:41")]


def test_null_is_unset() -> None:
    out = in_format(reply(fraud_score=None, model=None), PROTOBUF, {})
    assert out is not None
    decision = read(out[1])
    assert not decision.HasField("fraud_score")
    assert not decision.HasField("model")


def test_what_a_later_version_has_added_is_left_out() -> None:
    assert in_format(reply(added={"a": [1]}), PROTOBUF, {}) == in_format(reply(), PROTOBUF, {})


def error() -> OutRecord:
    out = error_reply(refusal(b"{}", REPLY))
    assert out is not None
    return out


def test_a_refusal_in_protobuf_says_why_and_reads_as_a_review() -> None:
    out = in_format(error(), PROTOBUF, {})
    assert out is not None
    why, decision = read(out[1], "ErrorReply"), read(out[1])
    assert (why.error.code, why.error.field, why.tier) == ("missing", "transaction_id", "refused")
    assert (decision.action, decision.tier) == ("review", "refused")
    assert dict(out[2])["assay-error"] == b"missing"


@pytest.mark.parametrize(("record", "index"), [(reply(), 0), (error(), 1)], ids=["decision", "error"])
def test_a_framed_reply_in_protobuf_has_the_id_of_our_schema_and_the_place_of_its_message(
    record: OutRecord, index: int
) -> None:
    out, bare = in_format(record, PROTOBUF._replace(is_framed=True), {PROTOBUF_SUBJECT: 7}), in_format(record, PROTOBUF, {})
    assert out is not None
    assert bare is not None
    framed = unframe(out[1] or b"")
    assert (framed.schema_id, framed.payload, framed.is_protobuf) == (7, bare[1], True)
    assert (out[1] or b"")[5:].startswith(b"\0" if index == 0 else b"\x02\x02")


@pytest.mark.parametrize("record", [reply(), error()], ids=["decision", "error"])
def test_a_framed_reply_in_json_is_the_json(record: OutRecord) -> None:
    ids = {subject: number for number, subject in enumerate(ANSWER_SCHEMAS, 1)}
    out = in_format(record, Format(is_framed=True), ids)
    assert out is not None
    framed = unframe(out[1] or b"")
    assert framed.payload == record[1]
    [subject] = [subject for subject, number in ids.items() if number == framed.schema_id]
    assert ANSWER_SCHEMAS[subject].kind == "JSON"


def test_a_framed_reply_without_an_id_is_none() -> None:
    assert in_format(reply(), PROTOBUF._replace(is_framed=True), {}) is None
