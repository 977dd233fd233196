"""What is learnt, in Redis: the index of transactions and the rows of risk, over one connection of their own.

Everything here may be done again after any failure, in the order in which it was done: what was applied changes nothing.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from redis.exceptions import ResponseError

from assay.schemas.limits import REDIS_CATCH_UP_S
from assay.tables.changes import Changes
from assay.tables.digests import Digests
from assay.tables.keyspace import Keyspace
from assay.tables.redis_link import Command
from assay.tables.risk_call import RiskCall, read_sequences, risk_calls
from assay.tables.transaction_index import Decided, Place, find_commands, keep_commands, mark_commands, remember_commands

MARKED_S = 7 * 86_400  # Kafka forgets by then where a group was that is gone (offsets.retention.minutes, its default)
UNREADABLE = "script: an answer that can't be read"  # as an error from within a function: again each time

Sequences = npt.NDArray[np.int64]
"""By change and kind of `tables.changes.CHANGED_KINDS`, (m, 6): the number of the row's changes up to it; 0 where absent."""


class Link(Protocol):
    """`tables.redis_link.RedisLink`"""

    @property
    def connected(self) -> bool: ...
    async def connect(self) -> None: ...
    async def exchange(self, commands: Sequence[Command], until: float) -> list[object]: ...
    async def disconnect(self) -> None: ...


class LearnedRows:
    """Reads and writes of one learner, one at a time. Each raises one of `redis_link.OUTAGES`.

    decisions, outcomes: where keys lie, and identities of the topics that offsets are compared within. digests: what
    identifiers become in keys and values. expire_s: how long a transaction is kept where nothing else is said.
    """

    def __init__(self, link: Link, decisions: Keyspace, outcomes: Keyspace, digests: Digests, expire_s: int) -> None:
        self._link, self.keyspace, self.outcomes, self.digests, self._expire_s = link, decisions, outcomes, digests, expire_s

    @property
    def connected(self) -> bool:
        return self._link.connected

    async def connect(self) -> None:
        """Connect, and load the functions where Redis doesn't have them."""
        await self._link.connect()

    async def close(self) -> None:
        await self._link.disconnect()

    async def keep(self, decided: Decided, verdicts: Changes, expire_s: int | None = None) -> Sequences:
        """Keep transactions (n,) DECIDED, those kept already as they are, and apply our own verdicts of them (m,)."""
        keeps = keep_commands(decided, self.keyspace, self._expire_s if expire_s is None else expire_s)
        calls = risk_calls(verdicts, self.keyspace, "verdicts")
        replies = await self._exchange([*keeps, *calls])
        return _sequences(calls, replies[len(keeps) :], len(verdicts))

    async def count_outcomes(self, changes: Changes) -> Sequences:
        """Apply what outcomes changed: their offsets are those of the outcomes."""
        calls = risk_calls(changes, self.outcomes, "outcomes")
        return _sequences(calls, await self._exchange(calls), len(changes))

    async def find(self, places: Sequence[Place]) -> dict[Place, bytes]:
        """The values of those that are kept, and of marks that are set."""
        distinct = list(dict.fromkeys(places))
        asked = find_commands(distinct, self.keyspace)
        found: dict[Place, bytes] = {}
        for (_, here), values in zip(asked, await self._exchange([command for command, _ in asked]), strict=True):
            if not isinstance(values, list) or len(values) != len(here):
                raise ResponseError(UNREADABLE)
            found |= {distinct[i]: value for i, value in zip(here, values, strict=True) if value is not None}
        return found

    async def mark(self, marks: Sequence[Place]) -> None:
        """Set marks that outcomes did not find their transactions."""
        await self._exchange(mark_commands(marks, self.outcomes, MARKED_S))

    async def remember(self, changed: Mapping[Place, tuple[bytes, bytes]]) -> bool:
        """Put the second of two values where the first still is. False where another was quicker: then read again."""
        asked = remember_commands(changed, self.keyspace)
        taken = await self._exchange([command for command, _ in asked])
        return all(isinstance(each, list) and all(each) for each in taken)

    async def _exchange(self, commands: Sequence[Command]) -> list[object]:
        if not commands:
            return []
        return await self._link.exchange(commands, asyncio.get_running_loop().time() + REDIS_CATCH_UP_S)


def _sequences(calls: Sequence[RiskCall], replies: Sequence[object], count: int) -> Sequences:
    sequences = read_sequences(calls, replies, count)
    if sequences is None:
        raise ResponseError(UNREADABLE)
    return sequences
