"""The Confluent frame: what it holds is told by its bytes, and nothing that is no frame gets through."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.schemas.confluent import Framed, frame, unframe
from assay.schemas.decode import Request
from assay.schemas.formats import Format
from assay.schemas.refused import RefusalCode
from tests.unit.test_decode import CARD, FULL, REPLY, body, one, refusal
from tests.unit.test_protobuf import CONTENT, protobuf

JSON_CONTENT = ("content-type", b"application/json")


@given(st.integers(0, 2**32 - 1), st.binary(min_size=1).filter(lambda each: each[:1] != b"\0"), st.integers(0, 63))
def test_a_frame_comes_off_as_it_was_put_on(schema_id: int, payload: bytes, index: int) -> None:
    assert unframe(frame(schema_id, payload, index)) == Framed(schema_id, payload, True)


def test_json_has_no_indexes() -> None:
    assert unframe(frame(7, b' {"a":1}')) == Framed(7, b' {"a":1}', False)


@pytest.mark.parametrize(
    "value", [b"", b"\0", b"\0\0\0\0\1", b"{}", b"\1\0\0\0\1{}", b"\0\0\0\0\1\x03x", b"\0\0\0\0\1\x04\x02"]
)
def test_what_is_no_frame_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # that it is none is all there is to say
        unframe(value)


@pytest.mark.parametrize("headers", [[], [CONTENT]], ids=["no content type", "content type"])
@pytest.mark.parametrize("indexes", [b"\0", b"\x02\0", b"\x02\x02", b"\x04\x02\0"])
def test_protobuf_in_a_frame_is_read(headers: list[tuple[str, bytes]], indexes: bytes) -> None:
    asked, plain = one(b"\0\0\0\0\7" + indexes + protobuf(), headers), one(body())
    assert isinstance(asked, Request)
    assert isinstance(plain, Request)
    assert asked.transaction == plain.transaction


@pytest.mark.parametrize("headers", [[], [JSON_CONTENT]], ids=["no content type", "content type"])
def test_json_in_a_frame_is_read(headers: list[tuple[str, bytes]]) -> None:
    asked, plain = one(frame(7, body()), headers), one(body())
    assert isinstance(asked, Request)
    assert isinstance(plain, Request)
    assert asked.transaction == plain.transaction


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (b"\0\0\0\0\7", []),
        (b"\0\0\0\0\7\x06t-1", []),
        (frame(7, body()), [CONTENT]),
        (frame(7, protobuf(), 0), [JSON_CONTENT]),
        (frame(7, frame(7, body())), []),
    ],
    ids=["empty", "Avro", "JSON as Protobuf", "Protobuf as JSON", "a frame in a frame"],
)
def test_a_frame_that_holds_something_else_is_malformed(value: bytes, headers: list[tuple[str, bytes]]) -> None:
    assert refusal(value, [*REPLY, *headers]).code == RefusalCode.MALFORMED


def test_an_unknown_content_type_is_refused_in_a_frame_too() -> None:
    assert refusal(frame(7, body()), [*REPLY, ("content-type", b"application/avro")]).code == RefusalCode.CONTENT_TYPE


@pytest.mark.parametrize("value", [frame(7, body(transaction_id=CARD)), frame(7, protobuf(transaction_id=CARD), 0)])
def test_i7_a_card_number_in_a_frame_is_refused(value: bytes) -> None:
    assert refusal(value).code == RefusalCode.CARD_NUMBER


def test_a_retry_under_another_schema_id_is_the_same_payload() -> None:
    first, again, other = one(frame(7, body())), one(frame(8, body())), one(frame(7, body(channel="pos")))
    assert isinstance(first, Request)
    assert isinstance(again, Request)
    assert isinstance(other, Request)
    assert first.payload == again.payload != other.payload


def test_a_retried_event_with_another_id_and_time_is_the_same_payload() -> None:
    def sent(number: int, **changes: str) -> bytes:
        event = {"specversion": "1.0", "id": f"e-{number}", "time": f"2026-03-01T12:00:0{number}Z", "data": FULL | changes}
        return json.dumps(event).encode()

    structured = [("content-type", b"application/cloudevents+json")]
    first, again, other = (one(value, structured) for value in (sent(1), sent(2), sent(1, channel="pos")))
    assert isinstance(first, Request)
    assert isinstance(again, Request)
    assert isinstance(other, Request)
    assert first.payload == again.payload != other.payload


# -- the format of the answer

PROTOBUF = Format(b"application/protobuf", is_protobuf=True)
ASKED = [
    ([], body(), Format()),
    ([("content-type", b"application/cloudevents+json")], b"{}", Format()),
    ([CONTENT], protobuf(), PROTOBUF),
    ([("content-type", b"application/x-protobuf; v=1")], protobuf(), Format(b"application/x-protobuf", is_protobuf=True)),
    ([], frame(7, body()), Format(is_framed=True)),
    ([], frame(7, protobuf(), 0), PROTOBUF._replace(is_framed=True)),
    ([CONTENT], frame(7, protobuf(), 0), PROTOBUF._replace(is_framed=True)),
]


@pytest.mark.parametrize(("headers", "value", "wanted"), ASKED)
def test_a_decision_goes_back_in_the_format_of_its_request(
    headers: list[tuple[str, bytes]], value: bytes, wanted: Format
) -> None:
    asked = one(value, [*REPLY, *headers])
    assert asked.address is not None
    assert asked.address.format == wanted


@pytest.mark.parametrize(("headers", "value", "wanted"), ASKED)
@pytest.mark.parametrize("wrong", [("assay-timeout-ms", b"soon"), ("x-note", b"x" * 100)], ids=["header", "body"])
def test_a_refusal_goes_back_in_the_format_of_its_request(
    headers: list[tuple[str, bytes]], value: bytes, wanted: Format, wrong: tuple[str, bytes]
) -> None:
    if wrong[0] == "x-note":
        value = value[:-1] + b"\xff"
    refused = refusal(value, [*REPLY, wrong, *headers])
    assert refused.address is not None
    assert refused.address.format == wanted
