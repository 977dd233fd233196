"""The last decisions, in memory: what most repeats are answered from."""

from collections import OrderedDict
from typing import NamedTuple

from assay.schemas import limits
from assay.schemas.source import Source


class Remembered(NamedTuple):
    """A published decision: its bytes, its source, and a hash of what was sent (this process's)."""

    value: bytes
    source: Source
    payload: int


class RecentDecisions:
    """By source partition and full identity; the oldest go first.

    >>> recent = RecentDecisions(most=1)
    >>> recent.add(0, "user", "a", Remembered(b"{}", Source("t", 0, 7), 0))
    >>> recent.add(0, "user", "b", Remembered(b"{}", Source("t", 0, 8), 0))
    >>> recent.get(0, "user", "a"), recent.get(0, "user", "b").source.offset
    (None, 8)
    """

    def __init__(self, most: int = limits.RECENT_DECISIONS) -> None:
        self._most = most
        self._decisions: OrderedDict[tuple[int, str, str], Remembered] = OrderedDict()

    def add(self, partition: int, user_id: str, transaction_id: str, decision: Remembered) -> None:
        self._decisions[partition, user_id, transaction_id] = decision
        if len(self._decisions) > self._most:
            self._decisions.popitem(last=False)

    def get(self, partition: int, user_id: str, transaction_id: str) -> Remembered | None:
        return self._decisions.get((partition, user_id, transaction_id))

    def clear(self) -> None:
        """Forget everything: partitions changed hands, and another worker may have answered since."""
        self._decisions.clear()
