"""Changes as calls of the Redis function that keeps the rows of risk, one per shard, and what it answered. Pure: no I/O.

The manner is that of `entity_call`. `risk_windows.lua` applies the calls, and has the layout of the payload, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from assay.schemas.limits import MAX_CHANGES_A_CALL
from assay.tables import risk_layout as layout
from assay.tables.changes import CHANGED_KINDS, COUNTED, Changes
from assay.tables.keyspace import Keyspace, Part
from assay.tables.lookups import LETTERS, hash_tag
from assay.tables.redis_library import Library
from assay.tables.redis_link import Command, packed

EXPIRE_S = 39 * 24 * 60 * 60  # no window reaches a tile that long after the row was last written
_KIND_LETTERS = np.array([LETTERS[kind] for kind in CHANGED_KINDS])
_ROW_NAME = np.dtype([("letter", "S1"), ("digest", "<u8")])  # what follows the marker in a key
_PAYLOAD_HEADER = np.dtype([("changes", "<u4"), ("partitions", "<u4"), ("expire_s", "<u4"), ("unused", "<u4")])
_RECORD = np.dtype(
    [
        ("time_ms", "<f8"),
        ("thousandths", "<f8"),
        ("offset", "<f8"),  # exact up to 2**53
        ("partition", "<u2"),  # which of the payload's partitions, from 1
        ("counts", "i1", (len(COUNTED),)),
        ("entity", "<u2", (len(CHANGED_KINDS),)),  # which of the call's rows, from 1; 0 where absent or of another shard
    ]
)


@cache
def risk_library() -> Library:
    """What is called."""
    return Library.of("risk_windows", "learn")


@dataclass(frozen=True, slots=True)
class RiskCall(Command):
    """The call for one shard, and what it is about: changes (m,), and which of their entities lie there, bool (m, 6)."""

    changes: npt.NDArray[np.intp]
    here: npt.NDArray[np.bool_]


def risk_calls(changes: Changes, keyspace: Keyspace, stream: str) -> list[RiskCall]:
    """Commands that apply changes (n,) CHANGE in their order, one per shard.

    stream: what their offsets are counted in, beside `keyspace.source`: "outcomes" or "verdicts". In each shard, a change whose
    offset is not beyond the last one applied of its stream, source and partition changes nothing, so all of it may be sent
    again. Hence what is held back holds back what comes after it in its partition. Raises ValueError beyond
    `MAX_CHANGES_A_CALL`.
    """
    if len(changes) > MAX_CHANGES_A_CALL:
        raise ValueError(f"{len(changes)} changes, and a call takes {MAX_CHANGES_A_CALL}")
    digests = np.stack([changes[kind] for kind in CHANGED_KINDS], axis=1)
    shard_of = np.where(digests != 0, (digests % np.uint64(keyspace.shards)).astype(np.int64), -1)
    return [
        _call(changes, digests, shard_of == shard, int(shard), keyspace, stream) for shard in np.unique(shard_of[shard_of >= 0])
    ]


def applied_key(keyspace: Keyspace, shard: int, stream: str) -> bytes:
    """Of the hash that has the last offset applied of each partition."""
    return hash_tag(keyspace, shard) + f"learnt:{stream}:{keyspace.source}".encode()


def read_sequences(calls: Sequence[RiskCall], replies: Sequence[object], count: int) -> npt.NDArray[np.int64] | None:
    """By change and kind, int64 (count, 6), the number of the row's changes up to this one, from the replies of the calls.

    0 where the transaction has no such entity. A change that had been applied before is answered with the number as it
    stands. None if the replies can't be read.
    """
    sequences = np.zeros((count, len(CHANGED_KINDS)), np.int64)
    for call, reply in zip(calls, replies, strict=True):
        if not isinstance(reply, bytes) or len(reply) != 8 * np.count_nonzero(call.here):
            return None
        rows = np.zeros(call.here.shape, np.int64)
        rows[call.here] = np.frombuffer(reply, "<f8").astype(np.int64)
        sequences[call.changes] += rows
    return sequences


def _call(
    changes: Changes, digests: npt.NDArray[np.uint64], here: npt.NDArray[np.bool_], shard: int, keyspace: Keyspace, stream: str
) -> RiskCall:
    places = np.flatnonzero(here.any(axis=1))
    here = here[places]
    rows = np.zeros(np.count_nonzero(here), _ROW_NAME)
    rows["letter"] = _KIND_LETTERS[np.nonzero(here)[1]]
    rows["digest"] = digests[places][here]
    distinct, which = np.unique(rows, return_inverse=True)
    index = np.zeros(here.shape, np.uint16)
    index[here] = which + 1
    payload = _payload(changes[places], index)
    tag = hash_tag(keyspace, shard)
    applied = applied_key(keyspace, shard, stream)
    names = [tag + layout.MARKER + name.tobytes() for name in distinct]
    keys = [applied, keyspace.mark(shard, Part.OUTCOMES), *names]
    words = [b"FCALL", risk_library().function("learn"), b"%d" % len(keys), *keys, keyspace.fingerprint.encode(), payload]
    return RiskCall(tag, packed(*words), places, here)


def _payload(changes: Changes, index: npt.NDArray[np.uint16]) -> bytes:
    partitions, which = np.unique(changes["partition"], return_inverse=True)
    records = np.zeros(len(changes), _RECORD)
    records["time_ms"] = np.clip(changes["time_ms"], layout.MIN_TIME_MS, layout.MAX_TIME_MS)
    records["thousandths"] = layout.whole_thousandths(changes["thousandths"])
    records["offset"] = changes["offset"]
    records["partition"] = which + 1
    records["counts"] = np.stack([changes[count] for count in COUNTED], axis=1)
    records["entity"] = index
    header = np.array([(len(changes), len(partitions), EXPIRE_S, 0)], _PAYLOAD_HEADER)
    return header.tobytes() + partitions.astype("<u4").tobytes() + records.tobytes()
