"""A record is searched for card numbers: its value as it was parsed or as it is, its key and its headers (invariant I7).

What is refused is kept as a dead letter, and an answer repeats some of its headers: so a record that is refused before its body
was searched is searched then.
"""

import re
from typing import Final

from assay.schemas.card_number import (
    may_hold_card_number,
    may_hold_one_in_utf16,
    path_of_card_number,
    texts,
    unread_holds_card_number,
    unread_message_holds_card_number,
)
from assay.schemas.confluent import MAGIC
from assay.schemas.formats import AS_JSON, CONTENT_TYPE_HEADER, Format, Reader, reader_of
from assay.schemas.headers import ReplyAddress
from assay.schemas.refused import TOKEN_EXPECTED, RefusalCode, Refused
from assay.schemas.source import SourceRecord
from assay.schemas.transaction import EXPECTED

_NOTHING: Final = object()
_PLACES: Final = frozenset({*EXPECTED, "attributes", "headers", "key", "value"})
_NO_TEXT: Final = re.compile(rb"[\0-\x08\x0e-\x1f]")  # control characters, but for white space


def first_look(value: bytes, key: bytes, headers: bytes) -> bool:
    """Whether to look for a card number more closely: escapes could hide a digit; in UTF-16 zero bytes stand between them."""
    if may_hold_card_number(b"\n".join((value, key, headers))) or b"\\" in value:
        return True
    beside = key + headers
    return b"\\u00" in beside or may_hold_one_in_utf16(beside)


def check_card_number(record: SourceRecord, body: object, address: ReplyAddress | None, exempt: frozenset[str]) -> None:
    """Raises Refused when there is a card number anywhere in the record. A body that was not parsed is searched as it is."""
    found: str | None = None
    if "user_id" not in exempt and unread_holds_card_number(record.key or b""):
        found = "key"
    if body is _NOTHING:
        value = record.value or b""
        if unread_message_holds_card_number(value) if _may_be_message(record) else unread_holds_card_number(value):
            found = "value"
    elif (path := path_of_card_number(texts(body, exempt))) is not None:
        found = place_of(path)
    if _headers_hold_card_number(record, exempt):
        found, address = "headers", None  # what a reply would echo
    if found is not None:
        raise Refused(RefusalCode.CARD_NUMBER, found, TOKEN_EXPECTED, address)


def place_of(path: str) -> str:
    """What a refusal says of a path: never a name that is not ours."""
    return path if path in EXPECTED else "attributes" if path.startswith("attributes") else "value"


def _headers_hold_card_number(record: SourceRecord, exempt: frozenset[str]) -> bool:
    return any(
        unread_holds_card_number(name.encode(errors="replace") + b"\n" + (written or b""))
        for name, written in record.headers
        if name not in exempt
    )


def worst_of(record: SourceRecord, refused: Refused, exempt: frozenset[str]) -> Refused:
    """Why a record is refused whose body was not searched: a dead letter keeps it, so it is searched now.

    Where a card number was found before all was searched, another one may stand in what a reply would echo; and a copy says
    where it was, of which only our own names are passed on.
    """
    if refused.code is RefusalCode.CARD_NUMBER:
        if _headers_hold_card_number(record, exempt):
            return Refused(refused.code, "headers", TOKEN_EXPECTED)
        return refused if refused.field in _PLACES else Refused(refused.code, "value", TOKEN_EXPECTED, refused.address)
    try:
        check_card_number(record, _NOTHING, refused.address, exempt)
    except Refused as worse:
        return worse
    return refused


def _may_be_message(record: SourceRecord) -> bool:
    """Whether a value that was not parsed may be Protobuf: it should be, or its type is unknown, or it is no text."""
    reader = _reader_asked(record)
    return reader is None or reader.answer is not None or _NO_TEXT.search(record.value or b"") is not None


def format_asked(record: SourceRecord) -> Format:
    """In which an answer goes back, also where the headers could not be read to their end."""
    reader = _reader_asked(record)
    return AS_JSON if reader is None or reader.answer is None else reader.answer(record.value or b"")


def _reader_asked(record: SourceRecord) -> Reader | None:
    """By which a value would have been read; None where its content type is unknown."""
    written = [content_type for name, content_type in record.headers if name == CONTENT_TYPE_HEADER]
    try:
        return reader_of((written[-1] if written else None) or b"", (record.value or b"")[:1] == MAGIC)
    except Refused:
        return None
