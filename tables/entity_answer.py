"""What Redis says of the entities of one micro-batch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from assay.tables.features import ENTITIES, FEATURE_COUNT, PROFILE_FEATURES

REDIS_FEATURES = FEATURE_COUNT - PROFILE_FEATURES  # the columns of what comes from Redis


@dataclass(frozen=True, slots=True)
class EntityAnswer:
    """What comes from Redis, float32 (n, REDIS_FEATURES), and sequence numbers int64 (n, 5).

    First the windows, `ABSENT` where the transaction has no such entity, and number 0; then what was looked up beside them,
    NaN where that failed. `ages_ms` is how old what was looked up is: by source and by feature, where values have a time of
    their own, float64 (n,), NaN where there is nothing.
    `row_sequences` is how often the rows had been written that were looked up: by source, int64 (n, kinds of its family).

    Where Redis did not answer in time, available is False, windows are NaN, numbers 0, and reason is one of: deadline,
    unreachable, refused, unreadable, behind (too much is to be sent first), resting (it failed too often), other_key
    (what is there is under another key), not_a_member (the group may have given our partitions to others).
    """

    values: npt.NDArray[np.float32]
    sequences: npt.NDArray[np.int64]
    available: bool
    reason: str = ""
    ages_ms: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    row_sequences: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)

    def of(self, rows: npt.NDArray[np.bool_]) -> "EntityAnswer":
        """The same for some of the transactions: bool (n,)."""
        ages_ms = {source: ages[rows] for source, ages in self.ages_ms.items()}
        row_sequences = {source: numbers[rows] for source, numbers in self.row_sequences.items()}
        return EntityAnswer(self.values[rows], self.sequences[rows], self.available, self.reason, ages_ms, row_sequences)


def unavailable(n: int, reason: str) -> EntityAnswer:
    """The answer to n transactions that Redis did not give."""
    sequences = np.zeros((n, len(ENTITIES)), np.int64)
    return EntityAnswer(np.full((n, REDIS_FEATURES), np.nan, np.float32), sequences, available=False, reason=reason)
