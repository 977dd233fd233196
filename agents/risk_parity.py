"""Parity of the features of risk: whether they follow from the changes that the evidence tells, bit for bit.

The evidence of a decision says how many changes each row of risk had seen that it read, and that of a change which one it was
of each of its rows. So the order of both is known, entity by entity. A reading is compared where all those changes are told.
Where one is not, that is no difference: evidence may be lost, and no topic says which numbers there have been.
"""

from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from assay.agents.parity import Compared, Run, compare
from assay.schemas.evidence import ChangeEvidence
from assay.schemas.source import Source
from assay.tables.changes import CHANGE, CHANGED_KINDS, COUNTED, Changes
from assay.tables.digests import Digests
from assay.tables.events import Events
from assay.tables.features import PROFILE_FEATURES, RISK_FEATURES
from assay.tables.risk_family import RISK_COLUMNS, RiskFamily
from assay.tables.risk_fold import RiskWindows

FIRST = PROFILE_FEATURES + RiskFamily.columns.start  # of the features of risk
Numbers = npt.NDArray[np.int64]


@dataclass
class LoggedChanges:
    """Changes as their evidence tells them: the first time that each was told, since what is sent again gets other numbers."""

    told: dict[tuple[bytes, Source], ChangeEvidence] = field(default_factory=dict)

    def take(self, stream: bytes, change: ChangeEvidence) -> None:
        """The next piece of evidence; stream is what its header says."""
        self.told.setdefault((stream, Source(**change.source.model_dump())), change)

    def of(self, run: Run, digests: Digests) -> tuple[Changes, Numbers]:
        """Those of transactions of a run: CHANGE (m,), and which change of each of its rows it was, int64 (m, 6)."""
        identities = zip(run.events["user"], run.events["id"], strict=True)
        places = {user.tobytes() + transaction.tobytes(): place for place, (user, transaction) in enumerate(identities)}
        found = [(places.get(_identity(each, digests)), each) for each in self.told.values()]
        known = [(place, each) for place, each in found if place is not None]
        changes, numbers = np.zeros(len(known), CHANGE), np.zeros((len(known), len(CHANGED_KINDS)), np.int64)
        for row, (place, each) in enumerate(known):
            numbers[row], changes[row]["time_ms"] = each.risk_sequences, each.time_ms
            for kind in CHANGED_KINDS:
                changes[kind][row] = run.events[kind][place]
            for count in (*COUNTED, "thousandths"):
                changes[count][row] = getattr(each.change, count)
        return changes, numbers


def compare_risk(run: Run, logged: LoggedChanges, digests: Digests) -> Compared:
    """Features of risk of every transaction whose evidence says what it read; digests are those of the run's events."""
    changes, numbers = logged.of(run, digests)
    read = {position: each.risk_sequences for position, each in run.logged.items() if each.risk_sequences is not None}
    positions = np.array(sorted(read), np.int64)
    readings = np.array([read[i] for i in positions.tolist()], np.int64).reshape(len(positions), len(CHANGED_KINDS))
    features = np.array([run.logged[i].features for i in positions.tolist()], np.float32)
    features = features.reshape(len(positions), -1 if len(positions) else FIRST + RISK_FEATURES)
    values = features[:, FIRST : FIRST + RISK_FEATURES]
    replayed, comparable = values.copy(), np.ones((len(positions), len(CHANGED_KINDS)), bool)
    for kind, name in enumerate(CHANGED_KINDS):
        columns = np.flatnonzero(RISK_COLUMNS["kind"] == kind)
        if columns.size:
            rows, events = _ordered(run.events[positions], name, readings[:, kind], _complete(changes[name], numbers[:, kind]))
            known_before = _known_before(events[name], readings[rows, kind], changes[name], numbers[:, kind])
            order = np.lexsort((numbers[:, kind], known_before))
            windows = RiskWindows(RISK_COLUMNS[columns], changes[order], known_before[order])
            replayed[np.ix_(rows, columns)] = windows.read(events, np.arange(len(rows)), features[rows, PROFILE_FEATURES:])
            comparable[:, kind] = np.isin(np.arange(len(positions)), rows)
    return compare(run, positions, values, replayed, FIRST, comparable)


def _identity(change: ChangeEvidence, digests: Digests) -> bytes:
    return digests.of64(change.user_id).to_bytes(8, "little") + digests.of128(change.transaction_id)


def _complete(digests: npt.NDArray[np.uint64], numbers: Numbers) -> dict[int, int]:
    """By entity, up to which number its changes are all told, each once.

    >>> _complete(np.array([7, 7, 8, 9, 9, 0], np.uint64), np.array([2, 1, 2, 1, 1, 0]))
    {7: 2, 8: 0, 9: 0}
    """
    told: dict[int, list[int]] = {}
    for digest, number in zip(digests.tolist(), numbers.tolist(), strict=True):
        if digest:
            told.setdefault(digest, []).append(number)
    return {digest: _prefix(sorted(each)) for digest, each in told.items()}


def _prefix(numbers: list[int]) -> int:
    """
    >>> _prefix([1, 2, 4]), _prefix([1, 2, 2, 3]), _prefix([2])
    (2, 1, 0)
    """
    length = 0
    while length < len(numbers) and numbers[length] == length + 1:
        length += 1
    return length - 1 if length < len(numbers) and numbers[length] == length else length


def _ordered(events: Events, kind: str, readings: Numbers, complete: dict[int, int]) -> tuple[npt.NDArray[np.int64], Events]:
    """Rows of the events that can be replayed, entity by entity and in the order of what they read; and those events."""
    digests = events[kind]
    told = np.array([complete.get(digest, 0) for digest in digests.tolist()], np.int64)
    rows = np.flatnonzero(readings <= told)
    rows = rows[np.lexsort((readings[rows], digests[rows]))]
    return rows, events[rows]


def _known_before(
    asking: npt.NDArray[np.uint64], readings: Numbers, changed: npt.NDArray[np.uint64], numbers: Numbers
) -> Numbers:
    """Which of the ordered events each change is known before: the first that has read it, or one of another entity."""
    keys = list(zip(asking.tolist(), readings.tolist(), strict=True))
    return np.array([bisect_left(keys, key) for key in zip(changed.tolist(), numbers.tolist(), strict=True)], np.int64)
