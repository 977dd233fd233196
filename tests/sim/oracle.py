"""What has to come of each transaction: one thread, one record at a time, with nothing but decode, recall and fold."""

from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np

from assay.schemas.decode import Request, decode
from assay.tables.digests import Digests
from assay.tables.encode import encode_events
from assay.tables.features import FEATURE_COUNT, PROFILE_FEATURES
from assay.tables.fold import fold
from assay.tables.profile import gather
from assay.tables.rates import Rates
from assay.tables.recall import NEW, recall

from .broker import Record


class Fate(Enum):
    """What a source record ends as."""

    DECISION = auto()
    REPEAT = auto()
    DEAD_LETTER = auto()
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class Expected:
    """Of one source record.

    Attributes:
        first: the offset of the transaction whose decision it gets.
        row: the user's row once it is folded; where nothing is folded, empty.
        features: of the profile, float32; where nothing is folded, empty.
    """

    fate: Fate
    user: bytes = b""
    first: int = -1
    row: bytes = b""
    features: bytes = b""


@dataclass(slots=True)
class Partition:
    """One partition of the transactions topic, replayed as it grows."""

    expected: dict[int, Expected] = field(default_factory=dict)
    rows: dict[bytes, bytes] = field(default_factory=dict)
    folded: dict[bytes, list[int]] = field(default_factory=dict)  # by user: the offsets that were folded


class Oracle:
    """Replays the transactions topic record by record, as it is appended."""

    def __init__(self, rates: Rates, digests: Digests) -> None:
        self._rates, self._digests = rates, digests
        self.partitions: dict[int, Partition] = {}

    def appended(self, record: Record) -> None:
        partition = self.partitions.setdefault(record.partition, Partition())
        decoded = decode([record])
        if decoded.requests:
            expected = self._request(partition, decoded.requests[0])
        else:
            expected = Expected(Fate.DEAD_LETTER if decoded.refusals else Fate.NOTHING)
        partition.expected[record.offset] = expected

    def _request(self, partition: Partition, request: Request) -> Expected:
        offset, user = request.source.offset, request.user
        events = encode_events([request.transaction], [offset], [request.appended_ms], self._rates, self._digests)
        rows, slots = gather([partition.rows.get(user)]), np.zeros(1, np.int32)
        repeats = np.empty(1, np.int64)
        recall(rows, slots, events, repeats)
        if repeats[0] != NEW:
            return Expected(Fate.REPEAT, user, int(rows[0]["decision_offset"][repeats[0]]))
        features = np.empty((1, FEATURE_COUNT), np.float32)
        fold(rows, slots, events, repeats, features)
        row = partition.rows[user] = rows.tobytes()
        partition.folded.setdefault(user, []).append(offset)
        return Expected(Fate.DECISION, user, offset, row, features[:, :PROFILE_FEATURES].tobytes())
