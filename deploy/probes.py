"""Asking Kafka and Redis whether they are there, and what they are, without a client library's patience."""

import socket
import ssl
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from assay.tables.redis_topology import Topology

_API_VERSIONS = 18


@dataclass(frozen=True, slots=True)
class KafkaFacts:
    """What a broker says of itself in answer to ApiVersions."""

    apis: dict[int, int]  # API key -> highest version
    features: dict[str, int] = field(default_factory=dict)  # finalised feature -> level; empty before Kafka 3.x


def split_address(address: str) -> tuple[str, int]:
    """Host and port of one `HOST:PORT`. Raises ValueError."""
    host, colon, port = address.strip().rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def without_password(url: str) -> str:
    """The URL, fit to be shown."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def ask_kafka(bootstrap_servers: str, timeout_s: float = 3.0, tls: ssl.SSLContext | None = None) -> KafkaFacts:
    """What the first of `bootstrap_servers` that answers says. ApiVersions needs no login.

    Raises OSError (TimeoutError among them) when none answers, ValueError when an address or an answer is not Kafka's.
    """
    failure: Exception = ValueError("no address")
    for address in bootstrap_servers.split(","):
        try:
            host, port = split_address(address)
            with socket.create_connection((host, port), timeout=timeout_s) as plain:
                if tls is None:
                    return _ask(plain, version=3)
                with tls.wrap_socket(plain, server_hostname=host) as wrapped:
                    return _ask(wrapped, version=3)
        except (OSError, ValueError) as error:
            failure = error
    raise failure


def kafka_answers(bootstrap_servers: str) -> bool:
    """Whether a Kafka answers there within a second."""
    try:
        return bool(ask_kafka(bootstrap_servers, timeout_s=1.0).apis)
    except (OSError, ValueError):
        return False


def redis_answers(port: int) -> bool:
    """Whether a Redis of this machine answers within a second. Without the client library, which takes long to import."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(5) == b"+PONG"
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """What a Redis or Valkey says of itself; of a cluster, what all of its masters say."""

    version: str
    eviction: str  # maxmemory-policy; of the first master that evicts
    functions: bool  # whether it knows FUNCTION and FCALL
    topology: "Topology | None" = None  # None: no cluster


def ask_redis(url: str, timeout_s: float = 3.0) -> RedisFacts:
    """What the server at `url` says, and each master where it is a cluster; of several hosts the first that answers.

    Raises redis.RedisError or OSError, or ValueError for a URL that is none.
    """
    from redis import RedisError

    from assay.tables.redis_link import urls_of

    failure: Exception = ValueError("no host")
    for one in urls_of(url):
        try:
            facts = _ask_redis(one, timeout_s)
        except (OSError, RedisError) as error:
            failure = error
        else:
            return _ask_masters(one, facts, timeout_s)
    raise failure


def _ask_redis(url: str, timeout_s: float) -> RedisFacts:
    from redis import Redis, ResponseError
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    from assay.tables.redis_topology import read_topology

    patience = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s, "retry": Retry(NoBackoff(), 0)}
    with Redis.from_url(url, protocol=2, **patience) as client:
        info = client.info()
        topology = None
        if info.get("cluster_enabled"):
            where = client.connection_pool.connection_kwargs
            asked = (where.get("host", "localhost"), where.get("port", 6379))
            topology = read_topology(client.execute_command("CLUSTER", "SLOTS"), asked)
        try:
            client.execute_command("FUNCTION", "STATS")
            functions = True
        except ResponseError:
            functions = False
    version = info.get("valkey_version") or info.get("redis_version")
    return RedisFacts(str(version), str(info.get("maxmemory_policy", "")), functions, topology)


def _ask_masters(url: str, facts: RedisFacts, timeout_s: float) -> RedisFacts:
    """The same, with what is worst among all masters; raises what `ask_redis` does where one can't be reached from here."""
    if facts.topology is None:
        return facts
    parts = urlsplit(url)
    login, at, _ = parts.netloc.rpartition("@")
    hosts = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in facts.topology.masters]
    masters = [_ask_redis(urlunsplit(parts._replace(netloc=f"{login}{at}{host}")), timeout_s) for host in hosts]
    evictions = [one.eviction for one in masters if one.eviction not in ("noeviction", "")]
    functions = all(one.functions for one in masters)
    return RedisFacts(facts.version, evictions[0] if evictions else facts.eviction, functions, facts.topology)


def _ask(connection: socket.socket, version: int) -> KafkaFacts:
    """One ApiVersions round trip; https://kafka.apache.org/protocol has the layout, KIP-511 and KIP-584 the reasons."""
    client = b"assay"
    header = struct.pack(">hhih", _API_VERSIONS, version, 1, len(client)) + client
    body = b"\x00" + bytes([len(client) + 1]) + client + b"\x020\x00" if version >= 3 else b""
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    if not 10 <= size <= 1_000_000:
        raise ValueError("what listens there does not speak Kafka's protocol")
    answer = _Reader(_receive(connection, size))
    answer.int32()  # correlation id
    error = answer.int16()
    if error == 35 and version > 0:  # UNSUPPORTED_VERSION: an old broker, which answers in version 0
        return _ask(connection, version=0)
    if error != 0:
        raise ValueError(f"the broker answered ApiVersions with error {error}")
    return _flexible(answer) if version >= 3 else _plain(answer)


def _plain(answer: "_Reader") -> KafkaFacts:
    apis = {}
    for _ in range(answer.int32()):
        key, _least, highest = answer.int16(), answer.int16(), answer.int16()
        apis[key] = highest
    return KafkaFacts(apis)


def _flexible(answer: "_Reader") -> KafkaFacts:
    apis, features = {}, {}
    for _ in range(answer.varint() - 1):
        key, _least, highest = answer.int16(), answer.int16(), answer.int16()
        answer.skip_tags()
        apis[key] = highest
    answer.int32()  # throttle time
    for tag, value in answer.tags():
        if tag == 2:  # FinalizedFeatures
            for _ in range(value.varint() - 1):
                name = value.take(value.varint() - 1).decode()
                features[name], _least = value.int16(), value.int16()
                value.skip_tags()
    return KafkaFacts(apis, features)


class _Reader:
    """Reads Kafka's primitive types off a buffer."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise ValueError("an answer that is cut short")
        self._at += size
        return self._data[self._at - size : self._at]

    def int16(self) -> int:
        return int.from_bytes(self.take(2), signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), signed=True)

    def varint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def tags(self) -> list[tuple[int, "_Reader"]]:
        return [(self.varint(), _Reader(self.take(self.varint()))) for _ in range(self.varint())]

    def skip_tags(self) -> None:
        self.tags()


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ValueError("what listens there closed the connection")
        received += part
    return received
