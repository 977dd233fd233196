"""How commands reach Redis: one server, or the masters of a Redis Cluster; connect, exchange by a deadline, give up.

Whether it is a cluster is found out at `connect`, from the answer to `CLUSTER SLOTS`. Then there is one connection for each
master that has slots of ours; an exchange is one write to each, and all are awaited under the one deadline. What a node
refuses because a slot went elsewhere is sent again, in its order, within the same deadline and exchange: what others
have taken is not repeated, so their replies stay those of the first time. Any other failure ends all connections; the next
`connect` asks for the slots anew, another node first.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import parse_url
from redis.crc import key_slot
from redis.exceptions import AskError, AuthenticationError, MovedError, ResponseError

from assay.schemas.errors import ServiceError, SettingError
from assay.schemas.limits import MAX_REDIRECTS, REDIS_CONNECT_S
from assay.tables.redis_library import Library
from assay.tables.redis_node import OUTAGES, OtherKeyError, RedisNode
from assay.tables.redis_topology import Address, Topology, read_topology, seeds

__all__ = ["OUTAGES", "Command", "RedisLink", "packed", "urls_of"]

READ_BYTES = 256 * 1024
ASKING = b"*1\r\n$6\r\nASKING\r\n"


@dataclass(frozen=True, slots=True)
class Command:
    """A command in pieces of the Redis protocol, and the hash tag in braces (`{prefix:shard}`) that all its keys have.

    tag may go on after the braces, as a key does.
    """

    tag: bytes
    parts: Sequence[bytes | bytearray]


def packed(*words: bytes) -> list[bytes]:
    """A command's words in the Redis protocol."""
    return [b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)]


@dataclass(frozen=True, slots=True)
class _Errand:
    """A command on its way: its place among the replies, and the node that it goes to."""

    place: int
    command: Command
    address: Address
    asking: bool = False  # the slot is on its way to that node, and not yet its own

    def parts(self) -> Sequence[bytes | bytearray]:
        return [ASKING, *self.command.parts] if self.asking else self.command.parts


