"""Keys of a pattern on every server of a Redis: counted, or deleted."""

import asyncio
from collections.abc import Callable
from itertools import groupby
from typing import Any

from assay.tables.redis_link import RedisLink
from assay.tables.redis_node import RedisNode

KEYS_A_TURN = 1_000
TURN_S = 10.0  # for one command


async def sweep(link: RedisLink, pattern: str, *, delete: bool, found: Callable[[int], None]) -> int:
    """Go through all keys that match the glob pattern, and delete them where that is asked for. Returns how many there were.

    found is told after each turn. Keys have hash tags in braces. A key may be counted twice where a server grows or shrinks its
    table meanwhile. Raises one of OUTAGES.
    """
    count = 0
    for node in await link.masters():
        cursor = "0"
        while True:
            answer: Any = await _ask(node, "SCAN", cursor, "MATCH", pattern, "COUNT", str(KEYS_A_TURN))
            cursor, keys = answer[0].decode(), answer[1]
            if delete:
                for _, of_slot in groupby(sorted(keys), key=_hash_tag):
                    await _ask(node, "UNLINK", *of_slot)
            count += len(keys)
            found(count)
            if cursor == "0":
                break
    return count


def _hash_tag(key: bytes) -> bytes:
    return key[: key.index(b"}") + 1]


async def _ask(node: RedisNode, *words: str | bytes) -> object:
    async with asyncio.timeout(TURN_S):
        return await node.ask(*words)
