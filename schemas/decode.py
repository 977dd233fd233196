"""From records to requests: a micro-batch is validated in one call, and a bad record costs only itself.

Every record ends as exactly one of a request, a refusal or a counted tombstone, in the order in which it came. Nothing
that a record may hold raises out of `decode`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter, ValidationError

from assay.schemas.card_number import (
    may_hold_card_number,
    may_hold_one_in_utf16,
    path_of_card_number,
    texts,
    unread_holds_card_number,
    unread_message_holds_card_number,
)
from assay.schemas.confluent import MAGIC
from assay.schemas.formats import AS_JSON, CONTENT_TYPE_HEADER, JSON_READER, Format, Reader, reader_of
from assay.schemas.headers import Envelope, Header, ReplyAddress, read_headers
from assay.schemas.limits import LATE_AFTER_MS, MAX_FUTURE_MS, MAX_ID_CHARACTERS, MAX_KEY_BYTES, MAX_VALUE_BYTES
from assay.schemas.mapping import Mapped
from assay.schemas.refusal import Refusal
from assay.schemas.refused import TOKEN_EXPECTED, RefusalCode, Refused
from assay.schemas.source import Source, SourceRecord
from assay.schemas.transaction import Transaction

_NOTHING: Final = object()
_NO_TEXT: Final = re.compile(rb"[\0-\x08\x0e-\x1f]")  # control characters, but for white space
_TRANSACTIONS = TypeAdapter(list[Transaction])


@dataclass(slots=True)
class Request:
    """A transaction to be judged, and what its record asks for."""

    source: Source
    key: bytes  # empty when the record had none
    appended_ms: int
    transaction: Transaction
    late_event: bool
    address: ReplyAddress | None
    correlation: Header | None
    deadline_ms: int  # epoch
    trace: list[Header]
    payload: int  # hash of what was sent, of this process: tells a repeat from a conflict
    explain: bool = False  # an approval too

    @property
    def user(self) -> bytes:
        """What profiles, decisions and evidence are keyed by, whatever the record's own key was."""
        return self.transaction.user_id.encode()


@dataclass(slots=True)
class Decoded:
    """What became of a sequence of records; requests and refusals each in the order of the records."""

    requests: list[Request]
    refusals: list[Refusal]
    tombstones: int


Signed = Callable[[SourceRecord], Refused | None]
"""Why a record is refused for its signature, or for having none."""


def decode(
    records: Sequence[SourceRecord],
    card_number_exempt: frozenset[str] = frozenset(),
    signed: Signed | None = None,
    mapped: Mapped | None = None,
    *,
    rekeyed: bool = False,
) -> Decoded:
    """Read and validate records.

    `card_number_exempt` names fields by their path ("merchant.id", "attributes.order") and headers whose numbers may look
    like card numbers; a record's key goes with "user_id". `signed` is asked of what is a transaction.
    `mapped` makes transactions of what comes in another shape. `rekeyed`: the records are copies, whose headers say where they
    came from and what was withheld; in any others a caller would have made that up.
    """
    opened: list[tuple[int, SourceRecord, Envelope, Reader]] = []
    bodies: list[object] = []
    refusals: dict[int, Refusal] = {}
    tombstones = 0
    for index, record in enumerate(records):
        if record.value is None:
            tombstones += 1
            continue
        try:
            envelope = read_headers(record.headers, record.timestamp, rekeyed=rekeyed)
            body, reader = _open(record, record.value, envelope, card_number_exempt, mapped)
        except Refused as refused:
            worst = _worst(record, refused, card_number_exempt)
            refusals[index] = _refusal(record, worst, worst.address, None)
            continue
        if mapped is not None and mapped.takes(envelope.content_type):
            try:
                body = _ours(mapped, body, card_number_exempt)
            except Refused as refused:
                refusals[index] = _refusal(record, refused, envelope.address, None)
                continue
        opened.append((index, record, envelope, reader))
        bodies.append(body)
    requests: list[Request] = []
    for (index, record, envelope, reader), body, outcome in zip(opened, bodies, _validate(bodies), strict=True):
        request = outcome if isinstance(outcome, Refused) else _request(record, envelope, reader, body, outcome)
        if signed is not None and not isinstance(request, Refused):
            request = signed(record) or request
        if isinstance(request, Refused):
            refusals[index] = _refusal(record, request, envelope.address, body)
        else:
            requests.append(request)
    return Decoded(requests, [refusals[index] for index in sorted(refusals)], tombstones)


