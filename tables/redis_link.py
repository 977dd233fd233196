"""One connection to Redis that has our functions: connect, exchange by a deadline, give up.

Written over redis-py's connection rather than its client, which brings timeouts, retries and a pool of its own; here there
is one deadline, and a connection on which an answer may still be on its way is never used again.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import ConnectionPool
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from assay.schemas.errors import ServiceError, SettingError
from assay.schemas.limits import REDIS_CONNECT_S

GRACE_S = 0.001  # to take an answer that came in time, while this process was busy with something else
READ_BYTES = 256 * 1024
OUTAGES = (RedisError, OSError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Command:
    """A command in pieces of the Redis protocol, and the hash tag in braces (`{prefix:shard}`) that all its keys have.

    tag may go on after the braces, as a key does.
    """

    tag: bytes
    parts: Iterable[bytes | bytearray]


class RedisLink:
    """At most one connection, made by `connect` and ended by any failure.

    libraries: of functions, each (name of the library, name of the function, code), loaded where Redis doesn't have them.
    """

    def __init__(self, url: str, libraries: Sequence[tuple[str, str, str]] = ()) -> None:
        self._libraries = libraries
        try:
            self._pool: Any = ConnectionPool.from_url(
                url, protocol=2, socket_timeout=None, socket_connect_timeout=REDIS_CONNECT_S, socket_read_size=READ_BYTES
            )
        except ValueError as error:
            raise SettingError(
                f"the Redis URL can't be used: {error}",
                expected="redis://HOST:PORT/DB, rediss://HOST:PORT/DB or unix://PATH",
                mend="set ASSAY_REDIS_URL",
            ) from None
        self._connection: Any = None

    @property
    def connected(self) -> bool:
        """Whether commands can be sent."""
        return self._connection is not None

    @property
    def address(self) -> str:
        """Where Redis is expected, without credentials."""
        where = self._pool.connection_kwargs
        return str(where.get("path") or f"{where.get('host', 'localhost')}:{where.get('port', 6379)}")

    async def connect(self) -> None:
        """Connect, and load the functions where Redis doesn't have them. Raises one of OUTAGES."""
        connection = self._pool.make_connection()
        try:
            async with asyncio.timeout(REDIS_CONNECT_S):
                await connection.connect()
                for name, _, code in self._libraries:
                    await connection.send_command("FUNCTION", "LIST", "LIBRARYNAME", name)
                    if not await connection.read_response():
                        await connection.send_command("FUNCTION", "LOAD", "REPLACE", code)
                        await connection.read_response()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._connection = connection

    async def exchange(self, commands: Sequence[Command], until: float) -> list[object]:
        """Send commands in one write and return a reply for each, in their order.

        until is on the clock of the event loop. Raises one of OUTAGES, and then the connection has been given up.
        """
        connection = self._connection
        if connection is None:
            raise ConnectionError("not connected")
        parts = [part for command in commands for part in command.parts]
        try:
            async with asyncio.timeout_at(until):
                await connection.send_packed_command(parts, check_health=False)
            return [await self._reply(until) for _ in commands]
        except BaseException:
            await self.disconnect()
            raise

    async def _reply(self, until: float) -> object:
        try:
            async with asyncio.timeout_at(until):
                return await self._connection.read_response(disable_decoding=True, disconnect_on_error=False)
        except TimeoutError:
            async with asyncio.timeout(GRACE_S):
                return await self._connection.read_response(disable_decoding=True, disconnect_on_error=False)

    async def disconnect(self) -> None:
        """Give the connection up, whatever is still on its way."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    def start_error(self, error: BaseException) -> ServiceError:
        """Why Assay can't work with what is there, and what to do about it."""
        if isinstance(error, AuthenticationError):
            what, mend = "refuses our credentials", "set user and password in ASSAY_REDIS_URL"
        elif isinstance(error, ResponseError) and "unknown" in str(error).lower():
            what, mend = "has no functions", "run Redis 7 or Valkey 7, or newer"
        elif isinstance(error, ResponseError):
            what, mend = "does not take our function", "allow FUNCTION LOAD, FUNCTION LIST and FCALL to this user"
        else:
            what, mend = "does not answer", "start Redis (`assay services up`) or set ASSAY_REDIS_URL"
        return ServiceError(
            f"Redis at {self.address} {what}",
            expected="Redis 7 or Valkey 7, or newer, for the entity windows",
            got=str(error) or type(error).__name__,
            mend=mend,
        )
