"""What becomes of a sample of transactions under a mapping: by the very decoder of the workers."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from aiokafka.structs import ConsumerRecord

from assay.schemas.decode import decode
from assay.schemas.errors import InputError
from assay.schemas.mapping import Mapped

JSON_HEADER = "content-type"


def checked(sample: Path, mapped: Mapped) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, {"transaction": ours} or {"refused": {"code", "field", "expected"}}) of each value. Raises InputError."""
    for line, value in _values(sample):
        headers = ((JSON_HEADER, mapped.content_type.encode()),)
        record = ConsumerRecord("sample", 0, line, int(time.time() * 1000), 1, None, value, None, 0, 0, headers)
        decoded = decode([record], mapped=mapped)
        for request in decoded.requests:
            yield line, {"transaction": request.transaction.model_dump(mode="json", exclude_none=True)}
        for refusal in decoded.refusals:
            yield line, {"refused": {"code": refusal.code, "field": refusal.field, "expected": refusal.expected}}


def _values(sample: Path) -> Iterator[tuple[int, bytes]]:
    try:
        raw = sample.read_bytes()
    except OSError as error:
        raise InputError(f"{sample} can't be read", expected="a file of JSON", got=str(error.strerror)) from None
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError:
        yield from ((number, line) for number, line in enumerate(raw.splitlines(), 1) if line.strip())
    else:
        yield 1, raw
