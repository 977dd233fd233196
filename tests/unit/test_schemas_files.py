"""The published schemas: as the code is, and compatible with what was released."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from assay.deploy.schemas_files import MODELS, PROTOS, files, schema_of
from assay.schemas.decision import Action, Tier
from assay.schemas.protobuf_file import file_of

from .schema_evolution import broken, broken_asyncapi, broken_proto

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"
RELEASED = FOLDER / "released"
READ = {"transaction", "outcome"}  # the others are what we write


def compiled(path: Path, into: Path) -> FileDescriptorProto:
    """What protoc makes of a file."""
    out = into / f"{path.name}.descriptor"
    assert protoc.main(["protoc", f"-I{path.parent}", f"--descriptor_set_out={out}", str(path)]) == 0
    return FileDescriptorSet.FromString(out.read_bytes()).file[0]


def _plain(message: DescriptorProto) -> DescriptorProto:
    """Without what protoc adds or orders on its own."""
    for field in message.field:
        field.ClearField("json_name")
    nested = sorted((_plain(each) for each in message.nested_type), key=lambda each: each.name)
    del message.nested_type[:]
    message.nested_type.extend(nested)
    return message


@pytest.mark.parametrize("name", files())
def test_a_published_schema_is_what_the_code_reads_and_writes(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == files()[name], "run `make docs`"


@pytest.mark.parametrize("name", MODELS)
def test_a_schema_keeps_what_was_released(name: str) -> None:
    released = json.loads((RELEASED / f"{name}.schema.json").read_text(encoding="utf-8"))
    assert broken(released, schema_of(name), read=name in READ) == []


@pytest.mark.parametrize("name", PROTOS)
def test_protobuf_keeps_what_was_released(name: str, tmp_path: Path) -> None:
    assert broken_proto(compiled(RELEASED / f"{name}.proto", tmp_path), file_of(name, PROTOS[name])) == []


@pytest.mark.parametrize("name", PROTOS)
def test_protoc_reads_a_published_file_as_what_the_code_uses(name: str, tmp_path: Path) -> None:
    published, used = compiled(FOLDER / f"{name}.proto", tmp_path), file_of(name, PROTOS[name])
    for theirs, ours in zip(published.message_type, used.message_type, strict=True):
        assert _plain(theirs) == _plain(ours)
    assert (published.package, published.options) == (used.package, used.options)


def test_asyncapi_keeps_what_was_released() -> None:
    released = json.loads((RELEASED / "asyncapi.json").read_text(encoding="utf-8"))
    assert broken_asyncapi(released, json.loads(files()["asyncapi.json"])) == []


@pytest.mark.parametrize("name", MODELS)
def test_no_pattern_needs_unicode_properties(name: str) -> None:
    assert "\\\\p{" not in files()[f"{name}.schema.json"]


@pytest.mark.parametrize(("enum", "name"), [(Action, "action"), (Tier, "tier")])
def test_an_enum_that_may_grow_allows_any_text(enum: Any, name: str) -> None:
    schema = schema_of("decision")
    described = schema["$defs"][schema["properties"][name]["$ref"].rpartition("/")[2]]
    assert "enum" not in described
    assert described["examples"] == list(enum)


# -- what counts as compatible


def _changed(name: str, change: Any) -> list[str]:
    now = copy.deepcopy(schema_of(name))
    change(now)
    return broken(schema_of(name), now, read=name in READ)


HARMLESS: dict[str, tuple[str, Any]] = {
    "a new field of what we read": ("outcome", lambda now: now["properties"].update(added={"type": "string"})),
    "a new field of what we write": ("decision", lambda now: now["properties"].update(added={"type": "string"})),
    "a new field that is always written": (
        "decision",
        lambda now: (now["properties"].update(added={"type": "string"}), now["required"].append("added")),
    ),
    "another description": ("transaction", lambda now: now["properties"]["amount"].update(description="x", examples=["1"])),
    "a definition with another name": (
        "decision",
        lambda now: (now["$defs"].update(Other=now["$defs"].pop("SourceRef")),
                     now["properties"].update(source={"$ref": "#/$defs/Other"})),
    ),
    "a longer text taken": ("transaction", lambda now: now["properties"]["user_id"].update(maxLength=256)),
    "a field no longer asked for": ("outcome", lambda now: now["required"].remove("known_at")),
    "another value taken": ("transaction", lambda now: now["$defs"]["Channel"]["enum"].append("phone")),
    "another form taken": ("transaction", lambda now: now["properties"]["timestamp"]["anyOf"].append({"type": "number"})),
}  # fmt: skip
BREAKING: dict[str, tuple[str, Any, str]] = {
    "a field removed": ("outcome", lambda now: now["properties"].pop("supersedes"), "/supersedes"),
    "a field of what we write removed": ("decision", lambda now: now["properties"].pop("rules"), "/rules"),
    "a field retyped": ("decision", lambda now: now["properties"]["latency_ms"].update(type="string"), "/latency_ms/type"),
    "a field newly asked for": ("transaction", lambda now: now["required"].append("channel"), "/required/channel"),
    "a field no longer always written": ("decision", lambda now: now["required"].remove("tier"), "/required/tier"),
    "a value no longer taken": (
        "transaction", lambda now: now["$defs"]["Channel"]["enum"].remove("pos"), "/channel",
    ),
    "a shorter text": ("transaction", lambda now: now["properties"]["user_id"].update(maxLength=64), "/user_id/maxLength"),
    "a null where there was none": (
        "decision", lambda now: now["properties"].update(late_event={"anyOf": [{"type": "boolean"}, {"type": "null"}]}),
        "/late_event",
    ),
    "unknown fields refused": (
        "transaction", lambda now: now.update(additionalProperties=False), "/additionalProperties/not",
    ),
    "fields that ask for others": (
        "outcome", lambda now: now.update(dependentRequired={"amount": ["detail"]}), "/dependentRequired",
    ),
    "something excluded": (
        "transaction", lambda now: now["properties"]["user_id"].update({"not": {"const": ""}}), "/user_id/not",
    ),
    "one form of several": ("outcome", lambda now: now.update(oneOf=[{"required": ["amount"]}]), "/oneOf"),
    "names newly bound": (
        "transaction", lambda now: now["$defs"]["Merchant"].update(propertyNames={"maxLength": 3}),
        "/merchant/propertyNames/maxLength",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HARMLESS)
def test_what_breaks_nobody_is_compatible(what: str) -> None:
    name, change = HARMLESS[what]
    assert _changed(name, change) == []


@pytest.mark.parametrize("what", BREAKING)
def test_what_breaks_somebody_is_not_compatible(what: str) -> None:
    name, change, where = BREAKING[what]
    assert _changed(name, change) == [where]


def _asyncapi(change: Any) -> list[str]:
    released = json.loads(files()["asyncapi.json"])
    change(now := copy.deepcopy(released))
    return broken_asyncapi(released, now)


def test_another_channel_or_description_of_asyncapi_is_compatible() -> None:
    assert _asyncapi(lambda now: now["channels"].update(added={"address": "added"})) == []
    assert _asyncapi(lambda now: now["channels"]["decisions"].update(description="x")) == []


@pytest.mark.parametrize(
    ("part", "name", "change"),
    [
        ("channels", "decisions", {"address": "verdicts"}),
        ("operations", "send-decisions", {"action": "receive"}),
        ("operations", "send-decisions", {"channel": {"$ref": "#/channels/evidence"}}),
    ],
)
def test_a_changed_address_or_action_of_asyncapi_is_not_compatible(part: str, name: str, change: dict[str, Any]) -> None:
    [where] = _asyncapi(lambda now: now[part][name].update(change))
    assert where.startswith(f"/{part}/{name}/{next(iter(change))}")


def test_a_removed_header_or_another_content_type_of_asyncapi_is_not_compatible() -> None:
    where = "/components/messages/transaction"
    assert _asyncapi(lambda now: now["components"]["messages"]["transaction"]["headers"]["properties"].pop("reply-to")) == [
        f"{where}/headers/properties/reply-to"
    ]
    assert _asyncapi(lambda now: now["components"]["messages"]["transaction"].update(contentType="text/plain")) == [
        f"{where}/contentType"
    ]


def _proto(change: Any) -> list[str]:
    now = file_of("decision", PROTOS["decision"])
    change(now)
    return broken_proto(file_of("decision", PROTOS["decision"]), now)


def test_a_new_field_of_protobuf_is_compatible() -> None:
    assert _proto(lambda now: now.message_type[0].field.add(name="added", number=99)) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda field: field.__setattr__("number", 98),
        lambda field: field.__setattr__("name", "verdict"),
        lambda field: field.__setattr__("type", field.TYPE_BYTES),
        lambda field: field.__setattr__("label", field.LABEL_REPEATED),
    ],
    ids=["renumbered", "renamed", "retyped", "repeated"],
)
def test_a_changed_field_of_protobuf_is_not_compatible(change: Any) -> None:
    [action] = [field for field in file_of("decision", PROTOS["decision"]).message_type[0].field if field.name == "action"]
    assert _proto(lambda now: change(now.message_type[0].field[action.number - 1])) == ["Decision.action"]


def test_a_number_of_protobuf_that_is_no_longer_reserved_is_not_compatible() -> None:
    assert _proto(lambda now: now.message_type[0].ClearField("reserved_range")) == ["Decision.reserved"]


def test_a_message_of_protobuf_that_moves_is_not_compatible() -> None:
    assert _proto(lambda now: now.message_type.reverse()) == ["Decision", "ErrorReply"]
