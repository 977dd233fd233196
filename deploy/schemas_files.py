"""docs/schemas/*.schema.json, made from the models: `python -m assay.deploy.schemas_files docs/schemas` (`make docs`)."""

import json
import sys
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from assay.schemas.decision import Decision, ErrorReply
from assay.schemas.evidence import ChangeEvidence, Evidence
from assay.schemas.outcome import Outcome
from assay.schemas.transaction import Transaction

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

# The name of each file -> what reads such a value.
MODELS: Final[dict[str, type[BaseModel]]] = {
    "transaction": Transaction,
    "decision": Decision,
    "error-reply": ErrorReply,
    "outcome": Outcome,
    "evidence": Evidence,
    "change-evidence": ChangeEvidence,
}


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of one kind of value, by its name in `MODELS`."""
    schema: dict[str, Any] = _portable(MODELS[name].model_json_schema())
    return {"$schema": DIALECT} | schema


def schema_file(name: str) -> str:
    """The same as the text of its file."""
    return json.dumps(schema_of(name), indent=2, ensure_ascii=False) + "\n"


def _portable(node: Any) -> Any:
    """Without patterns of Unicode properties, which validators in Python can't compile, and with the first paragraph of
    descriptions: what follows are examples for those who read the code."""
    if isinstance(node, list):
        return [_portable(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        name: value.split("\n\n", 1)[0] if name == "description" and isinstance(value, str) else _portable(value)
        for name, value in node.items()
        if not (name == "pattern" and isinstance(value, str) and "\\p{" in value)
    }


if __name__ == "__main__":
    for kind in MODELS:
        (Path(sys.argv[1]) / f"{kind}.schema.json").write_text(schema_file(kind), encoding="utf-8")
