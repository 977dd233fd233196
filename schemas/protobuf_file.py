"""Protobuf of what crosses a topic: file descriptors made from the models, and their text, `docs/schemas/*.proto`.

The fields are those of the JSON, by the same names. A field's number is its place in its class: a new one goes last. What
an enum or a moment is in JSON is the same text here, so that a reader meets an action that it does not know as a text, not
as nothing; amounts are decimal texts. A number that may be null is NaN within a list. Parts are nested in their message,
so that every file stands alone.
"""

import re
import typing
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from assay.schemas.fields import Scalar
from assay.schemas.instant import Instant

PACKAGE: Final = "assay.v1"
SCALAR: Final = "Scalar"  # a value of the attributes: which of its fields is set says its type
# An error reply can be read as a decision too, which is then a review of the tier `refused`.
_NUMBERS: Final = {"ErrorReply": {"transaction_id": 1, "action": 4, "tier": 9, "error": 64}}
_RESERVED: Final = {"Decision": (64, "ErrorReply.error")}

_Field = FieldDescriptorProto
_TYPES: Final = {
    str: _Field.TYPE_STRING,
    Decimal: _Field.TYPE_STRING,
    Instant: _Field.TYPE_STRING,
    bool: _Field.TYPE_BOOL,
    int: _Field.TYPE_INT64,
    float: _Field.TYPE_DOUBLE,
}
_NAMES: Final = {
    _Field.TYPE_STRING: "string",
    _Field.TYPE_BOOL: "bool",
    _Field.TYPE_INT64: "int64",
    _Field.TYPE_DOUBLE: "double",
}
_SCALAR_FIELDS: Final = (("text", str), ("integer", int), ("number", float), ("flag", bool))


class _Shape(NamedTuple):
    """What a type is in Protobuf: the item of a list or a map, and whether it may be absent."""

    item: Any
    optional: bool = False
    repeated: bool = False
    mapped: bool = False


def file_of(name: str, models: Sequence[type[BaseModel]]) -> FileDescriptorProto:
    """The file `name`.proto with a message for each model, in their order: a Confluent frame tells them by their place."""
    file = FileDescriptorProto(name=f"{name}.proto", package=PACKAGE, syntax="proto3")
    file.options.java_multiple_files = True
    for model in models:
        _fill(file.message_type.add(), model, f".{PACKAGE}")
    return file


def _fill(message: DescriptorProto, model: type[BaseModel], scope: str) -> None:
    message.name, numbers = model.__name__, _NUMBERS.get(model.__name__, {})
    if message.name in _RESERVED:
        number, _ = _RESERVED[message.name]
        message.reserved_range.add(start=number, end=number + 1)
    scope = f"{scope}.{message.name}"
    parts: dict[str, type[BaseModel]] = {}
    for place, (name, described) in enumerate(model.model_fields.items(), 1):
        shape, field = _shape(described), message.field.add(name=name, number=numbers.get(name, place))
        if shape.item is Scalar and SCALAR not in [nested.name for nested in message.nested_type]:
            _add_scalar(message)
        if isinstance(shape.item, type) and issubclass(shape.item, BaseModel):
            parts[shape.item.__name__] = shape.item
        _type(field, shape, scope, message)
        if shape.optional and not (shape.repeated or shape.mapped or field.type_name):
            field.proto3_optional = True
    for part in parts.values():
        _fill(message.nested_type.add(), part, scope)
    for field in message.field:  # proto3's optional is a oneof of one field, after all others (descriptor.proto)
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _shape(described: FieldInfo) -> _Shape:
    kind, nullable = _without_null(described.annotation)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return _Shape(_without_null(inner[0])[0], repeated=True)
    if origin is dict:
        return _Shape(Scalar if _is_scalar(inner[1]) else _without_null(inner[1])[0], mapped=True)
    return _Shape(kind, optional=nullable or not described.is_required())


def _is_scalar(kind: Any) -> bool:
    return set(typing.get_args(kind)) == set(typing.get_args(Scalar))


