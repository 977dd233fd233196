"""Transactions in somebody else's shape, mapped to ours field by field, as a file says it (setting `mapping`).

A mapping only moves and converts values; what comes out is validated like every transaction. Nothing that a record holds raises
anything but Refused, which names our field and the place where its value was looked for, and never quotes what came.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Any, Final

from assay.schemas.codes import CURRENCY_DIGITS
from assay.schemas.formats import media_type_of
from assay.schemas.refused import RefusalCode, Refused
from assay.schemas.transaction import Transaction

ABSENT: Final = object()
REQUIRED: Final = ("transaction_id", "user_id", "amount", "currency", "timestamp", "merchant.id")
_NESTED: Final = {"merchant", "instrument", "location", "device"}

Convert = Callable[[Any], Any]
"""From a value as it came to one of ours. Raises ValueError, whose text says what was expected."""
Find = Callable[[object], Any]
"""The value in a body, or ABSENT."""


def _targets() -> tuple[str, ...]:
    found: list[str] = []
    for name, described in Transaction.model_fields.items():
        if name in _NESTED:
            annotation = described.annotation
            [model] = [each for each in (annotation, *getattr(annotation, "__args__", ())) if hasattr(each, "model_fields")]
            found += [f"{name}.{inner}" for inner in model.model_fields]
        elif name != "attributes":
            found.append(name)
    return tuple(found)


TARGETS: Final = _targets()
"""Our fields by their paths; besides, "attributes.NAME" for any name."""


def at(path: str) -> Find:
    """What lies at a path: names and places of lists, separated by points. A null is absent.

    >>> at("data.items.0.id")({"data": {"items": [{"id": "a"}]}})
    'a'
    >>> at("data.items.1.id")({"data": {"items": [{"id": "a"}]}}) is ABSENT
    True
    """
    steps = path.split(".")

    def find(body: object) -> Any:
        for step in steps:
            if isinstance(body, dict):
                body = body.get(step)
            elif isinstance(body, list) and step.isdigit() and len(step) < 6 and int(step) < len(body):
                body = body[int(step)]
            else:
                return ABSENT
        return ABSENT if body is None else body

    return find


def first_of(paths: Sequence[str]) -> Find:
    """What lies at the first of these paths where there is anything."""
    finds = [at(path) for path in paths]
    return lambda body: next((value for find in finds if (value := find(body)) is not ABSENT), ABSENT)


def joined(paths: Sequence[str], between: str) -> Find:
    """What lies at these paths as one text; absent where one of them is."""
    finds = [at(path) for path in paths]

    def find(body: object) -> Any:
        values = [find(body) for find in finds]
        return ABSENT if ABSENT in values else between.join(map(text, values))

    return find


def text(value: Any) -> str:
    """A scalar as text. Raises ValueError.

    >>> text(17), text(True), text("a")
    ('17', 'true', 'a')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int | Decimal):
        return str(value)
    raise ValueError("a text, a number or a boolean")


def upper(value: Any) -> str:
    """Text in capitals. Raises ValueError."""
    return text(value).upper()


def epoch_seconds(value: Any) -> int:
    """Epoch milliseconds of epoch seconds, which may have a fraction. Raises ValueError."""
    if isinstance(value, str) and len(value) < 20 and value.isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not 0 <= value < 10**12:
        raise ValueError("seconds since 1970")
    return int(value * 1000)


def moment(format_: str | None, zone: tzinfo | None) -> Convert:
    """RFC 3339 of a time that is written in another form, and in a zone where it names none itself.

    `format_` is one of `datetime.strptime`; ISO 8601 when None.
    """
    expected = "a time in ISO 8601" if format_ is None else f"a time like {format_}"

    def convert(value: Any) -> str:
        written = text(value)
        try:
            read = datetime.fromisoformat(written) if format_ is None else datetime.strptime(written, format_)  # noqa: DTZ007
        except ValueError:
            raise ValueError(expected) from None
        if read.tzinfo is None:
            if zone is None:
                raise ValueError(f"{expected} with an offset, or a zone in the mapping")
            read = read.replace(tzinfo=zone)
        return read.isoformat()

    return convert


