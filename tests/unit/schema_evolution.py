"""What a change of a schema breaks: for those who write what we read, or for those who read what we write."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

_AT_MOST = {"maxLength", "maximum", "maxItems", "maxProperties", "exclusiveMaximum"}
_AT_LEAST = {"minLength", "minimum", "minItems", "minProperties", "exclusiveMinimum"}
_EXACT = {"pattern", "format", "const"}
_INNER = {"items", "additionalProperties", "propertyNames"}
_SAYS_NOTHING = {"title", "summary", "description", "default", "examples", "deprecated", "$schema", "$id", "$comment"}
_UNDERSTOOD = _AT_MOST | _AT_LEAST | _EXACT | _INNER | _SAYS_NOTHING | {"type", "enum", "anyOf", "properties", "required"}


def broken(released: dict[str, Any], now: dict[str, Any], *, read: bool) -> list[str]:
    """Where a JSON Schema breaks what an earlier one promised.

    `read`: it is of what we read, so that nothing that was accepted may be refused. Else of what we write, so that nothing may
    be written that was not announced. Descriptions, titles, defaults, examples and the names of definitions promise nothing.
    """
    if read:
        return list(_narrowed(_inlined(released, released), _inlined(now, now), ""))
    gone = _removed(_inlined(released, released), _inlined(now, now), "")
    return [*gone, *_narrowed(_inlined(now, now), _inlined(released, released), "", ignore_added=True)]


def _inlined(node: Any, root: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inlined(item, root) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inlined(root["$defs"][node["$ref"].rpartition("/")[2]], root)
    return {name: _inlined(inner, root) for name, inner in node.items() if name != "$defs"}


def _narrowed(wide: Any, narrow: Any, path: str, *, ignore_added: bool = False) -> Iterator[str]:
    """Where `narrow` refuses something that `wide` accepts. `ignore_added`: but for properties that `narrow` does not know."""
    wide, narrow = (({} if each is True else {"not": {}} if each is False else each) for each in (wide, narrow))
    if "anyOf" in wide or "anyOf" in narrow:
        choices = narrow.get("anyOf", [narrow])
        for choice in wide.get("anyOf", [wide]):
            if all(list(_narrowed(choice, each, path, ignore_added=ignore_added)) for each in choices):
                yield path or "/"
        return
    yield from _narrowed_keywords(wide, narrow, path)
    properties = narrow.get("properties", {})
    for name, inner in wide.get("properties", {}).items():
        if name in properties:
            yield from _narrowed(inner, properties[name], f"{path}/{name}", ignore_added=ignore_added)
        elif not ignore_added:
            yield f"{path}/{name}"
    for name in sorted(_INNER & narrow.keys()):
        yield from _narrowed(wide.get(name, {}), narrow[name], f"{path}/{name}", ignore_added=ignore_added)
    # What isn't understood here may refuse anything.
    yield from (f"{path}/{name}" for name in sorted(narrow.keys() - _UNDERSTOOD) if wide.get(name) != narrow[name])
    yield from (f"{path}/required/{name}" for name in sorted(set(narrow.get("required", ())) - set(wide.get("required", ()))))


def _narrowed_keywords(wide: Any, narrow: Any, path: str) -> Iterator[str]:
    for name in narrow.keys() & (_AT_MOST | _AT_LEAST | _EXACT | {"type", "enum"}):
        here, there = narrow[name], wide.get(name)
        if name == "enum":
            refused = [f"{path}/{name}/{value}" for value in there if value not in here] if there else [f"{path}/{name}"]
            yield from refused
        elif name == "type":
            if here != there and (there, here) != ("integer", "number"):
                yield f"{path}/{name}"
        elif (
            there is None
            or (name in _AT_MOST and there > here)
            or (name in _AT_LEAST and there < here)
            or (name in _EXACT and there != here)
        ):
            yield f"{path}/{name}"


def _removed(released: Any, now: Any, path: str) -> Iterator[str]:
    for old in released.get("anyOf", [released]):
        properties: dict[str, Any] = {}
        for choice in now.get("anyOf", [now]):
            properties |= choice.get("properties", {})
        for name, inner in old.get("properties", {}).items():
            if name not in properties:
                yield f"{path}/{name}"
            else:
                yield from _removed(inner, properties[name], f"{path}/{name}")


def broken_asyncapi(released: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Where an AsyncAPI document breaks what an earlier one promised: all that it said is said still, but for descriptions.

    Channels, messages and headers may come to it; addresses, actions, content types and schemas stay.
    """
    return [
        gone for part in ("channels", "operations", "components") for gone in _unsaid(released[part], now[part], f"/{part}")
    ]


def _unsaid(released: Any, now: Any, path: str) -> Iterator[str]:
    if not isinstance(released, dict) or not isinstance(now, dict):
        is_proto = isinstance(released, str) and "\nsyntax = " in released  # with comments: `broken_proto` is for it
        if released != now and not is_proto:
            yield path
        return
    for name in sorted(released.keys() - _SAYS_NOTHING):
        if name in now:
            yield from _unsaid(released[name], now[name], f"{path}/{name}")
        else:
            yield f"{path}/{name}"


def broken_proto(released: FileDescriptorProto, now: FileDescriptorProto) -> list[str]:
    """Where a file of Protobuf breaks what an earlier one promised: messages keep their places, fields names and numbers."""
    found = [] if released.package == now.package else ["package"]
    for place, message in enumerate(released.message_type):
        if place >= len(now.message_type) or now.message_type[place].name != message.name:
            found.append(message.name)
        else:
            found += _broken_message(message, now.message_type[place], message.name)
    return found


def _broken_message(released: DescriptorProto, now: DescriptorProto, path: str) -> Iterator[str]:
    if not set(released.reserved_name) <= set(now.reserved_name) or not _reserved(released) <= _reserved(now):
        yield f"{path}.reserved"
    fields = {field.name: field for field in now.field}
    for field in released.field:
        if field.name not in fields or _promise(field, released) != _promise(fields[field.name], now):
            yield f"{path}.{field.name}"
    nested = {message.name: message for message in now.nested_type}
    for message in released.nested_type:
        if message.name not in nested:
            yield f"{path}.{message.name}"
        else:
            yield from _broken_message(message, nested[message.name], f"{path}.{message.name}")


def _reserved(message: DescriptorProto) -> set[int]:
    return {number for each in message.reserved_range for number in range(each.start, each.end)}


def _promise(field: FieldDescriptorProto, message: DescriptorProto) -> tuple[Any, ...]:
    oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
    return field.number, field.type, field.type_name, field.label, field.proto3_optional, oneof
