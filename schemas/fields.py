"""The types that fields of a transaction are made of: strict, exact, and each in one call.

What a validator of ours raises says what was expected, never what came: it may be what must not be logged.
"""

import math
import re
from collections.abc import Callable, Iterable
from decimal import (
    Clamped,
    Context,
    Decimal,
    Inexact,
    InvalidOperation,
    Overflow,
    Rounded,
    Subnormal,
    Underflow,
)
from ipaddress import IPv6Address
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, StringConstraints
from pydantic_core import PydanticCustomError, core_schema

from assay.schemas.codes import COUNTRIES, CURRENCY_DIGITS, TIME_ZONES
from assay.schemas.limits import (
    MAX_AMOUNT,
    MAX_ATTRIBUTE_CHARACTERS,
    MAX_ATTRIBUTES,
    MAX_ID_CHARACTERS,
)

Scalar = str | int | float | bool


class Read:
    """A type that one function reads: `function` returns the value or raises PydanticCustomError."""

    def __init__(self, function: Callable[[Any], Any], *forms: core_schema.CoreSchema, write: Any = None) -> None:
        self.function, self.forms, self.write = function, forms, write

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.function,
            json_schema_input_schema=core_schema.union_schema(list(self.forms)),
            serialization=self.write and core_schema.plain_serializer_function_ser_schema(self.write, when_used="json"),
        )


class OneOf:
    """A string out of a fixed set."""

    def __init__(self, values: Iterable[str], expected: str) -> None:
        self.values, self.expected = list(values), expected

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.custom_error_schema(
            core_schema.literal_schema(self.values), custom_error_type="code", custom_error_message=self.expected
        )


class Degrees:
    """A number from -bound to bound; a Decimal, as bodies are parsed, becomes a float. Neither a string nor a boolean."""

    def __init__(self, bound: int) -> None:
        self.bound = bound

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        bounds: dict[str, Any] = {"ge": -self.bound, "le": self.bound, "allow_inf_nan": False}
        return core_schema.custom_error_schema(
            core_schema.union_schema(
                [
                    core_schema.chain_schema([core_schema.is_instance_schema(Decimal), core_schema.float_schema(**bounds)]),
                    core_schema.float_schema(strict=True, **bounds),
                ],
                mode="left_to_right",
            ),
            custom_error_type="degrees",
            custom_error_message=f"a number of degrees from -{self.bound} to {self.bound}",
        )

    def __get_pydantic_json_schema__(self, schema: object, handler: object) -> dict[str, Any]:
        return {"type": "number", "minimum": -self.bound, "maximum": self.bound}


# -- amounts

