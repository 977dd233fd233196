"""One connection to one Redis server that has our functions: open, send, take replies by a deadline, close.

Written over redis-py's connection rather than its client, which brings timeouts, retries and a pool of its own; here there
is one deadline, and whoever sees a failure closes the connection: one on which an answer may still be on its way is never
used again.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.exceptions import RedisError, ResponseError

from assay.tables.redis_library import Library

GRACE_S = 0.001  # to take an answer that came in time, while this process was busy with something else
OUTAGES = (RedisError, OSError, TimeoutError)


class OtherKeyError(RedisError):
    """What is in Redis was written under another key of digests (`tables.key_marks`): we would find nobody in it."""

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(f"{what}. Mend: {mend}")
        self.what, self.mend = what, mend


class RedisNode:
    """A connection of redis-py to one server. Everything raises one of OUTAGES."""

    def __init__(self, connection: Any, libraries: Sequence[Library]) -> None:
        self._connection = connection
        self._missing = list(libraries)  # those that this server is not yet known to have

    async def open(self) -> None:
        """Connect."""
        try:
            await self._connection.connect()
        except BaseException:
            await self.close()
            raise

    async def load(self) -> None:
        """Load the functions where the server doesn't have them."""
        while self._missing:
            library = self._missing[0]
            if not await self.ask("FUNCTION", "LIST", "LIBRARYNAME", library.name):
                await self.ask("FUNCTION", "LOAD", "REPLACE", library.code)
            self._missing.pop(0)

    async def ask(self, *words: str | bytes) -> object:
        """One command and its reply."""
        await self._connection.send_command(*words, check_health=False)
        return await self._connection.read_response(disable_decoding=True, disconnect_on_error=False)

    async def send(self, parts: Sequence[bytes | bytearray], until: float) -> None:
        """Write commands in pieces of the Redis protocol. until is on the clock of the event loop."""
        async with asyncio.timeout_at(until):
            await self._connection.send_packed_command(parts, check_health=False)

    async def reply(self, until: float) -> object:
        """The next reply; a ResponseError where the server refuses, since the connection is none the worse for that."""
        try:
            async with asyncio.timeout_at(until):
                return await self._read()
        except TimeoutError:
            async with asyncio.timeout(GRACE_S):
                return await self._read()

    async def _read(self) -> object:
        try:
            return await self._connection.read_response(disable_decoding=True, disconnect_on_error=False)
        except ResponseError as error:
            return error

    async def close(self) -> None:
        """Give the connection up, whatever is still on its way."""
        await self._connection.disconnect(nowait=True)
