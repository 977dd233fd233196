"""Ids of our schemas: asked for until they are known, off every payment's path."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from assay.schemas.answer_format import ANSWER_SCHEMAS, PROTOBUF_SUBJECT
from assay.schemas.errors import SettingError
from assay.streams import registry as module
from assay.streams.registry import SchemaRegistry
from tests.schema_registry import RegistryDouble


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "REGISTRY_TIMEOUT_S", 0.2)


@pytest.fixture
async def double() -> AsyncIterator[RegistryDouble]:
    double = RegistryDouble()
    await double.start()
    yield double
    await double.stop()


@asynccontextmanager
async def registry(url: str | None) -> AsyncIterator[SchemaRegistry]:
    asked = SchemaRegistry(url, ANSWER_SCHEMAS)
    asked.start()
    try:
        yield asked
    finally:
        await asked.close()


async def known(asked: SchemaRegistry) -> None:
    async with asyncio.timeout(5):
        while asked.ids.keys() != ANSWER_SCHEMAS.keys():
            await asyncio.sleep(0.005)


async def tried(double: RegistryDouble, times: int = 3) -> None:
    async with asyncio.timeout(5):
        while len(double.asked) < times:
            await asyncio.sleep(0.005)


async def test_a_schema_that_is_not_there_is_registered(double: RegistryDouble) -> None:
    async with registry(double.url) as asked:
        await known(asked)
    assert double.text(asked.ids[PROTOBUF_SUBJECT]) == ANSWER_SCHEMAS[PROTOBUF_SUBJECT].text
    assert len(set(asked.ids.values())) == len(ANSWER_SCHEMAS)


async def test_a_schema_that_is_there_is_only_looked_up(double: RegistryDouble) -> None:
    async with registry(double.url) as first:
        await known(first)
    double.read_only = True
    double.asked.clear()
    async with registry(double.url) as asked:
        await known(asked)
    assert asked.ids == first.ids
    assert not any(request.endswith("/versions") for request in double.asked)


@pytest.mark.parametrize(
    "broken",
    [
        (503, b"{}"), (200, b"<html>"), (404, b'{"error_code": 40403}'), (200, b'{"id": "7"}'), (200, b'{"id": true}'),
        (200, b'{"id": 0}'), (200, b'{"id": -1}'), (200, b'{"id": 2147483648}'),
    ],
)  # fmt: skip
async def test_a_registry_that_fails_is_asked_again(double: RegistryDouble, broken: tuple[int, bytes]) -> None:
    double.broken = broken
    async with registry(double.url) as asked:
        await tried(double)
        assert asked.ids == {}
        double.broken = None
        await known(asked)


async def test_a_registry_that_is_not_there_is_asked_again(double: RegistryDouble) -> None:
    url, port = double.url, int(double.url.rpartition(":")[2])
    await double.stop()
    async with registry(url) as asked:
        await asyncio.sleep(0)
        await double.start(port)
        await known(asked)


async def test_where_registering_is_refused_there_is_no_id_and_the_log_says_so(
    double: RegistryDouble, caplog: pytest.LogCaptureFixture
) -> None:
    double.read_only = True
    async with registry(double.url) as asked:
        await tried(double)
    assert asked.ids == {}
    assert "allow Assay to register it" in caplog.text


async def test_user_and_password_of_the_url_are_sent_and_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    double = RegistryDouble(password="secret-word")
    await double.start()
    try:
        async with registry(double.url.replace("//", "//assay:secret-word@")) as asked:
            await known(asked)
        async with registry(double.url.replace("//", "//assay:wrong-word@")) as refused:
            await tried(double, len(double.asked) + 2)
    finally:
        await double.stop()
    assert refused.ids == {}
    assert "secret-word" not in caplog.text
    assert "wrong-word" not in caplog.text


@pytest.mark.parametrize(
    "url", ["assay:secret-word@registry:8081", "ftp://assay:secret-word@registry", "http://", "http://a:x"]
)
def test_what_is_no_url_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(SettingError) as refused:
        SchemaRegistry(url, ANSWER_SCHEMAS)
    assert "secret-word" not in str(refused.value)


@pytest.mark.parametrize("error", [aiohttp.InvalidURL, UnicodeError, ValueError])
async def test_an_address_that_a_client_can_not_read_is_asked_again_and_never_logged(
    double: RegistryDouble, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    fails = [True, True]

    async def post(*args: Any) -> dict[str, Any]:
        if fails:
            fails.pop()
            raise error("http://assay:secret-word@[registry")
        return await asked_for_real(*args)

    asked_for_real = module._post
    monkeypatch.setattr(module, "_post", post)
    async with registry(double.url) as asked:
        await known(asked)
    assert error.__name__ in caplog.text
    assert "secret-word" not in caplog.text


async def test_without_a_url_nobody_is_asked() -> None:
    async with registry(None) as asked:
        assert asked.ids == {}


async def test_i5_registry_timeout_s_bounds_an_exchange() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting.append(writer)

    waiting: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with registry(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"):
        async with asyncio.timeout(5):
            while len(waiting) < 2:  # the first one was given up
                await asyncio.sleep(0.01)
    for writer in waiting:
        writer.close()
    server.close()


async def test_i5_max_registry_answer_bytes_bounds_what_is_read(
    double: RegistryDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_REGISTRY_ANSWER_BYTES", 1_000)
    double.broken = (200, b'{"id": 7, "more": "' + b"x" * 1_000 + b'"}')
    async with registry(double.url) as asked:
        await tried(double)
        assert asked.ids == {}
        double.broken = (200, b'{"id": 7}')
        await known(asked)
