"""The invariants, held at every append, commit, write and reply, and once more when all is quiet."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from assay.schemas.decision import decided_for
from assay.schemas.decode import Request
from assay.schemas.source import BEYOND_HORIZON_HEADER, FENCE_HEADER, REPLAY_HEADER, SOURCE_HEADER, Source
from assay.streams.replies import Reply
from assay.tables.features import PROFILE_FEATURES
from assay.tables.partition_state import STATE_KEY, PartitionState

from .broker import Broker, Record
from .oracle import Expected, Fate, Oracle

TRANSACTIONS, DECISIONS, DEAD_LETTERS, CHANGELOG = "transactions", "decisions", "dead-letters", "changelog"
TOPICS = (TRANSACTIONS, DECISIONS, DEAD_LETTERS, CHANGELOG)
_UNKNOWN = Expected(Fate.NOTHING)


class Violation(Exception):
    """An invariant does not hold.

    Attributes:
        invariant: its name in the design.
    """

    def __init__(self, invariant: str, what: str) -> None:
        self.invariant = invariant
        super().__init__(f"{invariant}: {what}")


class Checks:
    """Sees everything that becomes durable or is said, in the order in which it does.

    Args:
        failed: called with the first violation.
    """

    def __init__(self, oracle: Oracle, broker: Broker, failed: Callable[[Violation], None]) -> None:
        self._oracle, self._broker, self._failed = oracle, broker, failed
        self._verdicts: dict[tuple[int, int], list[tuple[int, bytes]]] = {}  # by what was first: decisions offset, value
        self._reached: dict[int, int] = {}
        self.kept: dict[int, int] = {}  # the last committed offset that is kept beside the rows
        self._decided: dict[tuple[int, int], bytes] = {}  # by source partition and offset
        self._dead: set[tuple[int, int]] = set()
        self._rows: dict[tuple[int, bytes], list[tuple[int, int, bytes]]] = {}  # changelog offset, last source offset, row
        self._committed: dict[int, int] = {}
        self.furthest: dict[int, int] = {}  # the last source offset of a partition that has a decision
        self._seen = {
            TRANSACTIONS: self._oracle.appended,
            DECISIONS: self._decision,
            DEAD_LETTERS: self._dead_letter,
            CHANGELOG: self._row,
        }

    # -- as it happens --------------------------------------------------------------------------------------------------

    def appended(self, records: Sequence[Record]) -> None:
        """Records of one append."""
        for record in records:
            if any(name == FENCE_HEADER for name, _ in record.headers):
                self._hold("I1", record.value is None, f"a fence with a value at {where(record)}")
            else:
                self._seen[record.topic](record)

    def committed(self, partition: int, offset: int) -> None:
        """The group has taken a commit: everything before it has its verdict, and what was folded is in the changelog."""
        before = self._committed.get(partition, 0)
        self._hold("I3", offset >= before, f"partition {partition}: a commit at {offset} after one at {before}")
        for source in range(before, offset):
            expected = self._expected(partition, source)
            said = f"transactions/{partition}:{source} is committed"
            self._hold("I3", self._has_verdict(partition, source), f"{said} without a verdict")
            if expected.fate is Fate.DECISION:
                rows = self._rows.get((partition, expected.user), [])
                self._hold("I3", bool(rows) and rows[-1][1] >= source, f"{said}, and its row is not in the changelog")
        self._committed[partition] = max(before, offset)

    def stored(self, partition: int, rows: Mapping[bytes, bytes], offset: int) -> None:
        """Rows go to disk, as of this changelog offset."""
        for user, row in rows.items():
            if not user.startswith(b"\0"):
                known = [appended for at, _, appended in self._rows.get((partition, user), []) if at <= offset]
                self._hold("I3", known[-1:] == [row], f"a row of {user!r} on disk at {offset} that the changelog does not hold")

    def replied(self, replies: Sequence[Reply]) -> None:
        """Replies leave."""
        for _, (_, value, headers) in replies:
            source = Source.parse(dict(headers)[SOURCE_HEADER])
            decided = self._decided.get(source[1:])
            self._hold("I3", decided is not None or source[1:] in self._dead, f"a reply for {source} that has no verdict yet")
            self._hold("I2", decided in (None, value), f"a reply for {source} that is not what was decided")

    def judged(self, requests: Sequence[Request], features: npt.NDArray[np.float32]) -> None:
        """Transactions were judged by these features, (n, FEATURE_COUNT)."""
        for request, row in zip(requests, features, strict=True):
            expected = self._expected(request.source.partition, request.source.offset)
            same = row[:PROFILE_FEATURES].tobytes() == expected.features
            self._hold("I4", same, f"{request.source} is judged by features that differ from a replay")

    def offsets_expired(self) -> None:
        """The group has forgotten what it had committed."""
        self._committed = {}

    def _decision(self, record: Record) -> None:
        source = Source.parse(dict(record.headers)[SOURCE_HEADER])
        expected, place = self._expected(source.partition, source.offset), source[1:]
        what = f"{where(record)} decides transactions/{source.partition}:{source.offset}"
        self._hold("I1", source.partition == record.partition and record.value is not None, f"{what}, misplaced")
        self._hold("I1", place not in self._decided, f"{what} for the second time")
        self._hold("I1", place not in self._dead, f"{what}, which has a dead letter")
        self._hold("I1", expected.fate in (Fate.DECISION, Fate.REPEAT), f"{what}, which is to end as {expected.fate}")
        value = record.value or b""
        marks, known = {name for name, _ in record.headers}, self._verdicts.setdefault((record.partition, expected.first), [])
        if expected.fate is Fate.REPEAT:
            expired = not known or known[0][0] < self._broker.logs[DECISIONS, record.partition].begin
            repeated = REPLAY_HEADER in marks and any(verdict == value for _, verdict in known)
            beyond = BEYOND_HORIZON_HEADER in marks and expired
            self._hold("I2", repeated or beyond, f"{what} otherwise than {expected.first}, which it repeats")
        elif expected.fate is Fate.DECISION:
            self._hold("I2", decided_for(value)[1:] == place, f"{what} by repeating {decided_for(value)}")
        known.append((record.offset, value))
        self._decided[place] = value
        self.furthest[source.partition] = max(source.offset, self.furthest.get(source.partition, 0))

    def _dead_letter(self, record: Record) -> None:
        source = Source.parse(dict(record.headers)[SOURCE_HEADER])
        what = f"{where(record)} refuses transactions/{source.partition}:{source.offset}"
        self._hold("I1", source[1:] not in self._dead, f"{what} for the second time")
        self._hold("I1", source[1:] not in self._decided, f"{what}, which has a decision")
        self._hold("I1", self._expected(*source[1:]).fate is Fate.DEAD_LETTER, f"{what}, which is to be decided")
        self._dead.add(source[1:])

    def _row(self, record: Record) -> None:
        user, row = record.key or b"", record.value or b""
        if user == STATE_KEY:
            self._state(record.partition, PartitionState.decode(row))
            return
        last = Source.parse(dict(record.headers)[SOURCE_HEADER]).offset
        expected, what = self._expected(record.partition, last), f"{where(record)} holds a row of {user!r} as of {last}"
        self._hold("I4", (expected.user, expected.row) == (user, row), f"{what} that differs from a replay")
        for source in self._oracle.partitions[record.partition].folded.get(user, []):
            if source <= last:
                self._hold("I3", (record.partition, source) in self._decided, f"{what} before {source} is decided")
        self._rows.setdefault((record.partition, user), []).append((record.offset, last, row))

    def _state(self, partition: int, state: PartitionState) -> None:
        """What is kept beside the rows: everything before `reached` has its verdict, or is a repeat that is still open."""
        for source in range(self._reached.get(partition, 0), state.reached):
            settled = self._has_verdict(partition, source) or source in state.open
            self._hold("I3", settled, f"a state that has reached {state.reached} before {source} has its verdict")
        for source, earlier in state.open.items():
            first = self._expected(partition, source).first
            self._hold("I4", earlier.offset == first, f"a state with {source} open as repeating {earlier.offset}, not {first}")
        self._reached[partition] = state.reached
        self.kept[partition] = state.committed

    # -- when all is quiet ----------------------------------------------------------------------------------------------

    def quiet(self, stores: Mapping[int, Mapping[bytes, bytes]]) -> None:
        """Everything is committed. `stores`: {partition: the rows that its owner has on disk}."""
        for partition, replayed in self._oracle.partitions.items():
            for source, expected in replayed.expected.items():
                verdict = self._has_verdict(partition, source)
                self._hold("I1", verdict, f"transactions/{partition}:{source} has no verdict, expected {expected.fate}")
            records = self._broker.logs[CHANGELOG, partition].records
            changelog = {record.key: record.value for record in records if not (record.key or b"").startswith(b"\0")}
            self._hold("I4", changelog == replayed.rows, f"changelog/{partition} differs from a replay")
            on_disk = stores[partition] == replayed.rows
            self._hold("I4", on_disk, f"the rows of partition {partition} on disk differ from a replay")

    def _expected(self, partition: int, offset: int) -> Expected:
        replayed = self._oracle.partitions.get(partition)
        return replayed.expected.get(offset, _UNKNOWN) if replayed is not None else _UNKNOWN

    def _has_verdict(self, partition: int, offset: int) -> bool:
        fate = self._expected(partition, offset).fate
        place = (partition, offset)
        return fate is Fate.NOTHING or place in (self._dead if fate is Fate.DEAD_LETTER else self._decided)

    def _hold(self, invariant: str, holds: bool, otherwise: str) -> None:
        if not holds:
            self._failed(Violation(invariant, otherwise))


def where(record: Record) -> str:
    """Topic, partition and offset, for people."""
    return f"{record.topic}/{record.partition}:{record.offset}"
