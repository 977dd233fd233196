"""docs/schemas/*, made from the models: JSON Schema, Protobuf and AsyncAPI (`python -m assay.deploy.schemas_files FOLDER`)."""

import json
import sys
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from assay.deploy.asyncapi import asyncapi
from assay.schemas.decision import Decision, ErrorReply
from assay.schemas.evidence import ChangeEvidence, Evidence
from assay.schemas.json_schema import json_schema
from assay.schemas.outcome import Outcome
from assay.schemas.protobuf_file import file_of, proto_text
from assay.schemas.transaction import Transaction

# The name of each file -> what reads such a value.
MODELS: Final[dict[str, type[BaseModel]]] = {
    "transaction": Transaction,
    "decision": Decision,
    "error-reply": ErrorReply,
    "outcome": Outcome,
    "evidence": Evidence,
    "change-evidence": ChangeEvidence,
}
# The name of each file -> its messages. They keep their places: a Confluent frame tells a message by it.
PROTOS: Final[dict[str, tuple[type[BaseModel], ...]]] = {
    "transaction": (Transaction,),
    "decision": (Decision, ErrorReply),
    "outcome": (Outcome,),
    "evidence": (Evidence, ChangeEvidence),
}

# What callers may send and get in Protobuf -> the file that has its message.
EXCHANGED: Final = {"transaction": "transaction", "decision": "decision", "error-reply": "decision"}


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of one kind of value, by its name in `MODELS`."""
    return json_schema(MODELS[name])


def files() -> dict[str, str]:
    """The text of every file, by its name."""
    made = {f"{name}.schema.json": _as_text(schema_of(name)) for name in MODELS}
    protos = {name: proto_text(file_of(name, models), models) for name, models in PROTOS.items()}
    made |= {f"{name}.proto": text for name, text in protos.items()}
    exchanged = {name: protos[file] for name, file in EXCHANGED.items()}
    return made | {"asyncapi.json": _as_text(asyncapi(exchanged))}


def _as_text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, text in files().items():
        (Path(sys.argv[1]) / name).write_text(text, encoding="utf-8")
