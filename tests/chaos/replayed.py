"""What one thread makes of the input, in its order: what has to become of each record, and every row on the way.

Whether a transaction repeats an earlier one is told here in plain Python, by full identity, and not by the code under test.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
from aiokafka.structs import ConsumerRecord

from assay.schemas.decode import Request, decode
from assay.schemas.limits import DECISIONS_REMEMBERED_PER_USER
from assay.streams.settings import Settings
from assay.tables.encode import encode_events
from assay.tables.features import FEATURE_COUNT, PROFILE_FEATURES
from assay.tables.fold import fold
from assay.tables.profile import gather
from assay.tables.rates import Rates
from assay.tables.recall import NEW
from assay.tables.working_rows import UserKey

CHUNK = 500
DIGESTS = Settings.load().digests()  # those of the workers


class Kind(Enum):
    """What a source record is."""

    TRANSACTION = auto()
    REFUSED = auto()
    TOMBSTONE = auto()


@dataclass(frozen=True, slots=True)
class Expected:
    """What has to become of one source record.

    Attributes:
        first: for a transaction: the source offset that its decision was made for, its own unless it repeats an earlier one.
        features: digest of the profile features that it is judged on; None where it is not judged.
        asks: whether it names a reply topic.
    """

    kind: Kind
    appended_ms: int
    identity: tuple[str, str] | None = None
    first: int = -1
    features: bytes | None = None
    asks: bool = False


class Replay:
    """Reads each partition's records in their order; the size of the pieces changes nothing.

    Attributes:
        expected: source partition -> source offset -> what has to become of that record.
        rows: the newest row of each user.
        folded: (user, source offset of the last fold) -> digest of the row as it was then.
    """

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self.expected: dict[int, dict[int, Expected]] = defaultdict(dict)
        self.rows: dict[UserKey, bytes] = {}
        self.folded: dict[tuple[UserKey, int], bytes] = {}
        self._last: dict[UserKey, deque[tuple[str, int]]] = {}  # transaction id and source offset of those judged

    def read(self, records: Sequence[ConsumerRecord]) -> None:
        """The next records of one partition of the transactions topic."""
        for start in range(0, len(records), CHUNK):
            self._read(records[start : start + CHUNK])

    def _read(self, records: Sequence[ConsumerRecord]) -> None:
        requests = {request.source.offset: request for request in decode(records).requests}
        fresh: list[Request] = []
        for record in records:
            request, expected = requests.get(record.offset), self.expected[record.partition]
            if request is None:
                kind = Kind.TOMBSTONE if record.value is None else Kind.REFUSED
                expected[record.offset] = Expected(kind, record.timestamp)
            else:
                first = self._first(request)
                expected[record.offset] = _transaction(request, first)
                if first == record.offset:
                    fresh.append(request)
        for requests_of_different_users in _rounds(fresh):
            self._fold(requests_of_different_users)

    def _first(self, request: Request) -> int:
        """Which source this transaction's decision was made for: among the last ones of its user, else its own."""
        last = self._last.setdefault(_user(request), deque(maxlen=DECISIONS_REMEMBERED_PER_USER))
        name = request.transaction.transaction_id
        for earlier, offset in last:
            if earlier == name:
                return offset
        last.append((name, request.source.offset))
        return request.source.offset

    def _fold(self, requests: Sequence[Request]) -> None:
        count, users = len(requests), [_user(request) for request in requests]
        events = encode_events(
            [request.transaction for request in requests],
            [request.source.offset for request in requests],
            [request.appended_ms for request in requests],
            self._rates,
            DIGESTS,
        )
        rows = gather([self.rows.get(user) for user in users])
        features = np.full((count, FEATURE_COUNT), np.nan, np.float32)
        fold(rows, np.arange(count, dtype=np.int32), events, np.full(count, NEW, np.int64), features)
        for i, (request, user) in enumerate(zip(requests, users, strict=True)):
            row, offset = rows[i].tobytes(), request.source.offset
            self.rows[user], self.folded[user, offset] = row, digest(row)
            self.expected[user.partition][offset] = _transaction(request, offset, features[i, :PROFILE_FEATURES])


def digest(value: bytes) -> bytes:
    """Sixteen bytes that stand for many."""
    return blake2b(value, digest_size=16).digest()


def features_digest(features: npt.NDArray[np.float32]) -> bytes:
    """Of float32 (n,); one NaN is like another."""
    return digest(np.where(np.isnan(features), np.float32(np.nan), features).tobytes())


def _transaction(request: Request, first: int, features: npt.NDArray[np.float32] | None = None) -> Expected:
    transaction = request.transaction
    return Expected(
        Kind.TRANSACTION,
        request.appended_ms,
        (transaction.user_id, transaction.transaction_id),
        first,
        None if features is None else features_digest(features),
        request.address is not None,
    )


def _user(request: Request) -> UserKey:
    return UserKey(request.source.partition, request.user)


def _rounds(requests: Sequence[Request]) -> Iterator[list[Request]]:
    """The same requests in parts in which no user comes twice, each user's in their order."""
    rounds: list[list[Request]] = []
    seen: dict[UserKey, int] = defaultdict(int)
    for request in requests:
        number = seen[_user(request)]
        seen[_user(request)] += 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(request)
    yield from rounds
