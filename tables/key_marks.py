"""Under which key the digests in Redis are: rows under another one must not be taken for rows that were never written.

Each part of each shard has a mark, which the functions set that write it, in the same step, and which they hold to ours:

    key     {prefix:shard}:key: and the name of the part
    value   fingerprint of the key (`tables.digests`)

So a Redis that was emptied, or a shard that was lost, is marked anew with what is written there first.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redis.exceptions import ResponseError

from assay.schemas.limits import REDIS_CATCH_UP_S
from assay.tables.keyspace import Keyspace, Part
from assay.tables.redis_library import Library
from assay.tables.redis_link import Command, RedisLink, packed
from assay.tables.redis_node import OtherKeyError

WAYS_OUT = {
    Part.WINDOWS: "`assay rebuild entities`",
    Part.OUTCOMES: "`assay rebuild outcomes`",
    Part.BATCH: "`assay rebuild entities` before batch features are loaded again",
}
_REFUSED = "OTHERKEY "  # how the functions begin their refusal; the mark that they found follows

log = logging.getLogger("assay.entities")


@dataclass(frozen=True, slots=True)
class KeyMarks:
    """The marks of a keyspace, seen by somebody who writes one part and reads others.

    With an empty fingerprint all keys are taken for ours.
    """

    keyspace: Keyspace
    writes: Part
    reads: tuple[Part, ...] = ()

    async def check(self, link: RedisLink) -> None:
        """Raises OtherKeyError where something is under another key than ours, and one of OUTAGES."""
        if (refusal := self.refusal(await self.look(link))) is not None:
            raise refusal

    def refusal(self, found: Mapping[Part, set[str]]) -> OtherKeyError | None:
        """What is to be said about parts with these marks; None where all are ours, or not written yet."""
        ours = self.keyspace.fingerprint
        foreign = [part for part, marks in found.items() if marks - {ours}] if ours else []
        if not foreign:
            return None
        return OtherKeyError(
            f"{' and '.join(foreign)} were written under another ASSAY_HASH_KEY (ours has the fingerprint {ours})",
            f"put that key back; or stop the workers and run {', '.join(WAYS_OUT[part] for part in foreign)}",
        )

    async def look(self, link: RedisLink) -> dict[Part, set[str]]:
        """The fingerprints that parts are marked with, over all shards; none where nothing was written."""
        parts = (self.writes, *self.reads)
        marks = [[self.keyspace.mark(shard, part) for part in parts] for shard in range(self.keyspace.shards)]
        asked = [Command(names[0], packed(b"MGET", *names)) for names in marks]
        replies = await link.exchange(asked, asyncio.get_running_loop().time() + REDIS_CATCH_UP_S)
        found: dict[Part, set[str]] = {part: set() for part in parts}
        for reply in replies:
            assert isinstance(reply, list)
            for part, mark in zip(parts, reply, strict=True):
                found[part] |= set() if mark is None else {mark.decode()}
        return found


class KeyedLink(RedisLink):
    """A link to what is under our key alone: where something is not, `connect` and `exchange` raise OtherKeyError."""

    def __init__(self, url: str, marks: KeyMarks, libraries: Sequence[Library] = (), tags: Sequence[bytes] = ()) -> None:
        super().__init__(url, libraries, tags)
        self._marks = marks
        self._told = False

    async def connect(self) -> None:
        """Raises OtherKeyError or another of OUTAGES."""
        await super().connect()
        if not self._marks.keyspace.fingerprint:
            return
        try:
            await self._marks.check(self)
        except OtherKeyError as error:
            await self.disconnect()
            if not self._told:
                log.error("Redis at %s is not used: %s", self.address, error)
            self._told = True
            raise
        self._told = False

    async def exchange(self, commands: Sequence[Command], until: float) -> list[object]:
        """Raises OtherKeyError or another of OUTAGES, and then the connections have been given up."""
        try:
            return await super().exchange(commands, until)
        except ResponseError as error:
            if (told := str(error)).startswith(_REFUSED):
                refusal = self._marks.refusal({self._marks.writes: {told.removeprefix(_REFUSED)}})
                assert refusal is not None
                raise refusal from None
            raise