def body_of(record: SourceRecord, mapped: Mapped | None = None) -> object:
    """The parsed body of one record, in our shape. Raises Refused, for a card number before all else."""
    try:
        envelope = read_headers(record.headers, record.timestamp)
        body, _ = _open(record, record.value or b"", envelope, frozenset(), mapped)
    except Refused as refused:
        raise _worst(record, refused, frozenset()) from None
    return _ours(mapped, body, frozenset()) if mapped is not None and mapped.takes(envelope.content_type) else body


def user_in(body: object) -> bytes | None:
    """Whose transaction a body is, as `Request.user`; None where it can't be told, so that it will be refused."""
    user = body.get("user_id") if isinstance(body, dict) else None
    return user.encode(errors="replace") if isinstance(user, str) and 0 < len(user) <= MAX_ID_CHARACTERS else None


_AHEAD = f"at most {MAX_FUTURE_MS // 60_000} minutes after the record was appended"


def _request(
    record: SourceRecord, envelope: Envelope, reader: Reader, body: object, transaction: Transaction
) -> Request | Refused:
    appended_ms, address, value = record.timestamp, envelope.address, record.value or b""
    age_ms = appended_ms - transaction.timestamp.ms
    if age_ms < -MAX_FUTURE_MS:
        return Refused(RefusalCode.TIMESTAMP_AHEAD, "timestamp", _AHEAD)
    if address is not None and reader.answer is not None:
        address = address._replace(format=reader.answer(value))
    return Request(
        Source(record.topic, record.partition, record.offset),
        record.key or b"",
        appended_ms,
        transaction,
        age_ms > LATE_AFTER_MS,
        address,
        envelope.correlation,
        envelope.deadline_ms,
        envelope.trace,
        hash(value if reader.payload is None else reader.payload(value, body)),
        envelope.explain,
    )


def _open(
    record: SourceRecord, value: bytes, envelope: Envelope, exempt: frozenset[str], mapped: Mapped | None
) -> tuple[object, Reader]:
    """The parsed body of a record that may be read, and how it was read. Raises Refused."""
    address, key = envelope.address, record.key or b""
    if len(value) > MAX_VALUE_BYTES:
        raise Refused(RefusalCode.TOO_LARGE, "value", f"at most {MAX_VALUE_BYTES} bytes", address)
    if len(key) > MAX_KEY_BYTES:
        raise Refused(RefusalCode.TOO_LARGE, "key", f"at most {MAX_KEY_BYTES} bytes", address)
    expected = ""
    try:
        theirs = mapped is not None and mapped.names(envelope.content_type)
        reader = JSON_READER if theirs else reader_of(envelope.content_type, value[:1] == MAGIC)
        expected = reader.expected
        body = reader.parse(value)
    except Refused as refused:
        refused.address = address
        raise
    except (ValueError, ArithmeticError):
        raise Refused(RefusalCode.MALFORMED, "value", expected, address) from None
    if _first_look(value, key, envelope.text) or (reader.hides is not None and reader.hides(value, body)):
        _check_card_number(record, body, envelope.address, exempt)
    return body, reader


def _first_look(value: bytes, key: bytes, headers: bytes) -> bool:
    """Whether to look for a card number more closely: escapes could hide a digit; in UTF-16 zero bytes stand between them."""
    if may_hold_card_number(b"\n".join((value, key, headers))) or b"\\" in value:
        return True
    beside = key + headers
    return b"\\u00" in beside or may_hold_one_in_utf16(beside)


# -- refused


def _check_card_number(record: SourceRecord, body: object, address: ReplyAddress | None, exempt: frozenset[str]) -> None:
    """Raises Refused when there is a card number anywhere in the record. A body that was not parsed is searched as it is."""
    found: str | None = None
    if "user_id" not in exempt and unread_holds_card_number(record.key or b""):
        found = "key"
    if body is _NOTHING:
        value = record.value or b""
        if unread_message_holds_card_number(value) if _may_be_message(record) else unread_holds_card_number(value):
            found = "value"
    elif (path := path_of_card_number(texts(body, exempt))) is not None:
        found = _place(path)
    if _headers_hold_card_number(record, exempt):
        found, address = "headers", None  # what a reply would echo
    if found is not None:
        raise Refused(RefusalCode.CARD_NUMBER, found, TOKEN_EXPECTED, address)


