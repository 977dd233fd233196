"""A link does to a connection what its name says, and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from .links import Link

PATIENCE_S = 10.0


@pytest.fixture
async def link() -> AsyncIterator[Link]:
    """A link to a server that says everything twice."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line + line)
        writer.close()

    async with Link() as link, await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        link.target = server.sockets[0].getsockname()[1]
        yield link


class Caller:
    """One connection through the link."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def say(self, word: bytes) -> None:
        self._writer.write(word + b"\n")

    async def hear(self) -> bytes:
        """The next word; empty when the connection has ended."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return (await self._reader.readline()).strip()
            except ConnectionError:
                return b""

    async def hears_nothing(self) -> bool:
        """Whether nothing comes for a moment."""
        try:
            await asyncio.wait_for(self._reader.readline(), 0.1)
        except TimeoutError:
            return True
        return False


@asynccontextmanager
async def call(link: Link) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    try:
        yield Caller(reader, writer)
    finally:
        writer.transport.abort()


async def test_a_link_passes_on_both_ways(link: Link) -> None:
    async with call(link) as caller:
        caller.say(b"a")
        assert [await caller.hear(), await caller.hear()] == [b"a", b"a"]


async def test_a_frozen_link_delivers_what_was_said_meanwhile_once_it_is_mended(link: Link) -> None:
    async with call(link) as caller:
        link.freeze()
        caller.say(b"late")
        assert await caller.hears_nothing()
        link.mend()
        assert await caller.hear() == b"late"


async def test_what_was_on_the_way_arrives_even_if_its_sender_has_gone() -> None:
    arrived = asyncio.Event()

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline() == b"last words\n":
            arrived.set()

    async with Link() as link, await asyncio.start_server(note, "127.0.0.1", 0) as server, asyncio.timeout(PATIENCE_S):
        link.target = server.sockets[0].getsockname()[1]
        async with call(link) as caller:
            link.freeze()
            caller.say(b"last words")
            await asyncio.sleep(0.1)
        link.mend()
        await arrived.wait()


async def test_a_cut_link_ends_connections_and_takes_no_new_ones(link: Link) -> None:
    async with call(link) as caller:
        caller.say(b"a")
        await caller.hear()
        await caller.hear()
        link.cut()
        assert await caller.hear() == b""
    async with call(link) as caller:
        assert await caller.hear() == b""


async def test_a_mended_link_takes_new_connections(link: Link) -> None:
    link.cut()
    link.mend()
    async with call(link) as caller:
        caller.say(b"a")
        assert await caller.hear() == b"a"


async def test_a_slow_link_keeps_the_order(link: Link) -> None:
    link.slow(0.05)
    async with call(link) as caller:
        caller.say(b"a")
        await asyncio.sleep(0.02)
        caller.say(b"b")
        assert [await caller.hear() for _ in range(4)] == [b"a", b"a", b"b", b"b"]


async def test_a_link_without_a_server_ends_connections() -> None:
    async with Link() as link, call(link) as caller:
        assert await caller.hear() == b""