AMOUNT_EXPECTED = f"a decimal number of major units, as a string or a number, from 0 to {MAX_AMOUNT}"
# The grammar of a JSON number without a sign, so that a string may say what a number may, and no more: Python's Decimal
# also takes underscores, blanks, NaN and digits of other scripts.
_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,40})(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?")
# At most 31 digits (13 before the point; databases and Java's BigDecimal write up to 18 behind it, most of them zeros) and
# no exponent beyond them. Nothing is rounded: what does not fit raises. So writing an amount back is bounded too.
_BOUNDED = Context(
    prec=31, Emin=-18, Emax=12, traps=[InvalidOperation, Inexact, Rounded, Overflow, Underflow, Subnormal, Clamped]
)
_MOST = Decimal(MAX_AMOUNT)
_UNITS = {code: Decimal(1).scaleb(-digits) for code, digits in CURRENCY_DIGITS.items()}
_bounded, _remainder = _BOUNDED.plus, _BOUNDED.remainder


def read_amount(value: object) -> Decimal:
    """The amount, exactly as written. A float is refused: it has lost digits already."""
    try:
        if type(value) is Decimal or (type(value) is int and value <= MAX_AMOUNT):
            amount = _bounded(value)
        elif type(value) is str and _NUMBER.fullmatch(value):
            amount = _bounded(Decimal(value))
        else:
            amount = _MOST + 1
        if 0 <= amount <= _MOST:
            return amount
    except ArithmeticError:
        pass
    if type(value) is float:
        raise PydanticCustomError("amount", "a decimal that was not read through a float: a string, an int or a Decimal")
    raise PydanticCustomError("amount", AMOUNT_EXPECTED)


def fits_currency(amount: Decimal, currency: str) -> bool:
    """Whether the amount has at most the currency's digits after the point, zeros at its end not counted."""
    return not _remainder(amount, _UNITS[currency])


def write_amount(amount: Decimal) -> str:
    """The amount without an exponent: "1000", not "1E+3"."""
    return format(amount, "f")


# -- other fields

_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"^(?:{_BYTE}\.){{3}}{_BYTE}$"


def _read_ipv6(value: object) -> str:
    if type(value) is str and len(value) <= 45 and "%" not in value:
        try:
            address = IPv6Address(value)
        except ValueError:
            pass
        else:
            return str(address.ipv4_mapped or address)
    raise PydanticCustomError("ip", "an IPv4 or IPv6 address")


class InternetAddress:
    """An IP address in its one canonical form, so that equal addresses are equal strings.

    An IPv4 address inside IPv6 (::ffff:a.b.c.d, as dual-stack sockets tell it) is that IPv4 address. No scope (%eth0).
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.custom_error_schema(
            core_schema.union_schema(
                [
                    core_schema.str_schema(strict=True, pattern=_IPV4),  # the common form, without a call into Python
                    core_schema.no_info_plain_validator_function(_read_ipv6, json_schema_input_schema=core_schema.str_schema()),
                ],
                mode="left_to_right",
            ),
            custom_error_type="ip",
            custom_error_message="an IPv4 or IPv6 address",
        )

    def __get_pydantic_json_schema__(self, schema: object, handler: object) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"}]}


ATTRIBUTES_EXPECTED = (
    f"an object of at most {MAX_ATTRIBUTES} scalars; names and texts of at most {MAX_ATTRIBUTE_CHARACTERS} characters, "
    "integers of 64 bits"
)


def read_attributes(value: object) -> dict[str, Scalar]:
    """Named scalars, for rules. A null stands for "absent", as many serialisers write it."""
    if value is None:
        return {}
    if type(value) is not dict or len(value) > MAX_ATTRIBUTES:
        raise PydanticCustomError("attributes", ATTRIBUTES_EXPECTED)
    attributes: dict[str, Scalar] = {}
    for name, scalar in value.items():
        kind = type(scalar)
        if kind is str:
            fits = len(scalar) <= MAX_ATTRIBUTE_CHARACTERS
        elif kind is int:
            fits = -(2**63) <= scalar < 2**63
        elif kind is Decimal or kind is float:
            scalar = float(scalar)
            fits = math.isfinite(scalar)  # what is too large for a float became infinite
        elif scalar is None:
            continue
        else:
            fits = kind is bool
        if not fits or type(name) is not str or not 0 < len(name) <= MAX_ATTRIBUTE_CHARACTERS:
            raise PydanticCustomError("attributes", ATTRIBUTES_EXPECTED)
        attributes[name] = scalar
    return attributes


Id = Annotated[
    str,
    StringConstraints(
        strict=True,
        min_length=1,
        max_length=MAX_ID_CHARACTERS,
        pattern=r"^(?: |[^\p{C}\p{Z}])+$",  # printable: no control, format or unassigned character; the blank alone
    ),
]
Category = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9]{4}$")]
IssuerNumber = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9]{6,8}$")]
Currency = Annotated[str, OneOf(CURRENCY_DIGITS, "an ISO 4217 code, upper case")]
Country = Annotated[str, OneOf(COUNTRIES, "an ISO 3166-1 alpha-2 code, upper case")]
TimeZone = Annotated[str, OneOf(TIME_ZONES, "the name of an IANA time zone")]
Amount = Annotated[
    Decimal, Read(read_amount, core_schema.str_schema(), core_schema.float_schema(ge=0, le=MAX_AMOUNT), write=write_amount)
]
Latitude = Annotated[float, Degrees(90)]
Longitude = Annotated[float, Degrees(180)]
Address = Annotated[str, InternetAddress()]
Attributes = Annotated[
    dict[str, Scalar],
    Read(
        read_attributes,
        core_schema.dict_schema(
            core_schema.str_schema(min_length=1, max_length=MAX_ATTRIBUTE_CHARACTERS),
            core_schema.union_schema(
                [
                    core_schema.str_schema(max_length=MAX_ATTRIBUTE_CHARACTERS),
                    core_schema.int_schema(),
                    core_schema.float_schema(),
                    core_schema.bool_schema(),
                ]
            ),
            max_length=MAX_ATTRIBUTES,
        ),
    ),
]