def _without_null(kind: Any) -> tuple[Any, bool]:
    while typing.get_origin(kind) is Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) in (UnionType, typing.Union) and NoneType in typing.get_args(kind):
        [only] = [each for each in typing.get_args(kind) if each is not NoneType]
        return _without_null(only)[0], True
    return kind, False


def _type(field: FieldDescriptorProto, shape: _Shape, scope: str, message: DescriptorProto) -> None:
    field.label = _Field.LABEL_REPEATED if shape.repeated or shape.mapped else _Field.LABEL_OPTIONAL
    if shape.mapped:
        entry = message.nested_type.add(name=f"{field.name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
        value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
        _set_type(value, shape.item, scope)
        field.type, field.type_name = _Field.TYPE_MESSAGE, f"{scope}.{entry.name}"
    else:
        _set_type(field, shape.item, scope)


def _set_type(field: FieldDescriptorProto, item: Any, scope: str) -> None:
    if item is Scalar:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f"{scope}.{SCALAR}"
    elif issubclass(item, BaseModel):
        field.type, field.type_name = _Field.TYPE_MESSAGE, f"{scope}.{item.__name__}"
    else:
        field.type = _TYPES[str if issubclass(item, StrEnum) else item]


def _add_scalar(message: DescriptorProto) -> None:
    scalar = message.nested_type.add(name=SCALAR)
    scalar.oneof_decl.add(name="value")
    for number, (name, kind) in enumerate(_SCALAR_FIELDS, 1):
        label = _Field.LABEL_OPTIONAL
        scalar.field.add(name=name, number=number, type=_TYPES[kind], label=label, oneof_index=0)


# -- as text


def proto_text(file: FileDescriptorProto, models: Iterable[type[BaseModel]]) -> str:
    """The file as protoc reads it, with what the models say of each message and field."""
    lines = [
        "// Made from the code (`make docs`). Fields are added, never removed, renumbered, renamed or retyped.",
        "// Amounts and moments are texts: a decimal; RFC 3339 with an offset.",
        'syntax = "proto3";',
        "",
        f"package {file.package};",
        "",
        "option java_multiple_files = true;",
    ]
    for message, model in zip(file.message_type, models, strict=True):
        lines += ["", *_message_lines(message, model)]
    return "\n".join(lines) + "\n"


def _message_lines(message: DescriptorProto, model: type[BaseModel] | None) -> Iterator[str]:
    if model is not None and model.__doc__:
        yield from (f"// {line}" for line in model.__doc__.split("\n\n", 1)[0].splitlines())
    yield f"message {message.name} {{"
    if message.name in _RESERVED:
        yield "  reserved {};  // {}".format(*_RESERVED[message.name])
        yield ""
    parts = _parts(model)
    for nested in message.nested_type:
        if not nested.options.map_entry:
            yield from (f"  {line}" for line in _message_lines(nested, parts.get(nested.name)))
            yield ""
    choices = [each.name for each in message.oneof_decl if not each.name.startswith("_")]
    indent = "    " if choices else "  "
    yield from (f"  oneof {name} {{" for name in choices)
    for field in message.field:
        described = model.model_fields[field.name].description if model is not None else None
        yield f"{indent}{_declared(field, message)} = {field.number};" + (f"  // {_line(described)}" if described else "")
    yield from ("  }" for _ in choices)
    yield "}"


def _parts(model: type[BaseModel] | None) -> dict[str, type[BaseModel]]:
    items = [_shape(described).item for described in model.model_fields.values()] if model is not None else []
    return {item.__name__: item for item in items if isinstance(item, type) and issubclass(item, BaseModel)}


def _declared(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    entry = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}.get(_last(field.type_name))
    if entry is not None:
        return f"map<string, {_type_name(entry.field[1])}> {field.name}"
    label = "repeated " if field.label == _Field.LABEL_REPEATED else "optional " if field.proto3_optional else ""
    return f"{label}{_type_name(field)} {field.name}"


def _type_name(field: FieldDescriptorProto) -> str:
    return _last(field.type_name) if field.type_name else _NAMES[field.type]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
