"""Many faults at once, each beginning whatever the others have left of the deployment."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

from .stand import Stand

LASTS_S = 60.0
LEAST_PAUSE_S, MOST_PAUSE_S = 0.3, 5.0
MOST_AT_ONCE = 3
LONGEST_S = 10.0  # of one: past the session of a worker, and what it takes the others to follow it
MOST_DELAY_S = 0.3

Spell = Callable[[Stand], Awaitable[None]]


async def storm(stand: Stand) -> None:
    """a minute of all that at once, at random"""
    ends, spells = time.monotonic() + LASTS_S, set[asyncio.Task[None]]()
    while time.monotonic() < ends:
        [spell] = stand.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        spells.add(asyncio.ensure_future(spell(stand)))
        await asyncio.sleep(stand.random.uniform(LEAST_PAUSE_S, MOST_PAUSE_S))
        spells = {spell for spell in spells if not _over(spell)}
        if len(spells) >= MOST_AT_ONCE:
            await asyncio.wait(spells, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.gather(*spells)
    await stand.fleet.ready()


def _over(spell: asyncio.Task[None]) -> bool:
    """Raises what it failed with."""
    if spell.done():
        spell.result()
    return spell.done()


async def _for_a_while(stand: Stand) -> None:
    await asyncio.sleep(stand.random.uniform(0, LONGEST_S))


async def _kill(stand: Stand) -> None:
    await stand.fleet.kill(stand.fleet.any())


async def _lose_disk(stand: Stand) -> None:
    await stand.fleet.lose_disk(stand.fleet.any())


async def _restart(stand: Stand) -> None:
    await stand.fleet.restart(stand.fleet.any())


async def _pause(stand: Stand) -> None:
    place = stand.fleet.any()
    stand.fleet.pause(place)
    await _for_a_while(stand)
    stand.fleet.wake(place)


async def _freeze(stand: Stand) -> None:
    link = stand.fleet.any().link
    link.freeze()
    await _for_a_while(stand)
    link.mend()


async def _cut(stand: Stand) -> None:
    link = stand.fleet.any().link
    link.cut()
    await _for_a_while(stand)
    link.mend()


async def _slow(stand: Stand) -> None:
    link = stand.fleet.any().link
    link.slow(stand.random.uniform(0, MOST_DELAY_S))
    await _for_a_while(stand)
    link.mend()


async def _broker(stand: Stand) -> None:
    async with stand.broker.turn:
        await stand.broker.stop(stand.random.choice((signal.SIGTERM, signal.SIGKILL)))
        await stand.broker.start()


WEIGHTS: dict[Spell, int] = {_kill: 4, _pause: 4, _freeze: 4, _cut: 2, _slow: 2, _restart: 2, _lose_disk: 1, _broker: 1}
