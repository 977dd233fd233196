"""What may happen to a deployment. Each fault leaves the stand as it found it, all workers scoring."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from .stand import MOST_WORKERS, SESSION_S, WORKERS, Stand
from .storm import storm

Fault = Callable[[Stand], Awaitable[None]]

PAST_SESSION_S = SESSION_S + 3.5  # and until the others have taken over
LAST_WORDS_S = 0.5
CUT_S, SLOW_S, SLOW_BY_S = 4.0, 8.0, 0.15
IMPATIENT = 0.3  # share of kills that the next one does not wait for
LEAST_PAUSE_S, MOST_PAUSE_S = 0.2, 2.5
COMPACTION_TIMEOUT_S, COMPACTION_POLL_S = 120.0, 2.0
COMPACTED_OFTEN = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",  # the least
    "segment.ms": "2000",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "3000",
}


async def kill(stand: Stand) -> None:
    """kill -9 of a random worker"""
    await stand.fleet.kill(stand.fleet.any())
    if stand.random.random() < IMPATIENT:  # the next fault meets a fleet that is still recovering
        await asyncio.sleep(stand.random.uniform(LEAST_PAUSE_S, SESSION_S))
    else:
        await stand.fleet.ready()
        await asyncio.sleep(stand.random.uniform(LEAST_PAUSE_S, MOST_PAUSE_S))


async def kill_all(stand: Stand) -> None:
    """kill -9 of all workers at once"""
    await asyncio.gather(*map(stand.fleet.kill, stand.fleet.wanted))
    await stand.fleet.ready()


async def pause_past_session(stand: Stand) -> None:
    """SIGSTOP of a worker past its session, then SIGCONT"""
    place = stand.fleet.any()
    stand.fleet.pause(place)
    await asyncio.sleep(PAST_SESSION_S)
    stand.fleet.wake(place)
    await stand.fleet.ready()


async def freeze_link(stand: Stand) -> None:
    """connection of a worker frozen past its session, then all that was on the way delivered"""
    link = stand.fleet.any().link
    link.freeze()
    await asyncio.sleep(PAST_SESSION_S)
    link.mend()
    await stand.fleet.ready()


async def last_words(stand: Stand) -> None:
    """kill -9 of a worker behind a frozen connection, what it had sent delivered past its session"""
    place = stand.fleet.any()
    place.link.freeze()
    await asyncio.sleep(LAST_WORDS_S)
    await stand.fleet.kill(place)
    await asyncio.sleep(PAST_SESSION_S)
    place.link.mend()
    await stand.fleet.ready()


async def pause_and_freeze(stand: Stand) -> None:
    """one worker paused and another one's connection frozen past their sessions, at once"""
    paused, frozen = stand.random.sample(stand.fleet.wanted, 2)
    stand.fleet.pause(paused)
    frozen.link.freeze()
    await asyncio.sleep(PAST_SESSION_S)
    stand.fleet.wake(paused)
    frozen.link.mend()
    await stand.fleet.ready()


async def cut_link(stand: Stand) -> None:
    """connections of a worker cut for some seconds"""
    link = stand.fleet.any().link
    link.cut()
    await asyncio.sleep(CUT_S)
    link.mend()
    await stand.fleet.ready()


async def cut_past_session(stand: Stand) -> None:
    """connections of a worker cut past its session"""
    link = stand.fleet.any().link
    link.cut()
    await asyncio.sleep(PAST_SESSION_S)
    link.mend()
    await stand.fleet.ready()


async def cut_all_links(stand: Stand) -> None:
    """connections of all workers cut for some seconds"""
    for link in stand.links:
        link.cut()
    await asyncio.sleep(CUT_S)
    for link in stand.links:
        link.mend()
    await stand.fleet.ready()


async def slow_links(stand: Stand) -> None:
    """all connections slowed, then one killed and resumed"""
    for link in stand.links:
        link.slow(SLOW_BY_S)
    await asyncio.sleep(SLOW_S / 2)
    await stand.fleet.kill(stand.fleet.any())
    await asyncio.sleep(SLOW_S / 2)
    for link in stand.links:
        link.mend()
    await stand.fleet.ready()


async def rolling_restart(stand: Stand) -> None:
    """SIGTERM of one worker after the other"""
    for place in stand.fleet.wanted:
        await stand.fleet.restart(place)
        await stand.fleet.ready()


async def scale(stand: Stand) -> None:
    """from 1 worker to 4 and back"""
    for count in (1, MOST_WORKERS, 1, WORKERS):
        await stand.fleet.scale(count)
        await stand.fleet.ready()
        await asyncio.sleep(LEAST_PAUSE_S)


async def restart_broker(stand: Stand) -> None:
    """the broker stopped by SIGTERM and started"""
    await stand.broker.stop()
    await stand.broker.start()
    await stand.fleet.ready()


async def kill_broker(stand: Stand) -> None:
    """kill -9 of the broker"""
    await stand.broker.stop(signal.SIGKILL)
    await stand.broker.start()
    await stand.fleet.ready()


async def lose_disk(stand: Stand) -> None:
    """kill -9 of a worker, whose profiles are gone from its disk when it starts"""
    await stand.fleet.lose_disk(stand.fleet.any())
    await stand.fleet.ready()


async def lose_two(stand: Stand) -> None:
    """kill -9 of two workers at once, one of which loses its disk"""
    one, other = stand.random.sample(stand.fleet.wanted, 2)
    await asyncio.gather(stand.fleet.kill(one), stand.fleet.lose_disk(other))
    await stand.fleet.ready()


async def compact_changelog(stand: Stand) -> None:
    """changelog compacted, then all workers killed and all disks lost"""
    await _configure(stand, stand.changelog, COMPACTED_OFTEN)
    async with asyncio.timeout(COMPACTION_TIMEOUT_S):
        while not await stand.log.changelog_holes():
            await asyncio.sleep(COMPACTION_POLL_S)
    await asyncio.gather(*map(stand.fleet.lose_disk, stand.fleet.wanted))
    await stand.fleet.ready()


async def _configure(stand: Stand, topic: str, configs: dict[str, str]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=stand.broker.bootstrap)
    await admin.start()
    try:
        answers = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])
        errors = [resource[1] for answer in answers for resource in answer.resources if resource[0]]
        assert not errors, errors
    finally:
        await admin.close()


LONG_COURSE: tuple[Fault, ...] = (
    kill_all, pause_past_session, freeze_link, last_words, pause_and_freeze, cut_link, cut_past_session, cut_all_links,
    slow_links, rolling_restart, scale, restart_broker, kill_broker, lose_disk, lose_two, compact_changelog, storm,
)  # fmt: skip
