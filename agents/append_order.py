"""Events of several partitions in the order in which their records were appended, for entities that all partitions share."""

import sys
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from assay.tables.events import EVENT, Events

Partitions = npt.NDArray[np.int64]


class AppendOrder:
    """Merges partitions that are read some records at a time. Pure: no I/O.

    Within a partition the order is always that of the offsets: a record that was stamped earlier than the one before it, since
    brokers' clocks differ, counts as appended with that one. What was appended in the same millisecond goes by partition.
    """

    def __init__(self, partitions: Iterable[int]) -> None:
        self._reached = dict.fromkeys(partitions, -1)  # epoch, ms: whatever is still to come was appended then or later
        self._events = np.empty(0, EVENT)
        self._partitions, self._times = np.empty(0, np.int64), np.empty(0, np.int64)

    @property
    def behind(self) -> int:
        """The partition that the others wait for: the next to be read. Raises ValueError where all have ended."""
        return min(self._reached, key=self._reached.__getitem__)

    @property
    def ended(self) -> bool:
        """Whether every partition has been read to its end."""
        return not self._reached

    def give(self, partition: int, events: Events, reached_ms: int) -> None:
        """The next events (n,) of a partition, and the latest append time among the records that they were among."""
        before = self._reached[partition]
        times = np.maximum.accumulate(np.maximum(events["appended_ms"], before))
        self._reached[partition] = max(before, reached_ms)
        self._events = np.concatenate([self._events, events])
        self._partitions = np.concatenate([self._partitions, np.full(len(events), partition, np.int64)])
        self._times = np.concatenate([self._times, times])

    def end(self, partition: int) -> None:
        """Nothing more will come of it."""
        del self._reached[partition]

    def take(self) -> tuple[Events, Partitions]:
        """The events (n,) that nothing can come before any more, in order, and their partitions."""
        horizon = min(self._reached.values(), default=sys.maxsize)
        order = np.lexsort((self._events["offset"], self._partitions, self._times))
        order = order[self._times[order] < horizon]
        taken = self._events[order], self._partitions[order]
        rest = np.ones(len(self._events), bool)
        rest[order] = False
        self._events, self._partitions, self._times = self._events[rest], self._partitions[rest], self._times[rest]
        return taken
