"""Whether logged features of risk follow from the logged changes: the order of both comes from the evidence."""

from collections import Counter
from hashlib import blake2b

import numpy as np
import pytest

from assay.agents.parity import Logged, Run
from assay.agents.risk_parity import FIRST, LoggedChanges, compare_risk
from assay.schemas.evidence import ChangeEvidence, Counts
from assay.schemas.source import Source
from assay.tables.changes import CHANGE, CHANGED_KINDS, COUNTED, Changes
from assay.tables.digests import OFFLINE
from assay.tables.events import EVENT
from assay.tables.features import FEATURE_COUNT, NAMES, PROFILE_FEATURES, RISK_FEATURES
from assay.tables.risk_family import RISK_COLUMNS
from assay.tables.risk_fold import RiskWindows

START_MS, COUNT = 1_767_225_600_000, 60


def payments(generator: np.random.Generator) -> np.ndarray:
    """Of few users and entities, over two weeks; each with a transaction id of its own."""
    made = np.zeros(COUNT, EVENT)
    made["offset"] = np.arange(COUNT)
    made["time_ms"] = START_MS + np.sort(generator.integers(0, 14 * 86_400_000, COUNT))
    made["appended_ms"] = made["time_ms"]
    for kind in CHANGED_KINDS:
        made[kind] = generator.integers(0 if kind in ("device", "bin") else 1, 4, COUNT)
    made["user"] = [OFFLINE.of64(f"u-{i % 3}") for i in range(COUNT)]
    identities = b"".join(blake2b(f"t-{i}".encode(), digest_size=16).digest() for i in range(COUNT))
    made["id"] = np.frombuffer(identities, "<u8").reshape(COUNT, 2)
    return made


def what_became(events: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, Changes, np.ndarray]:
    """(of which events, changes, before which event each is known): each some events after its own."""
    of = np.sort(generator.integers(0, COUNT, 40))
    changes = np.zeros(len(of), CHANGE)
    for name in ("time_ms", *CHANGED_KINDS):
        changes[name] = events[name][of]
    changes["offset"] = np.arange(len(of))
    for count in COUNTED:
        changes[count] = generator.choice([-1, 0, 1, 1], len(of))
    return of, changes, of + 1


class Course:
    """A run whose evidence says what was read and learnt, in an order of its own."""

    def __init__(self, seed: int = 3) -> None:
        generator = np.random.default_rng(seed)
        events = payments(generator)
        of, changes, known_before = what_became(events, generator)
        block = generator.random((COUNT, FEATURE_COUNT - PROFILE_FEATURES)).astype(np.float32)
        values = RiskWindows(RISK_COLUMNS, changes, known_before).read(events, np.arange(COUNT), block)
        features = np.concatenate([np.zeros((COUNT, PROFILE_FEATURES), np.float32), block], axis=1)
        features[:, FIRST : FIRST + RISK_FEATURES] = values
        self.told = LoggedChanges()
        read = self._learn(events, of, changes, known_before)
        shuffled = generator.permutation(COUNT)  # partition by partition, the order is another
        self.run = Run("transactions", events[shuffled], np.zeros(COUNT, np.int64))
        for place, i in enumerate(shuffled.tolist()):
            self.run.logged[place] = Logged(features[i], None, read[i])

    def _learn(self, events: np.ndarray, of: np.ndarray, changes: Changes, known_before: np.ndarray) -> list[list[int]]:
        """Number the changes of each row, and return what each event has read."""
        rows: Counter[tuple[str, int]] = Counter()
        read, learnt = [], 0
        for i, event in enumerate(events):
            while learnt < len(changes) and known_before[learnt] <= i:
                present = [(kind, int(changes[learnt][kind])) for kind in CHANGED_KINDS]
                rows.update(row for row in present if row[1])
                self._tell(learnt, int(of[learnt]), changes[learnt], [rows[row] if row[1] else 0 for row in present])
                learnt += 1
            read.append([rows[kind, int(event[kind])] for kind in CHANGED_KINDS])
        return read

    def _tell(self, offset: int, of: int, change: np.void, numbers: list[int]) -> None:
        counts = Counts(**{name: change[name].item() for name in (*COUNTED, "thousandths")})
        told = ChangeEvidence(
            transaction_id=f"t-{of}",
            user_id=f"u-{of % 3}",
            outcome_id=f"o-{offset}",
            source=Source("outcomes", 0, offset)._asdict(),
            time_ms=int(change["time_ms"]),
            change=counts,
            risk_sequences=numbers,
        )
        self.told.take(b"outcomes", told)


@pytest.fixture
def course() -> Course:
    return Course()


@pytest.mark.parametrize("seed", range(5))
def test_i4_risk_that_follows_from_the_logged_changes_has_no_difference(seed: int) -> None:
    course = Course(seed)
    compared = compare_risk(course.run, course.told, OFFLINE)
    assert (compared.compared, compared.differ, compared.first, compared.unordered) == (COUNT, 0, None, 0)


def test_i4_a_feature_of_risk_that_differs_is_named(course: Course) -> None:
    course.run.logged[9].features[NAMES.index("merchant_fraud_share_30d")] += 1
    compared = compare_risk(course.run, course.told, OFFLINE)
    assert (compared.differ, compared.first.feature) == (1, "merchant_fraud_share_30d")


def test_a_change_that_says_something_else_is_a_difference(course: Course) -> None:
    key, change = next(iter(course.told.told.items()))
    course.told.told[key] = change.model_copy(update={"change": change.change.model_copy(update={"disputes": 20})})
    assert compare_risk(course.run, course.told, OFFLINE).differ > 0


def test_what_was_read_after_a_change_that_is_not_told_is_left_out(course: Course) -> None:
    del course.told.told[next(iter(course.told.told))]
    compared = compare_risk(course.run, course.told, OFFLINE)
    assert (compared.differ, compared.told) == (0, COUNT)
    assert 0 < COUNT - compared.compared <= compared.unordered


def test_a_change_that_is_told_again_counts_once(course: Course) -> None:
    for (stream, _), change in list(course.told.told.items()):
        course.told.take(stream, change.model_copy(update={"risk_sequences": [99] * len(CHANGED_KINDS)}))
    compared = compare_risk(course.run, course.told, OFFLINE)
    assert (compared.differ, compared.unordered) == (0, 0)


def test_what_read_no_rows_is_not_compared(course: Course) -> None:
    course.run.logged[9] = Logged(course.run.logged[9].features, None)
    assert compare_risk(course.run, course.told, OFFLINE).compared == COUNT - 1


def test_a_run_without_evidence_has_nothing_to_compare() -> None:
    compared = compare_risk(Run("transactions"), LoggedChanges(), OFFLINE)
    assert (compared.compared, compared.differ) == (0, 0)
