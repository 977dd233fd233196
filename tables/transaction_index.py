"""What is kept of each decided transaction in Redis, so that an outcome finds its entities. Pure: no I/O.

    key     {prefix:shard}:t: and the digests of user (8 bytes) and transaction (16): a user's lie in one shard
    value   ENTRY (72 bytes); once something was heard of it, that too (`tables.outcomes`, at most 530 bytes more)

Beside them, for each outcome that did not find its transaction, a mark that says so:

    key     {prefix:shard}:learnt:unknown: and the identity of the outcomes topic, partition and offset
    value   UNKNOWN

Valkey 9 takes 210 bytes of memory for one that nothing was heard of, key and expiry included, and 2.3 us of CPU to keep it
(measured with 400,000 and a prefix of 16 characters).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from assay.schemas.decision import Action, Tier
from assay.tables.changes import CHANGED_KINDS
from assay.tables.digests import Digests
from assay.tables.keyspace import Keyspace, Part
from assay.tables.outcomes import Known, Paid, decode_known, encode_known
from assay.tables.redis_library import Library
from assay.tables.redis_link import Command

VERSION = 1
MARKER = b"t:"
UNKNOWN = b"?"
ENTITY_KINDS = CHANGED_KINDS[1:]  # the user is in the key
ACTIONS = tuple(Action)
_TIERS = tuple(Tier)
_FULL, _DECLINE = Tier.FULL.rank, ACTIONS.index(Action.DECLINE)

ENTRY = np.dtype(
    [
        ("version", "u1"),
        ("action", "u1"),  # index into `schemas.decision.Action`
        ("tier", "u1"),  # its rank
        ("unused", "u1"),
        ("score", "<f4"),  # NaN without a model
        ("time_ms", "<i8"),  # event time: epoch, milliseconds
        ("whole", "<i8"),  # amount in thousandths of a major unit of its own currency
        ("base", "<i8"),  # the same in the base currency; 0 where there is no rate
        *[(kind, "<u8") for kind in ENTITY_KINDS],  # digests; 0 where absent
    ]
)
DECIDED = np.dtype(
    [("entry", ENTRY), ("user", "<u8"), ("id", "<u8", (2,)), ("partition", "<i4"), ("offset", "<i8")]
)  # of the source record
Decided = npt.NDArray[np.void]
"""Transactions that were decided, (n,) DECIDED, on their way to the index."""

_FIELDS = Struct("<3Bxf3q5Q")  # those of ENTRY, in its order; a test holds the two together


class Entry(NamedTuple):
    """ENTRY, read."""

    version: int
    action: int
    tier: int
    score: float
    time_ms: int
    whole: int
    base: int
    instrument: int
    bin: int
    merchant: int
    device: int
    address: int


@dataclass(frozen=True, slots=True)
class Kept:
    """A transaction that was found: what was decided, and what was heard of it."""

    entry: Entry
    known: Known

    @property
    def paid(self) -> Paid:
        return Paid(self.entry.whole, self.entry.base)

    @property
    def action(self) -> Action:
        return ACTIONS[self.entry.action]

    @property
    def entities(self) -> tuple[int, ...]:
        """Digests in the order of ENTITY_KINDS."""
        return self.entry[7:]

    def encode(self) -> bytes:
        return _FIELDS.pack(*self.entry) + (encode_known(self.known) if self.known else b"")

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """What `encode` or `keep_commands` wrote. Raises ValueError for anything else."""
        if len(value) < _FIELDS.size or value[0] != VERSION or value[1] >= len(ACTIONS) or value[2] >= len(_TIERS):
            raise ValueError(f"no transaction of version {VERSION}")
        heard = value[_FIELDS.size :]
        return cls(Entry(*_FIELDS.unpack_from(value)), decode_known(heard) if heard else ())


class Place(NamedTuple):
    """Where a transaction is kept."""

    shard: int
    key: bytes


@cache
def index_library() -> Library:
    """What is called."""
    return Library.of("transaction_index", "keep", "remember")


def place_of(keyspace: Keyspace, digests: Digests, user_id: str, transaction_id: str) -> Place:
    """Where the transaction of this identity is kept."""
    user = digests.of64(user_id)
    shard = user % keyspace.shards
    return Place(shard, _tag(keyspace, shard) + MARKER + user.to_bytes(8, "little") + digests.of128(transaction_id))


def keep_commands(decided: Decided, keyspace: Keyspace, expire_s: int) -> list[Command]:
    """Commands that keep transactions (n,) DECIDED, one for each shard, for so many seconds; those kept already stay."""
    shards = decided["user"] % np.uint64(keyspace.shards)
    commands = []
    for shard in np.unique(shards).tolist():
        here = decided[shards == shard]
        tag = _tag(keyspace, shard)
        head = np.frombuffer(b"$%d\r\n" % (len(tag) + len(MARKER) + 24) + tag + MARKER, np.uint8)
        keys = np.empty((len(here), len(head) + 26), np.uint8)
        keys[:, : len(head)] = head
        keys[:, len(head) : -18] = np.ascontiguousarray(here["user"]).view(np.uint8).reshape(-1, 8)
        keys[:, -18:-2] = np.ascontiguousarray(here["id"]).view(np.uint8).reshape(-1, 16)
        keys[:, -2:] = np.frombuffer(b"\r\n", np.uint8)
        values = np.ascontiguousarray(here["entry"]).tobytes()
        mark = _bulk([keyspace.mark(shard, Part.OUTCOMES)])
        rest = _bulk([keyspace.fingerprint.encode(), b"%d" % expire_s, values])
        commands.append(Command(tag, [_fcall("keep", 1 + len(here), 3), mark, keys.tobytes(), rest]))
    return commands


def find_commands(places: Sequence[Place], keyspace: Keyspace) -> list[tuple[Command, Sequence[int]]]:
    """MGET of the values, one for each shard, each with the positions in `places` that its answer has the values of."""
    return [
        (
            Command(_tag(keyspace, shard), [b"*%d\r\n" % (1 + len(here)), _bulk([b"MGET", *(places[i].key for i in here)])]),
            here,
        )
        for shard, here in _by_shard(places).items()
    ]


def remember_commands(changed: Mapping[Place, tuple[bytes, bytes]], keyspace: Keyspace) -> list[tuple[Command, Sequence[int]]]:
    """Commands that put the second of two values where the first still is, as `find_commands` returns them."""
    places = list(changed)
    return [
        (
            Command(
                _tag(keyspace, shard),
                [
                    _fcall("remember", len(here), 2 * len(here)),
                    _bulk([places[i].key for i in here]),
                    _bulk([value for i in here for value in changed[places[i]]]),
                ],
            ),
            here,
        )
        for shard, here in _by_shard(places).items()
    ]


def mark_of(outcomes: Keyspace, transaction: Place, partition: int, offset: int) -> Place:
    """Where a mark lies that this record of the outcomes topic did not find its transaction: in the shard of that."""
    record = b"%s:%d:%d" % (outcomes.source.encode(), partition, offset)
    return Place(transaction.shard, _tag(outcomes, transaction.shard) + b"learnt:unknown:" + record)


def mark_commands(marks: Sequence[Place], keyspace: Keyspace, expire_s: int) -> list[Command]:
    """Commands that set marks, for so many seconds from now."""
    rest = [UNKNOWN, b"EX", b"%d" % expire_s]
    return [Command(_tag(keyspace, mark.shard), [b"*5\r\n", _bulk([b"SET", mark.key, *rest])]) for mark in marks]


def declined_in_full(decided: Decided) -> npt.NDArray[np.bool_]:
    """Which of them we declined in the tier full, bool (n,): an outage must not become evidence."""
    declined: npt.NDArray[np.bool_] = (decided["entry"]["action"] == _DECLINE) & (decided["entry"]["tier"] == _FULL)
    return declined


def _by_shard(places: Sequence[Place]) -> dict[int, list[int]]:
    shards: dict[int, list[int]] = {}
    for position, place in enumerate(places):
        shards.setdefault(place.shard, []).append(position)
    return shards


def _tag(keyspace: Keyspace, shard: int) -> bytes:
    return b"{%s:%d}:" % (keyspace.prefix.encode(), shard)


def _fcall(function: str, keys: int, arguments: int) -> bytes:
    return b"*%d\r\n" % (3 + keys + arguments) + _bulk([b"FCALL", index_library().function(function), b"%d" % keys])


def _bulk(words: Sequence[bytes]) -> bytes:
    return b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
