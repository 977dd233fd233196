"""Answers in the format of their request: a decision is made once, as JSON, and rewritten where its reply leaves."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import orjson
from pydantic import BaseModel

from assay.schemas.confluent import frame
from assay.schemas.decision import Decision, ErrorReply
from assay.schemas.formats import CONTENT_TYPE_HEADER, Format
from assay.schemas.json_schema import json_schema
from assay.schemas.protobuf import ANSWERS, ANSWERS_TEXT, encode_answer
from assay.schemas.source import OutRecord


class Schema(NamedTuple):
    """A schema as a registry takes it."""

    kind: str
    text: str


PROTOBUF_SUBJECT: Final = "assay.v1.Decision"


def json_subject(model: type[BaseModel]) -> str:
    """Of an answer in JSON: one subject takes schemas of one kind."""
    return f"assay.v1.{model.__name__}-json"


ANSWER_SCHEMAS: Final = {PROTOBUF_SUBJECT: Schema("PROTOBUF", ANSWERS_TEXT)} | {
    json_subject(model): Schema("JSON", orjson.dumps(json_schema(model)).decode()) for model in ANSWERS
}
"""By subject. What a topic's readers go by is the id in the frame, so these are named after the record, not after a topic."""


def in_format(record: OutRecord, wanted: Format, schema_ids: Mapping[str, int]) -> OutRecord | None:
    """The reply `record`, whose value is JSON, as `wanted`; None where its schema has no id yet, for the frame.

    `schema_ids` are those of `ANSWER_SCHEMAS`, by subject.
    """
    key, value, headers = record
    answer = orjson.loads(value or b"{}")
    model = ErrorReply if "error" in answer else Decision
    payload = encode_answer(answer, model) if wanted.is_protobuf else value or b""
    if wanted.is_framed:
        subject = PROTOBUF_SUBJECT if wanted.is_protobuf else json_subject(model)
        schema_id = schema_ids.get(subject)
        if schema_id is None:
            return None
        payload = frame(schema_id, payload, ANSWERS.index(model) if wanted.is_protobuf else None)
    others = [header for header in headers if header[0] != CONTENT_TYPE_HEADER]
    return key, payload, [(CONTENT_TYPE_HEADER, wanted.content_type), *others]
