"""Reading a mapping file: whatever is wrong with it is said with the place, what was expected and the nearest names."""

from collections.abc import Iterable
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Self
from zoneinfo import ZoneInfo

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from assay.schemas import mapping
from assay.schemas.codes import TIME_ZONES
from assay.schemas.errors import MappingError
from assay.schemas.limits import MAX_MAPPED_FIELDS, MAX_MAPPING_BYTES
from assay.schemas.mapping import ABSENT, REQUIRED, TARGETS, Convert, FieldMapping, Mapped

ATTRIBUTES = "attributes."
MEND = "see docs/integrate/producers.md, and try it with `assay mapping check FILE --sample FILE`"

Scalar = str | int | float | bool


class _Field(BaseModel):
    """A field of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    from_: str | list[str] | None = Field(
        None, alias="from", description="a path, or several of which the first that is there counts"
    )
    join: list[str] | None = Field(None, description="paths whose values become one text")
    with_: str = Field("", alias="with", description="what stands between them")
    constant: Scalar | None = Field(None, description="the same for every transaction")
    as_: Literal["minor_units", "epoch_seconds", "time", "text", "upper"] | None = Field(
        None, alias="as", description="minor_units, epoch_seconds, time, text or upper"
    )
    format: str | None = Field(None, description="of a time, as strptime has it")
    zone: str | None = Field(None, description="of a time that names none: an IANA time zone")
    values: dict[Scalar, Scalar] | None = Field(None, description="a table: theirs to ours")
    otherwise: Scalar | None = Field(None, description="what is not in the table")
    default: Scalar | None = Field(None, description="where there is nothing")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(each is not None for each in (self.from_, self.join, self.constant)) != 1:
            raise ValueError("takes exactly one of from, join and constant")
        if [] in (self.from_, self.join):
            raise ValueError("names no path")
        if self.format is not None:
            try:
                datetime.strptime("", self.format)  # noqa: DTZ007
            except ValueError as error:
                if "does not match" not in str(error):
                    raise ValueError(f"format: {error}") from None
        if (self.format or self.zone) and self.as_ != "time":
            raise ValueError("format and zone are of `as: time`")
        if self.zone is not None and self.zone not in TIME_ZONES:
            raise ValueError(f"zone: there is no time zone {self.zone}{_near(self.zone, TIME_ZONES)}")
        if self.otherwise is not None and self.values is None:
            raise ValueError("otherwise is of `values`")
        return self


def load_mapping(path: Path | None) -> Mapped | None:
    """The mapping of a file; None where none is named. Raises MappingError."""
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_MAPPING_BYTES + 1)
    except OSError as error:
        raise MappingError(f"{path} can't be read", expected="a mapping file", got=str(error.strerror)) from None
    if len(raw) > MAX_MAPPING_BYTES:
        raise MappingError(f"{path} is too large", expected=f"at most {MAX_MAPPING_BYTES} bytes")
    return parse_mapping(raw, str(path))


def parse_mapping(raw: bytes, name: str) -> Mapped:
    """The mapping that this YAML says. Raises MappingError, which begins with `name`."""
    try:
        document = yaml.safe_load(raw)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise MappingError(f"{name} is not YAML", got=" ".join(str(error).split())[:200], mend=MEND) from None
    if not isinstance(document, dict) or not isinstance(document.get("fields"), dict):
        raise MappingError(f"{name} has no `fields`", expected="`fields:` with a line for each of our fields", mend=MEND)
    for key in document.keys() - {"fields", "content_types"}:
        raise MappingError(f"{name}: there is no {key}", expected="fields, content_types", mend=MEND)
    lines = document["fields"]
    if len(lines) > MAX_MAPPED_FIELDS:
        raise MappingError(f"{name} has too many fields", expected=f"at most {MAX_MAPPED_FIELDS}", got=str(len(lines)))
    fields = [_field(str(target), line, f"{name}: {target}") for target, line in lines.items()]
    for target in REQUIRED:
        if target not in lines:
            raise MappingError(f"{name} says nothing of {target}", expected=", ".join(REQUIRED), mend=f"add `{target}:`")
    return Mapped(fields, _content_types(document.get("content_types", []), name))


def _content_types(given: Any, name: str) -> frozenset[str]:
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise MappingError(f"{name}: content_types is no list", expected="media types, such as application/vnd.acme+json")
    return frozenset(each.strip().lower() for each in given)


def _field(target: str, line: Any, where: str) -> FieldMapping:
    if target not in TARGETS and not (target.startswith(ATTRIBUTES) and len(target) > len(ATTRIBUTES)):
        raise MappingError(
            f"{where}: no such field of ours{_near(target, TARGETS)}", expected="a field, or attributes.NAME", mend=MEND
        )
    try:
        field = _Field.model_validate({"from": line} if isinstance(line, str | list) else line)
    except ValidationError as error:
        raise _wrong(error, where) from None
    if field.as_ == "minor_units" and target != "amount":
        raise MappingError(f"{where}: minor_units are of the amount", expected="amount", got=target)
    default = ABSENT if field.default is None else field.default
    minor, joins = field.as_ == "minor_units", field.join is not None
    return FieldMapping(target, _where(field), _find(field), _conversions(field), default, minor=minor, joins=joins)


def _find(field: _Field) -> mapping.Find:
    if field.constant is not None:
        constant = field.constant
        return lambda _: constant
    if field.join is not None:
        return mapping.joined(field.join, field.with_)
    assert field.from_ is not None
    return mapping.at(field.from_) if isinstance(field.from_, str) else mapping.first_of(field.from_)


def _where(field: _Field) -> str:
    paths = field.join or ([field.from_] if isinstance(field.from_, str) else field.from_)
    return " or ".join(paths) if paths else "(a constant)"


def _conversions(field: _Field) -> list[Convert]:
    known: dict[str, Convert] = {"text": mapping.text, "upper": mapping.upper, "epoch_seconds": mapping.epoch_seconds}
    found = [known[field.as_]] if field.as_ in known else []
    if field.as_ == "time":
        found.append(mapping.moment(field.format, ZoneInfo(field.zone) if field.zone else None))
    if field.values is not None:
        table = {mapping.text(theirs): ours for theirs, ours in field.values.items()}
        found.append(mapping.values(table, ABSENT if field.otherwise is None else field.otherwise))
    return found


def _wrong(error: ValidationError, where: str) -> MappingError:
    first = error.errors(include_url=False)[0]
    key = str(first["loc"][0]) if first["loc"] else ""
    names = {field.alias or name: field.description or "" for name, field in _Field.model_fields.items()}
    if first["type"] == "extra_forbidden":
        return MappingError(f"{where}: there is no {key}{_near(key, names)}", expected=", ".join(names), mend=MEND)
    said = first["msg"].removeprefix("Value error, ")
    return MappingError(
        f"{where}: {f'{key}: ' if key else ''}{said}", expected=names.get(key, "a path, or an object"), mend=MEND
    )


def _near(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), 3)
    return f": {' or '.join(close)}?" if close else ""
