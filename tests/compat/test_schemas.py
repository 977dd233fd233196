"""The AsyncAPI document, read by AsyncAPI's own parser together with the schemas that it names."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from . import runtimes

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
pytestmark = pytest.mark.timeout(300)


async def complaints(document: Path) -> list[dict[str, Any]]:
    """Errors and warnings; not advice."""
    command = await asyncio.to_thread(runtimes.node, "asyncapi", "validate.mjs")
    process = await asyncio.create_subprocess_exec(*command, str(document), stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return [each for each in json.loads(out) if each["severity"] <= 1]


async def test_the_asyncapi_document_is_one() -> None:
    assert await complaints(SCHEMAS / "asyncapi.json") == []


async def test_a_document_that_points_to_nothing_is_found(tmp_path: Path) -> None:
    for path in SCHEMAS.glob("*.json"):
        shutil.copy(path, tmp_path)
    (tmp_path / "outcome.schema.json").unlink()
    assert await complaints(tmp_path / "asyncapi.json")
