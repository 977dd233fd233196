"""Protobuf at runtime: a transaction's body as the object that JSON would have brought, and answers from their JSON.

So a transaction is validated, and a card number found, by the same code in either format; and a decision is made once, as
JSON, and rewritten for the callers that ask in Protobuf.
"""

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from pydantic import BaseModel

from assay.schemas.card_number import (
    has_digits_of_one,
    path_of_card_number,
    texts,
    texts_may_hold_card_number,
    unread_message_holds_card_number,
)
from assay.schemas.decision import Decision, ErrorReply
from assay.schemas.protobuf_file import PACKAGE, file_of, proto_text
from assay.schemas.refused import TOKEN_EXPECTED, RefusalCode, Refused
from assay.schemas.transaction import Transaction

MEDIA_TYPES: Final = ("application/protobuf", "application/x-protobuf", "application/vnd.google.protobuf")
ANSWERS: Final = (Decision, ErrorReply)
_POOL: Final = DescriptorPool()
_POOL.Add(file_of("transaction", [Transaction]))
_POOL.Add(file_of("decision", ANSWERS))

ANSWERS_TEXT: Final = proto_text(file_of("decision", ANSWERS), ANSWERS)
"""`decision.proto`, as it is registered."""


def message_class(name: str) -> type[Message]:
    """The class of a message of ours: Transaction, Decision or ErrorReply."""
    return GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


_TRANSACTION: Final = message_class("Transaction")
_LEAST: Final = 10**12  # a card number has 13 digits
_MAPS: Final = frozenset({f"{PACKAGE}.Transaction.attributes"})
_ANSWERS: Final = {model.__name__: message_class(model.__name__) for model in ANSWERS}


def parse_protobuf(value: bytes) -> dict[str, Any]:
    """The body of a transaction; unknown fields are left out. Raises ValueError; Refused where what is left out holds a card
    number."""
    message = _TRANSACTION()
    try:
        message.ParseFromString(value)
    except DecodeError:
        raise ValueError("not a message of the type Transaction") from None
    body, unknown = _object(message)
    # Kept nowhere but in a dead letter, should the transaction be refused: so nothing may hide there.
    if (unknown and path_of_card_number(texts(unknown)) is not None) or (
        (unknown or not _is_all_of(message, body, value)) and unread_message_holds_card_number(value)
    ):
        raise Refused(RefusalCode.CARD_NUMBER, "value", TOKEN_EXPECTED)
    return body


def _is_all_of(message: Message, body: dict[str, Any], value: bytes) -> bool:
    """Whether the parser left nothing out, as it does with all but the last of a field that comes twice.

    A message is written in as many bytes as it was read from, but for attributes without a value, which grow and could make
    up for what is left out: they are taken for a sign of it.
    """
    return message.ByteSize() == len(value) and None not in body.get("attributes", {}).values()


def hides_card_number(value: bytes, body: object) -> bool:
    """Whether `body` may hold a card number that can't be seen in `value`: a text's digits run into the length before it and
    the tag behind it, and numbers are in binary form."""
    parts = [body.get(name) or {} for name in ("attributes", "location")] if isinstance(body, dict) else []
    large = any(_is_large(each) for part in parts for each in part.values())
    return (large or has_digits_of_one(value)) and texts_may_hold_card_number(body)


def _is_large(value: object) -> bool:
    if isinstance(value, Decimal):
        return value.is_finite() and abs(value) >= _LEAST
    return isinstance(value, int) and abs(value) >= _LEAST


def _object(message: Message) -> tuple[dict[str, Any], list[object]]:
    """The fields that are set, by name; and what stands in unknown ones. Numbers are exact, as in a parsed JSON."""
    body: dict[str, Any] = {}
    fields = UnknownFieldSet(message)
    unknown = list(_unknown(fields)) if len(fields) else []
    for field, value in message.ListFields():
        if type(value) is str:
            body[field.name] = value
        elif type(value) is float:
            body[field.name] = Decimal(repr(value))
        elif field.full_name in _MAPS:
            body[field.name] = {name: _scalar(each) for name, each in value.items()}
            unknown += [found for each in value.values() for found in _unknown(UnknownFieldSet(each))]
        else:
            body[field.name], inner = _object(value)
            unknown += inner
    return body, unknown


def _scalar(scalar: Message) -> object:
    name = scalar.WhichOneof("value")
    value = None if name is None else getattr(scalar, name)
    return Decimal(repr(value)) if type(value) is float else value


def _unknown(fields: UnknownFieldSet) -> Iterator[object]:
    for field in (fields[index] for index in range(len(fields))):
        if isinstance(field.data, UnknownFieldSet):
            yield from _unknown(field.data)
        elif isinstance(field.data, bytes):
            yield field.data.decode(errors="replace")
        else:
            yield field.data


# -- answers


def encode_answer(answer: Mapping[str, Any], model: type[BaseModel]) -> bytes:
    """A decision or an error reply, parsed from its JSON, as the message of its model."""
    message = _ANSWERS[model.__name__]()
    _fill(message, answer)
    return message.SerializeToString(deterministic=True)


def _fill(message: Any, values: Mapping[str, Any]) -> None:
    """Set a message's fields; null is unset, and NaN in a list. What a message does not know is left out."""
    for name, value in values.items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None or value is None:
            continue
        if isinstance(value, dict):
            target = getattr(message, name)
            target.SetInParent()
            _fill(target, value)
        elif isinstance(value, list):
            target = getattr(message, name)
            for item in value:
                if isinstance(item, dict):
                    _fill(target.add(), item)
                else:
                    target.append(math.nan if item is None else item)
        else:
            setattr(message, name, value)
