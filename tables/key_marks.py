"""Under which key the digests in Redis are: rows under another one must not be taken for rows that were never written.

Each part of what is kept there has a mark, set by who first writes that part:

    key     {prefix:0}:key: and the name of the part
    value   fingerprint of the key (`tables.digests`)
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from redis.exceptions import NoPermissionError

from assay.schemas.limits import REDIS_CATCH_UP_S
from assay.tables.redis_link import Command, RedisLink
from assay.tables.redis_node import Library, OtherKeyError

log = logging.getLogger("assay.entities")


class Part(StrEnum):
    """What has a mark of its own, since it is made anew on its own."""

    WINDOWS = "windows"
    OUTCOMES = "outcomes"
    BATCH = "batch features"


WAYS_OUT = {
    Part.WINDOWS: "`assay rebuild entities`",
    Part.OUTCOMES: "`assay rebuild outcomes`",
    Part.BATCH: "`assay rebuild entities` before batch features are loaded again",
}


@dataclass(frozen=True, slots=True)
class KeyMarks:
    """The marks under a prefix, seen by somebody with a key; with an empty fingerprint all keys are taken for ours.

    writes: the part that is written. reads: those that are only read. traces: keys of Redis that are there once that part was
    written, so that what was written before there were marks is told, too.
    """

    prefix: str
    fingerprint: str
    writes: Part
    reads: tuple[Part, ...] = ()
    traces: tuple[bytes, ...] = ()

    async def claim(self, link: RedisLink) -> None:
        """Mark what we write, where nobody has. Raises OtherKeyError where something is under another key than ours."""
        found = await self.look(link)
        if found[self.writes] is None:
            if self.traces and await self._ask(link, b"EXISTS", *self.traces):
                found[self.writes] = "none"
            else:  # GET: what somebody else has set meanwhile
                words = b"SET", self._name(self.writes), self.fingerprint.encode(), b"NX", b"GET"
                found[self.writes] = _text(await self._ask(link, *words))
        if (refusal := self.refusal(found)) is not None:
            raise refusal

    def refusal(self, found: Mapping[Part, str | None]) -> OtherKeyError | None:
        """What is to be said about parts with these marks; None where all are ours, or not written yet."""
        foreign = [part for part, mark in found.items() if mark not in (None, self.fingerprint)]
        if not foreign:
            return None
        return OtherKeyError(
            f"{' and '.join(foreign)} were written under another ASSAY_HASH_KEY (ours has the fingerprint {self.fingerprint})",
            f"put that key back; or stop the workers and run {', '.join(WAYS_OUT[part] for part in foreign)}",
        )

    async def look(self, link: RedisLink) -> dict[Part, str | None]:
        """The fingerprints that parts are marked with; None where they are not."""
        parts = (self.writes, *self.reads)
        reply = await self._ask(link, b"MGET", *(self._name(part) for part in parts))
        assert isinstance(reply, list)
        return {part: _text(mark) for part, mark in zip(parts, reply, strict=True)}

    async def forget(self, link: RedisLink, part: Part) -> None:
        """Of a part that was emptied: whoever writes it next marks it."""
        await self._ask(link, b"DEL", self._name(part))

    def _name(self, part: Part) -> bytes:
        return f"{{{self.prefix}:0}}:key:{part.name.lower()}".encode()

    async def _ask(self, link: RedisLink, *words: bytes) -> object:
        parts = [b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)]
        command = Command(f"{{{self.prefix}:0}}".encode(), parts)
        [reply] = await link.exchange([command], asyncio.get_running_loop().time() + REDIS_CATCH_UP_S)
        return reply


class KeyedLink(RedisLink):
    """A link that connects only where everything is under our key."""

    def __init__(self, url: str, marks: KeyMarks, libraries: Sequence[Library] = (), tags: Sequence[bytes] = ()) -> None:
        super().__init__(url, libraries, tags)
        self._marks = marks
        self._told = False

    async def connect(self) -> None:
        """Raises OtherKeyError or another of OUTAGES."""
        await super().connect()
        if not self._marks.fingerprint:
            return
        try:
            await self._marks.claim(self)
        except NoPermissionError as error:  # to read the marks; we may be allowed all the rest
            log.warning("not known whether Redis is under our ASSAY_HASH_KEY: %s", error)
            await super().connect()
        except OtherKeyError as error:
            await self.disconnect()
            if not self._told:
                log.error("Redis at %s is not used: %s", self.address, error)
            self._told = True
            raise
        self._told = False


def _text(reply: object) -> str | None:
    return reply.decode() if isinstance(reply, bytes) else None
