"""The group coordinator: members, generations, session timeouts, eager rebalances, committed offsets.

As in Kafka, a commit counts while the member is of the current generation, also while the next one is being prepared; a join
waits until all members have joined, or were given up.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from aiokafka.errors import CommitFailedError, UnknownMemberIdError

from .loop import VirtualLoop

Assign = Callable[[int, list[str]], Mapping[str, list[int]]]  # (generation, members) -> partitions of each


class Assignment(NamedTuple):
    """What a member is given in one generation."""

    generation: int
    partitions: list[int]


@dataclass(slots=True)
class _Member:
    seen: float
    joining: "asyncio.Future[Assignment] | None" = None


class Coordinator:
    """The state of one consumer group.

    Args:
        session, rebalance: seconds until a silent member is given up, and one that does not join again.
        committed: called with (partition, offset) of each commit that is taken.
    """

    def __init__(
        self, loop: VirtualLoop, assign: Assign, session: float, rebalance: float, committed: Callable[[int, int], None]
    ) -> None:
        self._loop, self._assign, self._session, self._rebalance = loop, assign, session, rebalance
        self._noted = committed
        self._members: dict[str, _Member] = {}
        self._preparing = 0  # the number of the rebalance that is being prepared; 0: none
        self.generation = 0
        self.committed: dict[int, int] = {}
        self.owners: dict[int, str] = {}

    def join(self, name: str) -> "asyncio.Future[Assignment]":
        """What this member is given in the next generation."""
        member = self._members.get(name)
        if member is None:
            member = self._members[name] = _Member(self._loop.time())
            self._loop.after(self._session, self._expire, name)
        member.joining = self._loop.create_future()
        joining = member.joining
        self._prepare()
        self._complete_if_all_are_there()
        return joining

    def leave(self, name: str) -> None:
        if self._members.pop(name, None) is not None:
            self._prepare()
            self._complete_if_all_are_there()

    def heartbeat(self, name: str, generation: int) -> bool:
        """Whether the member may go on as it is; else it has to join. Raises UnknownMemberIdError."""
        member = self._members.get(name)
        if member is None:
            raise UnknownMemberIdError
        member.seen = self._loop.time()
        return not self._preparing and generation == self.generation

    def commit(self, name: str, generation: int, offsets: Mapping[int, int]) -> None:
        """Raises CommitFailedError where the group has gone on."""
        member = self._members.get(name)
        if member is None or generation != self.generation:
            raise CommitFailedError("the group has gone on")
        member.seen = self._loop.time()
        for partition, offset in offsets.items():
            self.committed[partition] = offset
            self._noted(partition, offset)

    def _prepare(self) -> None:
        if not self._preparing and self._members:
            self._preparing = self.generation + 1
            self._loop.after(self._rebalance, self._give_up_waiting, self._preparing)

    def _complete_if_all_are_there(self) -> None:
        if not self._preparing or any(member.joining is None for member in self._members.values()):
            return
        self._preparing, self.generation = 0, self.generation + 1
        given = self._assign(self.generation, list(self._members)) if self._members else {}
        self.owners = {partition: name for name, partitions in given.items() for partition in partitions}
        for name, member in self._members.items():
            joining, member.joining, member.seen = member.joining, None, self._loop.time()
            assert joining is not None
            joining.set_result(Assignment(self.generation, given.get(name, [])))

    def _give_up_waiting(self, generation: int) -> None:
        if self._preparing == generation:
            self._members = {name: member for name, member in self._members.items() if member.joining is not None}
            self._complete_if_all_are_there()

    def _expire(self, name: str) -> None:
        member = self._members.get(name)
        if member is None:
            return
        silent = self._loop.time() - member.seen
        if member.joining is None and silent >= self._session:
            self.leave(name)
        else:
            self._loop.after(max(self._session - silent, 0.1) if member.joining is None else self._session, self._expire, name)
