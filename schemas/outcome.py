"""An outcome: what became of a transaction. "Known at t" means appended to the log before; `known_at` alone proves nothing."""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay.schemas.card_number import (
    may_hold_card_number,
    path_of_card_number,
    texts,
    unread_holds_card_number,
)
from assay.schemas.fields import AMOUNT_EXPECTED, Amount, Id
from assay.schemas.formats import parse_json
from assay.schemas.instant import EXPECTED as INSTANT_EXPECTED
from assay.schemas.instant import Instant
from assay.schemas.limits import MAX_ID_CHARACTERS, MAX_KEY_BYTES, MAX_VALUE_BYTES
from assay.schemas.refusal import Refusal
from assay.schemas.refused import RefusalCode, Refused
from assay.schemas.source import SourceRecord


class Status(StrEnum):
    """What became of it."""

    AUTHORISED = "authorised"
    ISSUER_DECLINED = "issuer_declined"
    DISPUTED = "disputed"
    DISPUTE_REVERSED = "dispute_reversed"
    FRAUD = "fraud"
    GENUINE = "genuine"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Detail(_Part):
    """What the issuer or an analyst said, in their own codes."""

    issuer_code: Id | None = None
    avs: Annotated[Id | None, Field(description="address verification result")] = None
    cvv: Annotated[Id | None, Field(description="card verification result")] = None
    three_ds: Annotated[Id | None, Field(description="3-D Secure result")] = None
    fraud_type: Id | None = None


class Outcome(_Part):
    """What became of one transaction."""

    outcome_id: Id
    user_id: Id
    transaction_id: Id
    status: Status
    detail: Detail | None = None
    amount: Annotated[
        Amount | None, Field(description=f"{AMOUNT_EXPECTED}: what it is about, which may be a part; the whole when absent")
    ] = None
    known_at: Annotated[Instant, Field(description="when its sender knew it")]
    supersedes: Annotated[Id | None, Field(description="the outcome_id of an earlier one that this takes the place of")] = None


def encode_outcome(outcome: Outcome) -> bytes:
    """An outcome's bytes; absent fields are left out."""
    return outcome.model_dump_json(exclude_none=True).encode()


def read_outcome(value: bytes) -> Outcome:
    """An outcome from its bytes, the amount exact.

    Raises ValueError (pydantic's ValidationError among them), also where anything in it holds a card number (invariant I7).
    """
    body = parse_json(value)
    if (may_hold_card_number(value) or b"\\" in value) and path_of_card_number(texts(body)) is not None:
        raise ValueError("it holds a card number")
    return Outcome.model_validate(body)


def outcome_of(record: SourceRecord) -> Outcome | Refusal | None:
    """What a record says, or why it is refused; None for a tombstone.

    What was appended was known by then: a `known_at` after the record's own time is taken for that time, so that a clock
    that is ahead doesn't overrule what is heard later.
    """
    if record.value is None:
        return None
    try:
        outcome = _checked(record, record.value)
    except Refused as refused:
        return Refusal(record, refused.code, refused.field, refused.expected)
    if outcome.known_at.ms <= record.timestamp:
        return outcome
    return outcome.model_copy(update={"known_at": Instant(record.timestamp, outcome.known_at.offset_minutes)})


def _checked(record: SourceRecord, value: bytes) -> Outcome:
    """Raises Refused."""
    _check_card_number(record, value)
    if len(value) > MAX_VALUE_BYTES:
        raise Refused(RefusalCode.TOO_LARGE, "value", f"at most {MAX_VALUE_BYTES} bytes")
    if len(record.key or b"") > MAX_KEY_BYTES:
        raise Refused(RefusalCode.TOO_LARGE, "key", f"at most {MAX_KEY_BYTES} bytes")
    try:
        return read_outcome(value)
    except ValidationError as error:
        raise _refused(error) from None
    except (ValueError, ArithmeticError):
        raise Refused(RefusalCode.MALFORMED, "value", "JSON (RFC 8259), no name twice in an object") from None


def _check_card_number(record: SourceRecord, value: bytes) -> None:
    """Raises Refused: a dead letter would keep it."""
    found = "key" if unread_holds_card_number(record.key or b"") else None
    if _value_holds_card_number(value):
        found = "value"
    for name, written in record.headers:
        if unread_holds_card_number(name.encode(errors="replace") + b"\n" + (written or b"")):
            found = "headers"
    if found is not None:
        raise Refused(RefusalCode.CARD_NUMBER, found, "a token: card numbers are never taken, logged or kept")


def _value_holds_card_number(value: bytes) -> bool:
    if not (may_hold_card_number(value) or b"\\" in value or b"\0" in value):
        return False
    try:
        if len(value) <= MAX_VALUE_BYTES:
            return path_of_card_number(texts(parse_json(value))) is not None
    except (ValueError, ArithmeticError):
        pass
    return unread_holds_card_number(value)


def _refused(error: ValidationError) -> Refused:
    """The first problem, by field; what came is never quoted."""
    problem = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(map(str, problem["loc"]))
    if not path:
        return Refused(RefusalCode.MALFORMED, "value", "a JSON object")
    code = RefusalCode.MISSING if problem["type"] == "missing" else RefusalCode.INVALID
    return Refused(code, path, _EXPECTED.get(path, f"a string of 1 to {MAX_ID_CHARACTERS} printable characters"))


_EXPECTED = {  # of those fields that are no ids
    "status": f"one of {', '.join(Status)}",
    "amount": AMOUNT_EXPECTED,
    "known_at": INSTANT_EXPECTED,
    "detail": f"an object with any of {', '.join(Detail.model_fields)}",
}