def values(table: Mapping[str, Any], otherwise: Any = ABSENT) -> Convert:
    """What a table says of a value; `otherwise` what it does not name. Raises ValueError where nothing does."""
    expected = "one of " + ", ".join(sorted(table)[:20])

    def convert(value: Any) -> Any:
        found = table.get(text(value), otherwise)
        if found is ABSENT:
            raise ValueError(expected)
        return found

    return convert


def minor_units(value: Any, currency: object) -> Decimal:
    """Major units of a whole number of the currency's minor units. Raises ValueError.

    >>> minor_units(1999, "EUR"), minor_units("500", "JPY")
    (Decimal('19.99'), Decimal('500'))
    """
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 10**18:
        raise ValueError("a whole number of minor units")
    digits = CURRENCY_DIGITS.get(currency) if isinstance(currency, str) else None
    if digits is None:
        raise ValueError("a whole number of minor units, beside a currency of ISO 4217")
    return Decimal(value).scaleb(-digits)


class FieldMapping:
    """How one of our fields comes about.

    Args:
        target: the path of our field.
        where: where its value is looked for, for whoever reads a refusal.
        default: where there is none; ABSENT: then the field is absent.
        minor: the amount is in minor units of the currency.
        joins: its value is made of several texts.
    """

    __slots__ = ("_convert", "_default", "_find", "joins", "minor", "target", "where")

    def __init__(
        self,
        target: str,
        where: str,
        find: Find,
        convert: Sequence[Convert] = (),
        default: Any = ABSENT,
        *,
        minor: bool = False,
        joins: bool = False,
    ) -> None:
        self.target, self.where, self.minor, self.joins = target, where, minor, joins
        self._find, self._convert, self._default = find, tuple(convert), default

    def value(self, body: object) -> Any:
        """Ours, or ABSENT. Raises Refused."""
        try:
            value = self._find(body)
            if value is ABSENT:
                value = self._default
                if value is ABSENT and self.target in REQUIRED:
                    raise Refused(RefusalCode.MISSING, self.target, f"a value at {self.where}, by the mapping")
                return value
            for convert in self._convert:
                value = convert(value)
        except ValueError as error:
            raise self.refused(error) from None
        return value

    def refused(self, error: ValueError) -> Refused:
        """Its value is not what the mapping expects."""
        return Refused(RefusalCode.INVALID, self.target, f"{error} at {self.where}, by the mapping")


class Mapped:
    """A whole mapping. Call it with a body.

    Args:
        content_types: media types that it is for, whose bodies are JSON; where there are none, it is for every body.
    """

    def __init__(self, fields: Sequence[FieldMapping], content_types: frozenset[str] = frozenset()) -> None:
        self._fields = [field for field in fields if not field.minor]
        self._minor = next((field for field in fields if field.minor), None)
        self._content_types = content_types
        self.joins = any(field.joins for field in fields)
        """Whether a text of ours may be made of several of theirs: so it is nothing that was searched for card numbers."""

    @property
    def content_type(self) -> str:
        """One that it is for."""
        return min(self._content_types, default="application/json")

    def names(self, content_type: bytes) -> bool:
        """Whether a body of this content type is JSON because the mapping says so."""
        return bool(self._content_types) and media_type_of(content_type) in self._content_types

    def takes(self, content_type: bytes) -> bool:
        """Whether a body of this content type is to be mapped."""
        return not self._content_types or media_type_of(content_type) in self._content_types

    def __call__(self, body: object) -> dict[str, Any]:
        """Ours, not yet validated. Raises Refused."""
        mapped: dict[str, Any] = {}
        for field in self._fields:
            if (value := field.value(body)) is not ABSENT:
                _put(mapped, field.target, value)
        if self._minor is not None and (value := self._minor.value(body)) is not ABSENT:
            try:
                mapped["amount"] = minor_units(value, mapped.get("currency"))
            except ValueError as error:
                raise self._minor.refused(error) from None
        return mapped


def _put(mapped: dict[str, Any], target: str, value: Any) -> None:
    part, _, name = target.partition(".")
    if name:
        mapped.setdefault(part, {})[name] = value
    else:
        mapped[part] = value
