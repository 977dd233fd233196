"""Why a record is refused: the stable codes, and what a check raises inside this folder."""

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.schemas.headers import ReplyAddress


TOKEN_EXPECTED = "a token: card numbers are never taken, logged or kept"


class RefusalCode(StrEnum):
    """Stable: callers and operators build on them. Added to, never renamed."""

    TOO_LARGE = "too_large"  # value, headers or key
    CONTENT_TYPE = "content_type"  # of a kind that we don't read
    MALFORMED = "malformed"  # the body is not what its content type says
    MISSING = "missing"  # a required field
    INVALID = "invalid"  # a field has a wrong type, form or range
    TIMESTAMP_AHEAD = "timestamp_ahead"  # of the record's own append time
    CARD_NUMBER = "card_number"  # anywhere in the record; nothing of it is kept
    CORRELATION = "correlation"  # the correlation id
    REPLY_ADDRESS = "reply_address"  # the reply topic or partition
    DEADLINE = "deadline"  # one of the deadline headers
    UNSIGNED = "unsigned"  # where a signature is required
    SIGNATURE = "signature"  # is not what it should be


class Refused(Exception):
    """A record can't be taken. `field` and `expected` never quote what came: it may be what must not be logged."""

    def __init__(self, code: RefusalCode, field: str, expected: str, address: "ReplyAddress | None" = None) -> None:
        super().__init__(f"{code}: {field}: expected {expected}")
        self.code, self.field, self.expected, self.address = code, field, expected, address