def _place(path: str) -> str:
    """What a refusal says of a path: never a name that is not ours."""
    return path if path in _EXPECTED else "attributes" if path.startswith("attributes") else "value"


def _ours(mapped: Mapped, body: object, exempt: frozenset[str]) -> object:
    """What a mapping makes of a body that was searched. Raises Refused."""
    body = mapped(body)
    if mapped.joins and (path := path_of_card_number(texts(body, exempt))) is not None:
        raise Refused(RefusalCode.CARD_NUMBER, _place(path), TOKEN_EXPECTED)
    return body


def _headers_hold_card_number(record: SourceRecord, exempt: frozenset[str]) -> bool:
    return any(
        unread_holds_card_number(name.encode(errors="replace") + b"\n" + (written or b""))
        for name, written in record.headers
        if name not in exempt
    )


def _worst(record: SourceRecord, refused: Refused, exempt: frozenset[str]) -> Refused:
    """Why a record is refused whose body was not searched: a dead letter keeps it, so it is searched now.

    Where a card number was found before all was searched, another one may stand in what a reply would echo; and a copy says
    where it was, of which only our own names are passed on.
    """
    if refused.code is RefusalCode.CARD_NUMBER:
        if _headers_hold_card_number(record, exempt):
            return Refused(refused.code, "headers", TOKEN_EXPECTED)
        return refused if refused.field in _PLACES else Refused(refused.code, "value", TOKEN_EXPECTED, refused.address)
    try:
        _check_card_number(record, _NOTHING, refused.address, exempt)
    except Refused as worse:
        return worse
    return refused


def _refusal(record: SourceRecord, refused: Refused, address: ReplyAddress | None, body: object) -> Refusal:
    name = body.get("transaction_id") if isinstance(body, dict) else None
    if not (isinstance(name, str) and 0 < len(name) <= MAX_ID_CHARACTERS and name.isprintable()):
        name = None
    if address is not None:
        address = address._replace(format=_format_asked(record))
    return Refusal(record, refused.code, refused.field, refused.expected, address, name)


def _may_be_message(record: SourceRecord) -> bool:
    """Whether a value that was not parsed may be Protobuf: it should be, or its type is unknown, or it is no text."""
    reader = _reader_asked(record)
    return reader is None or reader.answer is not None or _NO_TEXT.search(record.value or b"") is not None


def _format_asked(record: SourceRecord) -> Format:
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


# -- validated


def _validate(bodies: list[object]) -> list[Transaction | Refused]:
    """For each body the transaction, or why it is none: one call, and a second one without the bad ones."""
    try:
        return list(_TRANSACTIONS.validate_python(bodies))
    except ValidationError as error:
        first: dict[int, Any] = {}
        for problem in error.errors(include_url=False, include_input=False):
            first.setdefault(int(problem["loc"][0]), problem)
    good = iter(_TRANSACTIONS.validate_python([body for index, body in enumerate(bodies) if index not in first]))
    return [_explain(first[index]) if index in first else next(good) for index in range(len(bodies))]


def _explain(problem: dict[str, Any]) -> Refused:
    path = str((problem.get("ctx") or {}).get("field") or ".".join(map(str, problem["loc"][1:])))
    if not path:
        return Refused(RefusalCode.MALFORMED, "value", "a JSON object")
    code = RefusalCode.MISSING if problem["type"] == "missing" else RefusalCode.INVALID
    ours = problem["type"] in _OWN_MESSAGES
    return Refused(code, path, problem["msg"] if ours else _EXPECTED.get(path, problem["msg"]))


_OWN_MESSAGES = frozenset({"amount"})  # more exact than the field's description


def _descriptions(model: type[BaseModel], path: str = "") -> dict[str, str]:
    """What is expected of each field, by its path."""
    expected: dict[str, str] = {}
    for name, described in model.model_fields.items():
        expected[path + name] = described.description or ""
        for inner in (described.annotation, *getattr(described.annotation, "__args__", ())):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                expected |= _descriptions(inner, f"{path}{name}.")
    return expected


_EXPECTED = _descriptions(Transaction)
_PLACES = frozenset({*_EXPECTED, "attributes", "headers", "key", "value"})
