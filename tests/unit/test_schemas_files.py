"""The published JSON Schemas: as the code is, and compatible with what was released."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.deploy.schemas_files import MODELS, schema_file, schema_of

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"
RELEASED = FOLDER / "released"
ANNOTATIONS = {"description", "title", "default", "$schema"}


def broken(released: Any, now: Any, path: str = "") -> list[str]:
    """Where a schema no longer keeps what an earlier one promised: fields and values of an enum are only ever added."""
    if not (isinstance(released, dict) and isinstance(now, dict)):
        return [] if released == now else [path]
    found: list[str] = []
    for name in sorted((released.keys() | now.keys()) - ANNOTATIONS):
        old, new = released.get(name), now.get(name)
        where = f"{path}/{name}"
        if name in ("properties", "$defs"):
            for inner, kept in (old or {}).items():
                found += broken(kept, (new or {}).get(inner), f"{where}/{inner}")
        elif name == "enum" and old is not None and new is not None:
            found += [f"{where}/{value}" for value in old if value not in new]
        elif name == "required":
            found += [where] if set(old or ()) != set(new or ()) else []
        elif name in ("anyOf", "allOf", "oneOf") and old and new and len(old) == len(new):
            for index, kept in enumerate(old):
                found += broken(kept, new[index], f"{where}/{index}")
        else:
            found += broken(old, new, where)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_published_schema_is_what_the_code_reads(name: str) -> None:
    assert (FOLDER / f"{name}.schema.json").read_text(encoding="utf-8") == schema_file(name), "run `make docs`"


@pytest.mark.parametrize("name", MODELS)
def test_a_schema_keeps_what_was_released(name: str) -> None:
    released = json.loads((RELEASED / f"{name}.schema.json").read_text(encoding="utf-8"))
    assert broken(released, schema_of(name)) == []


@pytest.mark.parametrize("name", MODELS)
def test_no_pattern_needs_unicode_properties(name: str) -> None:
    assert "\\\\p{" not in schema_file(name)


def test_an_added_optional_field_is_compatible() -> None:
    now = schema_of("outcome")
    now["properties"]["added"] = {"type": "string"}
    assert broken(schema_of("outcome"), now) == []


def test_a_removed_field_is_not_compatible() -> None:
    now = schema_of("outcome")
    del now["properties"]["supersedes"]
    assert broken(schema_of("outcome"), now) == ["/properties/supersedes"]


def test_a_retyped_field_is_not_compatible() -> None:
    now = schema_of("decision")
    now["properties"]["latency_ms"]["type"] = "string"
    assert broken(schema_of("decision"), now) == ["/properties/latency_ms/type"]


def test_a_newly_required_field_is_not_compatible() -> None:
    now = schema_of("transaction")
    now["required"].append("channel")
    assert broken(schema_of("transaction"), now) == ["/required"]


def test_a_value_taken_from_an_enum_is_not_compatible() -> None:
    now = schema_of("transaction")
    now["$defs"]["Channel"]["enum"].remove("pos")
    assert broken(schema_of("transaction"), now) == ["/$defs/Channel/enum/pos"]
