"""Who waits for which reply: correlation ids and futures, and what became of every reply that came. No I/O, no clock."""

import asyncio
from collections import OrderedDict
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from assay.schemas.errors import ServiceError
from assay.schemas.limits import CALLS_REMEMBERED, MAX_WAITING_CALLS

Reply = TypeVar("Reply")


class Heard(StrEnum):
    """What a reply turned out to be."""

    FIRST = "first"  # somebody waited for it
    DUPLICATE = "duplicate"  # its call has been answered already
    LATE = "late"  # its call has given up
    ORPHANED = "orphaned"  # no call of this client: another one's, or long forgotten


@dataclass
class Counts:
    """Replies by what they turned out to be, since the start."""

    first: int = 0
    duplicate: int = 0
    late: int = 0
    orphaned: int = 0

    def add(self, heard: Heard) -> None:
        setattr(self, heard, getattr(self, heard) + 1)

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


class Waiters(Generic[Reply]):
    """Futures by correlation id: 8 bytes that name this client, and 8 that count its calls.

    Args:
        client: 8 bytes that no other client has.
    """

    def __init__(self, client: bytes, *, remembered: int = CALLS_REMEMBERED, limit: int = MAX_WAITING_CALLS) -> None:
        if len(client) != 8:
            raise ValueError("a client is named by 8 bytes")
        self._client, self._remembered, self._limit = client, remembered, limit
        self._called = 0
        self._waiting: dict[bytes, asyncio.Future[Reply]] = {}
        self._ended: OrderedDict[bytes, Heard] = OrderedDict()  # what another reply to that call would be
        self.counts = Counts()

    def __len__(self) -> int:
        return len(self._waiting)

    def register(self) -> tuple[bytes, asyncio.Future[Reply]]:
        """A new call: its correlation id, and the future of its reply. Do this before you send. Raises ServiceError."""
        if len(self._waiting) >= self._limit:
            raise ServiceError(
                "too many calls wait for a decision",
                expected=f"at most {self._limit}",
                mend="take the fallback action; decisions do not come as fast as you send",
            )
        correlation = self._client + self._called.to_bytes(8, "big")
        self._called += 1
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = future
        return correlation, future

    def answer(self, correlation: bytes | None, reply: Reply) -> Heard:
        """A reply has come: wake its caller, unless it is not the first or nobody waits."""
        future = self._waiting.get(correlation) if correlation is not None else None
        if correlation is not None and future is not None and not future.done():
            future.set_result(reply)
            self._end(correlation, Heard.DUPLICATE)
            heard = Heard.FIRST
        elif future is not None:  # it gave up just now, and has not said so yet
            heard = Heard.LATE
        else:
            heard = self._ended.get(correlation or b"", Heard.ORPHANED)
        self.counts.add(heard)
        return heard

    def fail(self, correlation: bytes, error: BaseException) -> None:
        """The call can't be answered any more: raise this in its caller."""
        future = self._waiting.get(correlation)
        if future is not None and not future.done():
            future.set_exception(error)
        self.give_up(correlation)

    def fail_all(self, error: BaseException) -> None:
        """None of the calls can be answered any more."""
        for correlation in list(self._waiting):
            self.fail(correlation, error)

    def give_up(self, correlation: bytes) -> None:
        """The caller no longer waits. Nothing happens where the call was answered."""
        if correlation in self._waiting:
            self._end(correlation, Heard.LATE)

    def _end(self, correlation: bytes, another_would_be: Heard) -> None:
        del self._waiting[correlation]
        self._ended[correlation] = another_would_be
        if len(self._ended) > self._remembered:
            self._ended.popitem(last=False)
