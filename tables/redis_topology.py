"""Which node of a Redis Cluster has which slots: what `CLUSTER SLOTS` says. Pure: no I/O."""

from dataclasses import dataclass
from typing import Any

from assay.schemas.limits import MAX_REDIS_SEEDS

Address = tuple[str, int]  # host and port


@dataclass(frozen=True, slots=True)
class Topology:
    """Ranges of slots as (first, last, address of the master); and the addresses of all nodes that have some, or copies."""

    ranges: tuple[tuple[int, int, Address], ...]
    nodes: tuple[Address, ...]

    @property
    def masters(self) -> tuple[Address, ...]:
        """Those that have slots, each once."""
        return tuple(dict.fromkeys(address for _, _, address in self.ranges))

    def master(self, slot: int) -> Address:
        """Raises ConnectionError where nobody has the slot."""
        for first, last, address in self.ranges:
            if first <= slot <= last:
                return address
        raise ConnectionError(f"no node of the Redis Cluster has slot {slot}")


def read_topology(reply: Any, asked: Address) -> Topology:
    """From the reply of the node at `asked` to `CLUSTER SLOTS`, whose layout is at https://redis.io/commands/cluster-slots.

    A host that is absent, empty or `?` is that of the node that was asked. Raises ConnectionError.
    """
    try:
        ranges, nodes = [], []
        for first, last, *serving in reply:
            addresses = [_address(host, port, asked) for host, port, *_ in serving]
            ranges.append((int(first), int(last), addresses[0]))
            nodes.extend(addresses)
    except (TypeError, ValueError, IndexError) as error:
        raise ConnectionError(f"what the Redis Cluster says of its slots can't be read: {error}") from None
    return Topology(tuple(ranges), tuple(dict.fromkeys(nodes)))


def seeds(given: tuple[Address, ...], topology: Topology) -> tuple[Address, ...]:
    """Whom to ask for the slots the next time: those of the URL, then those that were met, `MAX_REDIS_SEEDS` in all."""
    return tuple(dict.fromkeys((*given, *topology.nodes)))[:MAX_REDIS_SEEDS]


def _address(host: bytes | None, port: int, asked: Address) -> Address:
    return (asked[0] if host in (None, b"", b"?") else bytes(host or b"").decode(), int(port))
