"""One micro-batch as calls of the Redis function, one per shard, and what it answered. Pure: no I/O.

The commands are written in the Redis protocol straight from arrays: a client library spends a microsecond on each key.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt

from assay.tables import entity_layout as layout
from assay.tables.events import Events

EXPIRE_S = 28 * 60 * 60  # a row can be seen for 25 h after its clock; the rest is for event time behind the wall clock


@cache
def library() -> tuple[str, str, str]:
    """(name of the library, name of the function, code); names carry a digest, so that versions live side by side."""
    code = (Path(__file__).parent / "entity_windows.lua").read_text(encoding="utf-8")
    version = sha256(code.encode()).hexdigest()[:12]
    name, function = f"assay_entities_{version}", f"assay_observe_{version}"
    code = code.replace("name=assay_entities", f"name={name}").replace("'assay_observe'", f"'{function}'")
    return name, function, code


@dataclass(slots=True)
class ShardCall:
    """The call for one shard: its command in pieces, and what it is about: transactions (m,), entities (m, 4)."""

    tag: bytes  # of its keys
    head: bytes
    payload: bytearray
    rows: npt.NDArray[np.int64]
    index: npt.NDArray[np.uint16]

    def command(self) -> tuple[bytes, bytearray, bytes]:
        return self.head, self.payload, b"\r\n"


@dataclass(slots=True, eq=False)
class Observed:
    """One micro-batch of n transactions on its way to Redis: at most one call per shard."""

    transactions: int
    calls: list[ShardCall]
    given_up: bool = False  # whoever waited for the answer has gone on without
    done: bool = False  # taken by Redis, or dropped
    refusals: int = 0  # how many times Redis answered with an error
    replies: Sequence[object] = ()  # once it is done: whoever has the connection sends the first of the queue, whosever it is

    def give_up(self) -> None:
        """Nobody waits for the answer any more: ask for none."""
        self.given_up = True
        for call in self.calls:
            call.payload[layout.QUIET] = 1

    def read(self, replies: Sequence[object]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]] | None:
        """Windows float32 (n, 24) and sequences int64 (n, 4) from one reply per call; None if they can't be read."""
        n = self.transactions
        values = np.full((n, len(layout.ENTITIES) * layout.WINDOWS_PER_ENTITY), layout.ABSENT, np.float32)
        sequences = np.zeros((n, len(layout.ENTITIES)), np.int64)
        for call, reply in zip(self.calls, replies, strict=True):
            if not (isinstance(reply, list) and len(reply) == 2 and all(isinstance(part, bytes) for part in reply)):
                return None
            tiles, people = np.frombuffer(reply[0], np.uint8), np.frombuffer(reply[1], np.uint8)
            if tiles.size % 8:
                return None
            # A copy where the bytes don't lie as the compiled loop needs them.
            wide = np.require(tiles.view(np.float64), requirements="A")
            tiny = wide.view(np.uint8)
            views = (wide, wide.view(np.uint32), wide.view(np.uint16), tiny, people)
            if not layout.read_rows(*views, call.index, call.rows, values, sequences):
                return None
        return values, sequences


@dataclass(frozen=True, slots=True)
class Keyspace:
    """Where the rows lie: `{prefix:shard}` is the hash tag, so one shard is one slot of a Redis Cluster.

    Offsets are compared within one source, which tells a topic from another of the same name (its Kafka topic id).
    """

    prefix: str
    source: str
    shards: int

    def tag(self, shard: int) -> bytes:
        return f"{{{self.prefix}:{shard}}}:{layout.LAYOUT_VERSION}:".encode()


def observed(events: Events, partitions: npt.NDArray[np.int64], keyspace: Keyspace) -> Observed:
    """Pack events (n,) of source partitions (n,). Raises ValueError beyond `MAX_RECORDS`."""
    if len(events) > layout.MAX_RECORDS:
        raise ValueError(f"a micro-batch of {len(events)} transactions, and a call takes {layout.MAX_RECORDS}")
    seen = layout.observations(events)
    calls = []
    for shard in _shards_of(seen.digests, keyspace.shards):
        slots, digests, index = layout.number_entities(seen.digests, keyspace.shards, shard)
        rows = np.flatnonzero(index.any(axis=1))
        payload = _payload(seen, events["offset"], partitions, rows, index[rows])
        tag = keyspace.tag(shard)
        head = _head(tag, keyspace.source, slots, digests, len(payload))
        calls.append(ShardCall(tag, head, payload, rows, index[rows]))
    return Observed(len(events), calls)


def _shards_of(digests: npt.NDArray[np.uint64], shards: int) -> list[int]:
    present = digests[digests != 0]
    if shards == 1:
        return [0] if present.size else []
    return [int(shard) for shard in np.unique(present % np.uint64(shards))]


def _payload(
    seen: layout.Observations,
    offsets: npt.NDArray[np.int64],
    partitions: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    index: npt.NDArray[np.uint16],
) -> bytearray:
    numbers, which = np.unique(partitions[rows], return_inverse=True)
    records = np.zeros(len(rows), layout.RECORD)
    records["time_ms"] = seen.time_ms[rows]
    records["thousandths"] = seen.thousandths[rows]
    records["offset"] = offsets[rows]
    records["tile"] = seen.tile[rows]
    records["partition"] = which + 1
    records["person"] = seen.person[rows]
    records["entity"] = index
    header = np.array([(len(rows), len(numbers), EXPIRE_S, 0)], layout.PAYLOAD_HEADER)
    return bytearray(header.tobytes() + numbers.astype("<u4").tobytes() + records.tobytes())


def _head(tag: bytes, source: str, slots: npt.NDArray[np.uint8], digests: npt.NDArray[np.uint64], payload_bytes: int) -> bytes:
    """The command up to its payload. Keys of rows all have one length, so they are written as one array."""
    key = np.frombuffer(b"$%d\r\n%s?........\r\n" % (len(tag) + 9, tag), np.uint8)
    keys = np.tile(key, (len(digests), 1))
    keys[:, -11] = np.frombuffer(layout.KEY_LETTERS, np.uint8)[slots]
    keys[:, -10:-2] = digests.astype("<u8").view(np.uint8).reshape(-1, 8)
    named = len(digests) + 1
    start = [b"FCALL", library()[1].encode(), b"%d" % named, tag + b"applied:" + source.encode()]
    bulk = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in start)
    return b"*%d\r\n%s%s$%d\r\n" % (named + 4, bulk, keys.tobytes(), payload_bytes)
