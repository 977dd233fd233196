"""Payments and decisions in Java's Protobuf: what protoc makes of the published files fits what a worker reads and writes."""

import asyncio
import base64

import orjson
import pytest

from assay.schemas.answer_format import in_format
from assay.schemas.decode import Request
from assay.schemas.formats import Format
from assay.schemas.refusal import error_reply
from tests.unit.test_decode import REPLY, one, refusal

from . import runtimes

PROTOBUF = Format(b"application/protobuf", is_protobuf=True)
pytestmark = pytest.mark.timeout(300)


def in_base64(reply: tuple[bytes | None, bytes | None, list[tuple[str, bytes]]] | None) -> str:
    assert reply is not None
    written = in_format(reply, PROTOBUF, {})
    assert written is not None
    return base64.b64encode(written[1] or b"").decode()


async def test_java_writes_what_is_read_and_reads_what_is_written() -> None:
    decision = in_base64((b"u-1", orjson.dumps({"action": "decline", "tier": "full"}), []))
    refused = in_base64(error_reply(refusal(b"{}", REPLY)))
    command = await asyncio.to_thread(lambda: runtimes.java("protobuf", "Try", runtimes.messages("java")))
    process = await asyncio.create_subprocess_exec(*command, decision, refused, stdout=asyncio.subprocess.PIPE)
    key, content_type, value, *answers = (await process.communicate())[0].decode().splitlines()
    request = one(base64.b64decode(value), [("content-type", content_type.encode())], key=key.encode())
    assert isinstance(request, Request)
    transaction = request.transaction
    assert (transaction.transaction_id, str(transaction.amount), transaction.attributes) == ("t-1", "129.90", {"basket": 3})
    assert str(transaction.timestamp) == "2026-03-01T12:00:00.250+01:00"
    assert [answer.rstrip() for answer in answers] == ["decline full", "review refused missing"]
