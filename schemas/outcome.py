"""An outcome: what became of a transaction. "Known at t" means appended to the log before; `known_at` alone proves nothing."""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from assay.schemas.card_number import may_hold_card_number, path_of_card_number, texts
from assay.schemas.decode import parse_json
from assay.schemas.fields import AMOUNT_EXPECTED, Amount, Id
from assay.schemas.instant import Instant


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
