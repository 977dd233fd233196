"""Formats: how a value is read, by its content type and its frame, and in which one its answer goes back.

JSON, CloudEvents in structured mode and Protobuf, each also in the Confluent frame. In binary mode a CloudEvent's value is one
of these, and its content type says which.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

import jiter

from assay.schemas.card_number import texts_may_hold_card_number
from assay.schemas.cloudevents import STRUCTURED, data_of
from assay.schemas.confluent import unframe
from assay.schemas.limits import MAX_CACHED_HEADER_FORMS
from assay.schemas.protobuf import MEDIA_TYPES as PROTOBUF_TYPES
from assay.schemas.protobuf import hides_card_number, parse_protobuf
from assay.schemas.refused import RefusalCode, Refused

Parser = Callable[[bytes], object]
"""From a value's bytes to what `Transaction` validates; numbers exact (int, Decimal). Raises ValueError."""

CONTENT_TYPE_HEADER: Final = "content-type"
_JSON: Final = "application/json"


class Format(NamedTuple):
    """How an answer is written. By default as JSON, as in the decisions topic."""

    content_type: bytes = _JSON.encode()
    is_protobuf: bool = False
    is_framed: bool = False


AS_JSON: Final = Format()


class Reader(NamedTuple):
    """How the values of one content type are read.

    Attributes:
        parse: brings the body.
        expected: what a value that can't be parsed is not.
        hides: whether a body may hold a card number that can't be seen in the value; None where all of it can.
        payload: from a value and its body to what stays the same when it is sent again; the value itself when None.
        answer: from a value to the format of its answer; `AS_JSON` when None.
    """

    parse: Parser
    expected: str
    hides: Callable[[bytes, object], bool] | None = None
    payload: Callable[[bytes, object], object] | None = None
    answer: Callable[[bytes], Format] | None = None


def parse_json(value: bytes) -> object:
    """A JSON body with its numbers exact. Raises ValueError; also for a name that comes twice in one object, since readers
    differ in which of the two they take."""
    return jiter.from_json(value, float_mode="decimal", allow_inf_nan=False, cache_mode="keys", catch_duplicate_keys=True)


def parse_event(value: bytes) -> object:
    """The data of a structured CloudEvent. Raises ValueError, and Refused."""
    data = data_of(parse_json(value))
    return parse_protobuf(data) if isinstance(data, bytes) else data


@lru_cache(MAX_CACHED_HEADER_FORMS)
def media_type_of(content_type: bytes) -> str:
    """A content type without its parameters."""
    return content_type.decode("ascii", "replace").split(";", 1)[0].strip().lower()


@lru_cache(MAX_CACHED_HEADER_FORMS)
def reader_of(content_type: bytes, is_framed: bool) -> Reader:
    """How values of a content type are read, in a frame or without. Raises Refused where that is not known."""
    media_type = media_type_of(content_type)
    reader = _READERS.get(media_type)
    if reader is None:
        known = ", ".join(name for name in _READERS if name)
        raise Refused(RefusalCode.CONTENT_TYPE, CONTENT_TYPE_HEADER, f"one of {known}")
    return _framed(media_type, reader) if is_framed else reader


JSON_READER: Final = Reader(parse_json, "JSON (RFC 8259), no name twice in an object")
_EVENT_READER: Final = Reader(
    parse_event,
    JSON_READER.expected,
    hides=lambda _, body: texts_may_hold_card_number(body),  # its data may be in base64
    payload=lambda _, body: repr(body),  # a retry is another event, with an id and a time of its own
)


def _protobuf_reader(media_type: str) -> Reader:
    answer = Format(media_type.encode(), is_protobuf=True)
    expected = "Protobuf: a Transaction of transaction.proto"
    return Reader(parse_protobuf, expected, hides=hides_card_number, answer=lambda _: answer)


_READERS: Final = {"": JSON_READER, _JSON: JSON_READER, STRUCTURED: _EVENT_READER} | {
    media_type: _protobuf_reader(media_type) for media_type in PROTOBUF_TYPES
}


def _framed(media_type: str, inner: Reader) -> Reader:
    """The reader of the same in the Confluent frame; without a content type its bytes say whether it is Protobuf."""
    protobuf = _READERS[PROTOBUF_TYPES[0]]

    def bare(value: bytes) -> tuple[Reader, bytes]:
        framed = unframe(value)
        reader = protobuf if framed.is_protobuf and not media_type else inner
        if framed.is_protobuf != (reader.parse is parse_protobuf):
            raise ValueError("the frame holds something else than the content type says")
        return reader, framed.payload

    def parse(value: bytes) -> object:
        reader, payload = bare(value)
        return reader.parse(payload)

    def hides(value: bytes, body: object) -> bool:
        reader, payload = bare(value)
        return reader.hides is not None and reader.hides(payload, body)

    def payload(value: bytes, body: object) -> object:
        reader, payload = bare(value)
        return payload if reader.payload is None else reader.payload(payload, body)

    def answer(value: bytes) -> Format:
        try:
            reader, payload = bare(value)
        except ValueError:
            reader, payload = inner, value
        return (AS_JSON if reader.answer is None else reader.answer(payload))._replace(is_framed=True)

    expected = f"{inner.expected}, in the Confluent frame" if media_type else "JSON or Protobuf in the Confluent frame"
    return Reader(parse, expected, hides, payload, answer)
