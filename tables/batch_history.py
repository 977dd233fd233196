"""Batch features offline: what a row would have held at any time, for training and replay.

Of each value the one with the greatest as-of time not after the transaction's event time counts: what serving reads where
values are loaded as soon as they hold. Where that takes longer, `known_after_ms` says how long.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from assay.tables.batch_rows import BATCH_LIST, BatchRows, name_digest, pack_row, pack_value
from assay.tables.compiled import compiled
from assay.tables.events import Events

LINES_AT_ONCE = 8_192  # the size changes nothing but the memory


@dataclass(frozen=True, slots=True)
class BatchValues:
    """m values from a file, in its order, as columns of m.

    Attributes:
        feature: int64, index into BATCH_LIST.
        digest: uint64, of the entity.
        value: float32, finite.
        as_of_ms: int64, epoch.
    """

    feature: npt.NDArray[np.int64]
    digest: npt.NDArray[np.uint64]
    value: npt.NDArray[np.float32]
    as_of_ms: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.feature)


class State(NamedTuple):
    """The values of one entity from one as-of time on: {index of a feature: packed value}."""

    kind: str
    digest: int
    as_of_ms: int
    values: dict[int, bytes]


def states(values: BatchValues) -> Iterator[State]:
    """Every state of every entity, by kind, digest and time. Of one feature and time the last in the file counts."""
    kinds = np.array([feature.entity for feature in BATCH_LIST])[values.feature] if len(values) else np.zeros(0, str)
    order = np.lexsort((np.arange(len(values)), values.as_of_ms, values.digest, kinds))
    names = [name_digest(feature.name) for feature in BATCH_LIST]
    current: State | None = None
    columns = (kinds, values.digest, values.as_of_ms, values.feature, values.value)
    for kind, digest, as_of_ms, feature, value in _lines(columns, order):
        if current is None or (kind, digest) != current[:2]:
            if current is not None:
                yield current
            current = State(kind, digest, as_of_ms, {})
        elif as_of_ms != current.as_of_ms:
            yield current
            current = State(kind, digest, as_of_ms, dict(current.values))
        current.values[feature] = pack_value(names[feature], value, as_of_ms)
    if current is not None:
        yield current


def _lines(columns: Sequence[npt.NDArray[Any]], order: npt.NDArray[np.intp]) -> Iterator[tuple[Any, ...]]:
    """The lines of columns in an order, as Python's own values, made some at a time."""
    for start in range(0, len(order), LINES_AT_ONCE):
        some = order[start : start + LINES_AT_ONCE]
        yield from zip(*(column[some].tolist() for column in columns), strict=True)


class BatchHistory:
    """Reads batch features as of the time of each event, by the reader that serving has."""

    def __init__(self, values: BatchValues | None = None, *, known_after_ms: int = 0) -> None:
        self._family, self._known_after_ms = BatchRows(), known_after_ms
        self._rows: list[bytes | None] = []
        self._of_kind: dict[str, tuple[int, npt.NDArray[np.uint64], npt.NDArray[np.int64]]] = {}
        every = [] if values is None else list(states(values))
        for kind in self._family.kinds:
            ours = [state for state in every if state.kind == kind]
            digests = np.array([state.digest for state in ours], np.uint64)
            self._of_kind[kind] = len(self._rows), digests, np.array([state.as_of_ms for state in ours], np.int64)
            self._rows += [pack_row(state.values.values()) for state in ours]
        self._rows.append(None)

    def fill(self, events: Events, block: npt.NDArray[np.float32]) -> None:
        """Write the columns of batch features for events (n,) into block, float32 (n, what comes from Redis)."""
        times_ms = events["time_ms"] - self._known_after_ms
        index = np.empty((len(events), len(self._family.kinds)), np.int64)
        for column, kind in enumerate(self._family.kinds):
            start, digests, as_of_ms = self._of_kind[kind]
            found = _latest(digests, as_of_ms, events[kind].astype(np.uint64), times_ms)
            index[:, column] = np.where(found < 0, len(self._rows) - 1, start + found)
            index[events[kind] == 0, column] = -1
        used, places = np.unique(index, return_inverse=True)
        rows = [None if at < 0 else self._rows[at] for at in used.tolist()]
        compact = np.where(index < 0, -1, places.reshape(index.shape)).astype(np.int32)
        self._family.read(rows, compact, events, block, block[:, self._family.columns])


@compiled
def _latest(digests: Any, as_of_ms: Any, wanted: Any, times_ms: Any) -> Any:
    """Of states sorted by (digest, as-of time), the last of each wanted digest that is not after its time; -1: none."""
    found = np.full(wanted.size, -1, np.int64)
    for i in range(wanted.size):
        low, high = 0, digests.size
        while low < high:
            middle = (low + high) // 2
            if digests[middle] < wanted[i] or (digests[middle] == wanted[i] and as_of_ms[middle] <= times_ms[i]):
                low = middle + 1
            else:
                high = middle
        if low > 0 and digests[low - 1] == wanted[i]:
            found[i] = low - 1
    return found
