"""The way from a worker to its broker, in our hands: a TCP proxy that can be cut, frozen, slowed, and mended."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from assay.deploy.ports import free_port

CHUNK_BYTES = 64 * 1024


class Link:
    """Listens on `port`, leads to `target`. Use it as an async context manager.

    While it is frozen, nothing that was sent gets through and nobody is told: it arrives once the link is mended, as does what
    lay in a buffer on the way when a process had long been given up.
    """

    def __init__(self) -> None:
        self.port, self.target = free_port(), 0
        self._delay_s = 0.0
        self._refusing = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        self._end_all()
        if self._connections:
            await asyncio.wait(self._connections)

    def cut(self) -> None:
        """All connections end at once, and no new one is accepted."""
        self._refusing = True
        self._end_all()

    def freeze(self) -> None:
        """Connections stay; nothing gets through."""
        self._flowing.clear()

    def slow(self, delay_s: float) -> None:
        """Everything arrives so much later, and not before what was sent before it has arrived."""
        self._delay_s = delay_s

    def mend(self) -> None:
        """As if nothing had been: what was held is delivered."""
        self._refusing, self._delay_s = False, 0.0
        self._flowing.set()

    def _end_all(self) -> None:
        for connection in self._connections:
            connection.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        ends = [writer]
        try:
            if not self._refusing:
                other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self.target)
                ends.append(other_writer)
                await self._both_ways((reader, other_writer), (other_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass  # the broker is down, or the link is cut
        finally:
            self._connections.discard(task)
            for end in ends:
                end.transport.abort()

    async def _both_ways(self, *ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        """Until one of the two sides has ended, however it did."""
        pumps = [asyncio.ensure_future(self._pump(*way)) for way in ways]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                await self._flowing.wait()
                writer.write(chunk)
                await writer.drain()
