"""From records to requests: a micro-batch is validated in one call, and a bad record costs only itself.

Every record ends as exactly one of a request, a refusal or a counted tombstone, in the order in which it came. Nothing
that a record may hold raises out of `decode`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from assay.schemas.card_number import path_of_card_number, texts
from assay.schemas.card_search import check_card_number, first_look, format_asked, place_of, worst_of
from assay.schemas.confluent import MAGIC
from assay.schemas.formats import JSON_READER, Reader, reader_of
from assay.schemas.headers import Envelope, Header, ReplyAddress, read_headers
from assay.schemas.limits import LATE_AFTER_MS, MAX_FUTURE_MS, MAX_ID_CHARACTERS, MAX_KEY_BYTES, MAX_VALUE_BYTES
from assay.schemas.mapping import Mapped
from assay.schemas.refusal import Refusal
from assay.schemas.refused import TOKEN_EXPECTED, RefusalCode, Refused
from assay.schemas.source import Source, SourceRecord
from assay.schemas.transaction import EXPECTED, Transaction

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
            worst = worst_of(record, refused, card_number_exempt)
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
        raise worst_of(record, refused, frozenset()) from None
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
    if first_look(value, key, envelope.text) or (reader.hides is not None and reader.hides(value, body)):
        check_card_number(record, body, envelope.address, exempt)
    return body, reader


# -- refused


def _ours(mapped: Mapped, body: object, exempt: frozenset[str]) -> object:
    """What a mapping makes of a body that was searched. Raises Refused."""
    body = mapped(body)
    if mapped.joins and (path := path_of_card_number(texts(body, exempt))) is not None:
        raise Refused(RefusalCode.CARD_NUMBER, place_of(path), TOKEN_EXPECTED)
    return body


def _refusal(record: SourceRecord, refused: Refused, address: ReplyAddress | None, body: object) -> Refusal:
    name = body.get("transaction_id") if isinstance(body, dict) else None
    if not (isinstance(name, str) and 0 < len(name) <= MAX_ID_CHARACTERS and name.isprintable()):
        name = None
    if address is not None:
        address = address._replace(format=format_asked(record))
    return Refusal(record, refused.code, refused.field, refused.expected, address, name)


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
    return Refused(code, path, problem["msg"] if ours else EXPECTED.get(path, problem["msg"]))


_OWN_MESSAGES = frozenset({"amount"})  # more exact than the field's description
