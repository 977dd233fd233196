"""The entity windows without Redis, for training and replay: the same observations give the same bits."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.tables.compiled import compiled
from assay.tables.entity_columns import WINDOWS, nothing_seen, plan
from assay.tables.entity_layout import Observations, observations
from assay.tables.entity_state import State
from assay.tables.events import Events
from assay.tables.features import ENTITIES, Feature

CHUNK = 8_192  # events folded between two looks at the room that is left


@compiled
def _rehash(digests: Any, kinds: Any, used: Any, table: Any) -> None:
    mask = np.uint64(table.size - 1)
    for slot in range(used):
        place = (digests[slot] ^ np.uint64(kinds[slot])) & mask
        while table[place] != -1:
            place = (place + np.uint64(1)) & mask
        table[place] = slot


@compiled
def _enrol(observed: Any, digests: Any, kinds: Any, used: Any, table: Any, at: Any) -> Any:
    """The slot of each entity of observed (n, 5) into at (n, 5), -1 where absent; returns how many are used now."""
    mask = np.uint64(table.size - 1)
    for i in range(observed.shape[0]):
        for kind in range(observed.shape[1]):
            digest = observed[i, kind]
            at[i, kind] = -1
            if digest == 0:
                continue
            place = (digest ^ np.uint64(kind)) & mask
            while table[place] != -1 and (digests[table[place]] != digest or kinds[table[place]] != kind):
                place = (place + np.uint64(1)) & mask
            if table[place] == -1:
                table[place], digests[used], kinds[used] = used, digest, kind
                used += 1
            at[i, kind] = table[place]
    return used


class _Roll:
    """Which slot each entity has."""

    def __init__(self) -> None:
        self.used = 0
        self._digests, self._kinds = np.zeros(0, np.uint64), np.zeros(0, np.uint8)
        self._table = np.full(16, -1, np.int64)

    def slots(self, digests: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Of digests (n, 5): int64 (n, 5), -1 where absent."""
        least = self.used + digests.size
        if least > len(self._digests):
            for name in ("_digests", "_kinds"):
                larger = np.zeros(max(least, 3 * self.used // 2), getattr(self, name).dtype)
                larger[: self.used] = getattr(self, name)[: self.used]
                setattr(self, name, larger)
            self._table = np.full(1 << (2 * len(self._digests) - 1).bit_length(), -1, np.int64)
            _rehash(self._digests, self._kinds, self.used, self._table)
        at = np.empty(digests.shape, np.int64)
        self.used = int(_enrol(digests, self._digests, self._kinds, self.used, self._table, at))
        return at


class EntityWindows:
    """What Redis would have answered, had it observed the same events in the same order."""

    def __init__(self, windows: Sequence[Feature] = WINDOWS) -> None:
        self._roll, self._state, self._windows = _Roll(), State(plan=plan(windows)), len(windows)

    def observe(self, events: Events) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Observe events (n,) in order.

        Returns windows float32 (n, ENTITY_FEATURES), `ABSENT` where the event has no such entity; and the number of each
        observation among those of its entity, int64 (n, 5), from 1 on; 0 where absent.
        """
        return self.observe_seen(observations(events))

    def observe_seen(self, seen: Observations) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """The same, from what entities learn of n events."""
        n = len(seen.digests)
        values, sequences = nothing_seen(n, self._windows), np.zeros((n, len(ENTITIES)), np.int64)
        everything = np.ones(n, np.bool_)
        for start in range(0, n, CHUNK):
            part = seen.of(slice(start, start + CHUNK))
            rows = np.arange(start, start + len(part.digests))
            at = self._roll.slots(part.digests)
            self._state.make_room(self._roll.used)
            self._state.fold(at, everything[rows], part, rows, values, sequences)
        return values, sequences
