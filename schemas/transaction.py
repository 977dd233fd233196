"""A transaction: one payment to be scored, as upstream systems send it (`docs`: the wire contract's table, field by field).

Types are strict: a number where a string belongs is refused, with the field named. Unknown fields are ignored and
kept nowhere. A null stands for an optional field that is absent.
"""

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from assay.schemas.codes import COUNTRIES, CURRENCY_DIGITS, currency_digits
from assay.schemas.fields import (
    AMOUNT_EXPECTED,
    ATTRIBUTES_EXPECTED,
    Address,
    Amount,
    Attributes,
    Category,
    Country,
    Currency,
    Id,
    IssuerNumber,
    Latitude,
    Longitude,
    TimeZone,
    fits_currency,
)
from assay.schemas.instant import EXPECTED as INSTANT_EXPECTED
from assay.schemas.instant import Instant
from assay.schemas.limits import MAX_ID_CHARACTERS

__all__ = [
    "COUNTRIES",
    "CURRENCY_DIGITS",
    "Channel",
    "Device",
    "Instant",
    "Instrument",
    "Kind",
    "Location",
    "Merchant",
    "Transaction",
    "currency_digits",
]

_ID = f"a string of 1 to {MAX_ID_CHARACTERS} printable characters"
_COUNTRY = "an ISO 3166-1 alpha-2 code, upper case"


class Kind(StrEnum):
    """What a payment is. The order is part of the stored state (`tables.events`): append only."""

    PURCHASE = "purchase"
    VERIFICATION = "verification"
    PREAUTH = "preauth"
    RECURRING = "recurring"
    REFUND = "refund"
    REVERSAL = "reversal"

    @classmethod
    def _missing_(cls, value: object) -> "Kind | None":
        return cls.PURCHASE if value is None else None


class Channel(StrEnum):
    """How a payment was made. The order is part of the stored state (`tables.events`): append only."""

    ECOM = "ecom"
    POS = "pos"
    ATM = "atm"
    TRANSFER = "transfer"
    OTHER = "other"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Merchant(_Part):
    """Who is paid."""

    id: Annotated[Id, Field(description=_ID)]
    category: Annotated[Category | None, Field(description="a merchant category code: 4 digits")] = None
    country: Annotated[Country | None, Field(description=_COUNTRY)] = None


class Instrument(_Part):
    """What is paid with. `id` is a token, never the card number."""

    id: Annotated[Id | None, Field(description=f"a token, never the card number: {_ID}")] = None
    bin: Annotated[IssuerNumber | None, Field(description="an issuer identification number: 6 to 8 digits")] = None
    issuer_country: Annotated[Country | None, Field(description=_COUNTRY)] = None


class Location(_Part):
    """Where the payer is."""

    country: Annotated[Country | None, Field(description=_COUNTRY)] = None
    latitude: Annotated[Latitude | None, Field(description="a number of degrees from -90 to 90")] = None
    longitude: Annotated[Longitude | None, Field(description="a number of degrees from -180 to 180")] = None
    time_zone: Annotated[TimeZone | None, Field(description="the name of an IANA time zone")] = None


class Device(_Part):
    """What the payer uses."""

    id: Annotated[Id | None, Field(description=_ID)] = None
    ip: Annotated[Address | None, Field(description="an IPv4 or IPv6 address")] = None
    type: Annotated[Id | None, Field(description=_ID)] = None


class Transaction(_Part):
    """One payment to be scored."""

    transaction_id: Annotated[Id, Field(description=f"{_ID}, unique per user")]
    user_id: Annotated[Id, Field(description=_ID)]
    payment_id: Annotated[Id | None, Field(description=f"{_ID}, the same for all attempts at one purchase")] = None
    kind: Annotated[Kind, Field(description="one of " + ", ".join(Kind))] = Kind.PURCHASE
    amount: Annotated[
        Amount,
        Field(description=f"{AMOUNT_EXPECTED}, with at most the currency's digits; 0 only for a verification"),
    ]
    currency: Annotated[Currency, Field(description="an ISO 4217 code, upper case")]
    timestamp: Annotated[Instant, Field(description=f"when the payment happened: {INSTANT_EXPECTED}")]
    merchant: Annotated[Merchant, Field(description="an object with the id of the merchant")]
    instrument: Annotated[Instrument | None, Field(description="an object")] = None
    location: Annotated[Location | None, Field(description="an object")] = None
    device: Annotated[Device | None, Field(description="an object")] = None
    channel: Annotated[Channel | None, Field(description="one of " + ", ".join(Channel))] = None
    attributes: Annotated[Attributes, Field(description=ATTRIBUTES_EXPECTED, default_factory=dict)]

    @model_validator(mode="after")
    def _amount_fits(self) -> Self:
        if not fits_currency(self.amount, self.currency):
            raise PydanticCustomError(
                "amount",
                "at most {digits} digits after the point, as {currency} has",
                {"field": "amount", "digits": CURRENCY_DIGITS[self.currency], "currency": self.currency},
            )
        if not self.amount and self.kind is not Kind.VERIFICATION:
            raise PydanticCustomError("amount", "above 0: only a verification may be of 0", {"field": "amount"})
        return self


def _descriptions(model: type[BaseModel], path: str = "") -> dict[str, str]:
    """What is expected of each field, by its path."""
    expected: dict[str, str] = {}
    for name, described in model.model_fields.items():
        expected[path + name] = described.description or ""
        for inner in (described.annotation, *getattr(described.annotation, "__args__", ())):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                expected |= _descriptions(inner, f"{path}{name}.")
    return expected


EXPECTED: Final = _descriptions(Transaction)
"""What is expected of each field, by its path ("merchant.id")."""