class RedisLink:
    """Connections made by `connect` and all ended by any failure.

    url: `redis://`, `rediss://` or `unix://`; of a cluster any of its nodes, or several: `redis://a:6379,b:6379`.
    libraries: of functions, loaded where a server doesn't have them. tags: those of the commands to come, whose masters are
    connected to at once. Raises SettingError.
    """

    def __init__(self, url: str, libraries: Sequence[Library] = (), tags: Sequence[bytes] = ()) -> None:
        try:
            urls = urls_of(url)
            self._pool: Any = ConnectionPool.from_url(
                urls[0], protocol=2, socket_timeout=None, socket_connect_timeout=REDIS_CONNECT_S, socket_read_size=READ_BYTES
            )
            self._path = self._pool.connection_kwargs.get("path")  # of a socket
            self._given = tuple(_address(parse_url(one)) for one in urls)
        except ValueError as error:
            raise SettingError(
                f"the Redis URL can't be used: {error}",
                expected="redis://HOST:PORT/DB, rediss://HOST:PORT/DB or unix://PATH; of a cluster also HOST:PORT,HOST:PORT",
                mend="set ASSAY_REDIS_URL",
            ) from None
        self._libraries = libraries
        self._slots = {key_slot(tag) for tag in tags}
        self._seeds = deque(self._given)  # the first is the next to be asked
        self._nodes: dict[Address, RedisNode] = {}
        self._complete = False
        self._topology: Topology | None = None  # None: no cluster
        self._only = self._given[0]  # the one server, where it is no cluster

    @property
    def connected(self) -> bool:
        """Whether commands can be sent."""
        return self._complete

    @property
    def address(self) -> str:
        """Where Redis is expected, without credentials."""
        return str(self._path or ", ".join(f"{host}:{port}" for host, port in self._given))

    async def connect(self) -> None:
        """Connect to the server, or to each master that has slots of ours. Raises one of OUTAGES."""
        failure: BaseException = ConnectionError("no host")
        try:
            async with asyncio.timeout(REDIS_CONNECT_S):
                for seed in tuple(self._seeds):
                    try:
                        await self._begin(seed)
                        self._complete = True
                        return
                    except OUTAGES as error:
                        failure = error
                        await self.disconnect()
            raise failure
        except BaseException:
            await self.disconnect()
            raise

    async def _begin(self, seed: Address) -> None:
        node = await self._opened(seed)
        self._topology, self._only = None, seed
        try:
            slots = None if self._path else await node.ask("CLUSTER", "SLOTS")
        except ResponseError:  # no cluster, or one that we may not ask: then its refusals will tell
            slots = None
        if slots is None:
            await node.load()
        else:
            await self._settle(read_topology(slots, seed))

    async def _settle(self, topology: Topology) -> None:
        """Have a connection to each master that we need, and to no other node."""
        self._topology, self._seeds = topology, deque(seeds(self._given, topology))
        masters = {topology.master(slot) for slot in self._slots}
        for failure in await asyncio.gather(*(self._node(master) for master in masters), return_exceptions=True):
            if isinstance(failure, BaseException):
                raise failure
        for unneeded in self._nodes.keys() - masters:
            await self._nodes.pop(unneeded).close()

    async def _node(self, address: Address) -> RedisNode:
        """A connection to a node that has our functions."""
        node = self._nodes.get(address) or await self._opened(address)
        await node.load()
        return node

    async def _opened(self, address: Address) -> RedisNode:
        where = {} if self._path else {"host": address[0], "port": address[1]}
        node = RedisNode(self._pool.connection_class(**self._pool.connection_kwargs | where), self._libraries)
        await node.open()
        self._nodes[address] = node
        return node

    async def masters(self) -> list[RedisNode]:
        """A connection to every server that has keys, once it is connected: of a cluster, those without slots of ours too."""
        addresses = (self._only,) if self._topology is None else self._topology.masters
        return [await self._node(address) for address in addresses]

    async def exchange(self, commands: Sequence[Command], until: float) -> list[object]:
        """Send commands in one write to each node and return a reply for each command, in their order.

        until is on the clock of the event loop. Raises one of OUTAGES, and then the connections have been given up.
        """
        if not self._complete:
            raise ConnectionError("not connected")
        replies: list[object] = [None] * len(commands)
        try:
            errands = [_Errand(place, command, self._master(command.tag)) for place, command in enumerate(commands)]
            for _ in range(1 + MAX_REDIRECTS):
                await self._round(errands, replies, until)
                if all(not isinstance(reply, ResponseError) for reply in replies):
                    return replies
                async with asyncio.timeout_at(until):
                    errands = await self._redirected(errands, replies)
            raise ConnectionError(f"sent from node to node more than {MAX_REDIRECTS} times")
        except BaseException:
            await self.disconnect()
            raise

    def _master(self, tag: bytes) -> Address:
        return self._only if self._topology is None else self._topology.master(key_slot(tag))

    async def _round(self, errands: Sequence[_Errand], replies: list[object], until: float) -> None:
        """Send them all, then take all replies."""
        of_node: dict[Address, list[_Errand]] = {}
        for errand in errands:
            of_node.setdefault(errand.address, []).append(errand)
        for address, those in of_node.items():
            if address not in self._nodes:
                async with asyncio.timeout_at(until):
                    await self._node(address)
            await self._nodes[address].send([part for errand in those for part in errand.parts()], until)
        for address, those in of_node.items():
            for errand in those:
                if errand.asking:
                    await self._nodes[address].reply(until)
                replies[errand.place] = await self._nodes[address].reply(until)

    async def _redirected(self, errands: Sequence[_Errand], replies: Sequence[object]) -> list[_Errand]:
        """Where to send again what was refused. Raises the first refusal that is for another reason."""
        refused = [(errand, error) for errand in errands if isinstance(error := replies[errand.place], ResponseError)]
        for _, error in refused:
            if self._topology is None or not isinstance(error, AskError):  # MovedError is one
                raise error
        moved = next((errand.address for errand, error in refused if isinstance(error, MovedError)), None)
        if moved is not None:
            await self._settle(read_topology(await self._nodes[moved].ask("CLUSTER", "SLOTS"), moved))
        return [self._again(errand, error) for errand, error in refused]

    def _again(self, errand: _Errand, error: Any) -> _Errand:
        if isinstance(error, MovedError):
            return _Errand(errand.place, errand.command, self._master(errand.command.tag))
        return _Errand(errand.place, errand.command, (error.host or errand.address[0], error.port), asking=True)

    async def disconnect(self) -> None:
        """Give the connections up, whatever is still on its way."""
        nodes, self._nodes, self._complete = self._nodes, {}, False
        self._seeds.rotate(-1)
        for node in nodes.values():
            await node.close()

    def start_error(self, error: BaseException) -> ServiceError:
        """Why Assay can't work with what is there, and what to do about it."""
        if isinstance(error, OtherKeyError):
            return ServiceError(f"Redis at {self.address}: {error.what}", mend=error.mend)
        if isinstance(error, ResponseError) and str(error).startswith("OTHERKEY"):
            what, mend = "is written to under another ASSAY_HASH_KEY", "stop whoever has that key, then do this again"
        elif isinstance(error, AuthenticationError):
            what, mend = "refuses our credentials", "set user and password in ASSAY_REDIS_URL"
        elif isinstance(error, ResponseError) and "unknown" in str(error).lower():
            what, mend = "has no functions", "run Redis 7 or Valkey 7, or newer"
        elif isinstance(error, ResponseError) and any(word in str(error) for word in ("SELECT", "DB index")):
            what, mend = "has no such database", "name database 0 in ASSAY_REDIS_URL: a cluster has no other"
        elif isinstance(error, ResponseError):
            what, mend = "does not take our function", "allow this user what `assay acls` lists for Redis"
        else:
            what, mend = "does not answer", "start Redis (`assay services up`) or set ASSAY_REDIS_URL"
        return ServiceError(
            f"Redis at {self.address} {what}",
            expected="Redis 7 or Valkey 7, or newer, for the entity windows",
            got=str(error) or type(error).__name__,
            mend=mend,
        )


def urls_of(url: str) -> list[str]:
    """One URL for each host of a URL that may have several: `redis://user:password@a:6379,b:6379/0`."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [url]
    return [urlunsplit(parts._replace(netloc=f"{login}{at}{host}")) for host in hosts.split(",")]


def _address(parsed: Any) -> Address:
    return str(parsed.get("host", "localhost")), int(parsed.get("port", 6379))
