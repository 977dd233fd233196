"""What is learnt, in memory: `tables.learned_rows.LearnedRows` with the same promises, and failures on request."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from assay.tables.changes import CHANGED_KINDS, COUNTED, Changes
from assay.tables.digests import OFFLINE
from assay.tables.keyspace import Keyspace
from assay.tables.learned_rows import Sequences
from assay.tables.transaction_index import MARKER, UNKNOWN, Decided, Place

KEYSPACE, OUTCOMES = Keyspace("test", "topic-id", 1), Keyspace("test", "outcomes-id", 1)


class RowsInMemory:
    """Attributes:
    values: what is kept of transactions, by key.
    marks: keys of those that are set.
    counts: (kind, digest, what is counted) -> sum of the changes.
    fails: steps that fail, in the order in which they will; a step does its work first if `late`.
    """

    def __init__(self) -> None:
        self.keyspace, self.outcomes, self.digests, self.connected = KEYSPACE, OUTCOMES, OFFLINE, False
        self.values: dict[bytes, bytes] = {}
        self.marks: set[bytes] = set()
        self.counts: Counter[tuple[str, int, str]] = Counter()
        self.steps: list[str] = []
        self.fails: list[tuple[str, Exception]] = []
        self.late = False
        self._applied: dict[tuple[str, int], int] = {}

    async def connect(self) -> None:
        self._step("connect")
        self.connected = True

    async def close(self) -> None:
        self.connected = False

    async def keep(self, decided: Decided, verdicts: Changes) -> Sequences:
        self._step("keep")
        for row in decided:
            key = b"{test:0}:" + MARKER + row["user"].tobytes() + row["id"].tobytes()
            self.values.setdefault(key, row["entry"].tobytes())
        return self._apply("verdicts", verdicts)

    async def count_outcomes(self, changes: Changes) -> Sequences:
        error = self._step("count")
        sequences = self._apply("outcomes", changes)
        if error is not None:
            raise error
        return sequences

    async def find(self, places: Sequence[Place]) -> dict[Place, bytes]:
        self._step("find")
        there = self.values | dict.fromkeys(self.marks, UNKNOWN)
        return {place: there[place.key] for place in places if place.key in there}

    async def mark(self, marks: Sequence[Place]) -> None:
        error = self._step("mark")
        self.marks |= {mark.key for mark in marks}
        if error is not None:
            raise error

    async def remember(self, changed: Mapping[Place, tuple[bytes, bytes]]) -> bool:
        error = self._step("remember")
        same = [self.values[place.key] == before for place, (before, _) in changed.items()]
        for (place, (_, after)), is_same in zip(changed.items(), same, strict=True):
            if is_same:
                self.values[place.key] = after
        if error is not None:
            raise error
        return all(same)

    def counted(self, name: str) -> int:
        """The sum of one count over all users: as many transactions."""
        return sum(count for (kind, _, counted), count in self.counts.items() if kind == "user" and counted == name)

    def _step(self, name: str) -> Exception | None:
        """Fail here if that is asked for; a late failure is returned, to be raised after the work."""
        self.steps.append(name)
        if not self.fails or self.fails[0][0] != name:
            return None
        _, error = self.fails.pop(0)
        self.connected = False
        if self.late:
            return error
        raise error

    def _apply(self, stream: str, changes: Changes) -> Sequences:
        for change in changes:
            if change["offset"] <= self._applied.get((stream, int(change["partition"])), -1):
                continue
            self._applied[stream, int(change["partition"])] = int(change["offset"])
            for kind in CHANGED_KINDS:
                for name in (*COUNTED, "thousandths"):
                    self.counts[kind, int(change[kind]), name] += int(change[name])
        return np.zeros((len(changes), len(CHANGED_KINDS)), np.int64)
