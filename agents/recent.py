"""The last decisions, in memory: what most repeats are answered from."""

from collections import OrderedDict
from typing import NamedTuple

from assay.schemas import limits


class Remembered(NamedTuple):
    """A published decision: its bytes, where its transaction lay, and a digest of what was sent."""

    value: bytes
    offset: int
    payload: bytes


class RecentDecisions:
    """By source partition and full identity; the oldest go first.

    >>> recent = RecentDecisions(most=1)
    >>> recent.add(0, "user", "a", Remembered(b"{}", 7, b""))
    >>> recent.add(0, "user", "b", Remembered(b"{}", 8, b""))
    >>> recent.get(0, "user", "a"), recent.get(0, "user", "b").offset
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
