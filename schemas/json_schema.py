"""JSON Schema of what crosses a topic, made from the models: as published in docs/schemas, and as registered."""

from typing import Any, Final

from pydantic import BaseModel

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of one kind of value."""
    schema: dict[str, Any] = _portable(model.model_json_schema())
    return {"$schema": DIALECT} | schema


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
