"""Under which key the digests in Redis are: what is under another one is not used, and said."""

import uuid
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio
from pydantic import SecretStr
from redis.asyncio import Redis

from assay.deploy.check import State
from assay.deploy.service_checks import redis_key
from assay.schemas.errors import ServiceError
from assay.streams.settings import Settings
from assay.tables.batch_history import BatchValues
from assay.tables.batch_load import load
from assay.tables.entities import Entities
from assay.tables.entity_call import Keyspace
from assay.tables.events import EVENT
from assay.tables.key_marks import KeyedLink, KeyMarks, Part
from assay.tables.redis_node import OtherKeyError

pytestmark = pytest.mark.services
UNHURRIED_S = 10.0
NOTHING = BatchValues(np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.float32), np.zeros(0, np.int64))


class Place:
    """A prefix of one test in a Redis."""

    def __init__(self, url: str) -> None:
        self.url, self.prefix = url, uuid.uuid4().hex[:12]
        self.keyspace = Keyspace(self.prefix, "topic-id", 1)

    async def connect(
        self, key: str, writes: Part = Part.OUTCOMES, *reads: Part, traces: tuple[bytes, ...] = (), url: str = ""
    ) -> bool:
        """Connect and go. Raises OtherKeyError."""
        link = KeyedLink(url or self.url, KeyMarks(self.prefix, key, writes, reads, traces))
        try:
            await link.connect()
            return link.connected
        finally:
            assert link.connected or not link._nodes
            await link.disconnect()

    async def mark(self, part: Part, key: str) -> None:
        link = KeyedLink(self.url, KeyMarks(self.prefix, "", part))
        await link.connect()
        marks = KeyMarks(self.prefix, key, part)
        await marks.forget(link, part)
        await marks.claim(link)
        await link.disconnect()

    def entities(self, key: str) -> Entities:
        return Entities(
            self.url, prefix=self.prefix, source="topic-id", fingerprint=key, deadline=UNHURRIED_S, rest=0.0
        )  # fmt: skip

    def settings(self, key: str) -> Settings:
        return Settings.load(redis_url=SecretStr(self.url), topic_prefix=self.prefix, hash_key=SecretStr(key))


@pytest.fixture
def place(redis_url: str) -> Place:
    return Place(redis_url)


@pytest_asyncio.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


def event(offset: int) -> np.ndarray:
    events = np.zeros(1, EVENT)
    events["instrument"], events["offset"], events["time_ms"] = 7, offset, 1_767_225_600_000
    return events


async def test_who_writes_first_marks_it_and_who_has_the_same_key_is_let_in(place: Place) -> None:
    assert await place.connect("one")
    assert await place.connect("one")


async def test_another_key_is_refused_with_the_way_out(place: Place) -> None:
    await place.connect("one")
    with pytest.raises(OtherKeyError, match=r"outcomes were written under another ASSAY_HASH_KEY.*`assay rebuild outcomes`"):
        await place.connect("another")


async def test_what_was_written_before_there_were_marks_is_refused(place: Place, redis: Redis) -> None:
    await redis.hset(f"{{{place.prefix}:0}}:applied", "0", "7")
    with pytest.raises(OtherKeyError):
        await place.connect("one", traces=(f"{{{place.prefix}:0}}:applied".encode(),))


async def test_a_part_that_is_only_read_is_looked_at_and_not_marked(place: Place) -> None:
    assert await place.connect("one", Part.WINDOWS, Part.OUTCOMES)
    assert await place.connect("another", Part.OUTCOMES)
    with pytest.raises(OtherKeyError, match="outcomes were"):
        await place.connect("one", Part.WINDOWS, Part.OUTCOMES)


async def test_who_may_not_read_marks_is_let_in(place: Place, redis: Redis) -> None:
    await place.connect("one")
    name = uuid.uuid4().hex[:8]
    await redis.acl_setuser(name, enabled=True, passwords=["+secret"], keys=["*}:[0-9]:*"], commands=["+@all"])
    assert await place.connect("another", url=place.url.replace("redis://", f"redis://{name}:secret@"))
    await redis.acl_deluser(name)


async def test_windows_under_another_key_are_unavailable_rather_than_never_seen(place: Place) -> None:
    entities = place.entities("one")
    assert (await entities.observe(event(1), [0])).available
    await entities.close()
    other = place.entities("another")
    with pytest.raises(ServiceError, match="assay rebuild entities"):
        await other.start()
    answer = await other.observe(event(2), [0])
    await other.close()
    assert (answer.available, answer.reason, other.under_other_key) == (False, "other_key", True)


async def test_windows_that_were_written_before_there_were_marks_are_unavailable(place: Place) -> None:
    before = place.entities("")
    assert (await before.observe(event(1), [0])).available
    await before.close()
    now = place.entities("one")
    with pytest.raises(ServiceError, match="another ASSAY_HASH_KEY"):
        await now.start()
    await now.close()


async def test_once_they_are_under_our_key_they_are_used_without_a_restart(place: Place) -> None:
    await place.mark(Part.WINDOWS, "one")
    entities = place.entities("another")
    with pytest.raises(ServiceError):
        await entities.start()
    await place.mark(Part.WINDOWS, "another")
    await entities.observe(event(1), [0])  # which has it looked at again
    assert entities._recovery is not None
    await entities._recovery
    assert (await entities.observe(event(2), [0])).available
    assert not entities.under_other_key
    await entities.close()


async def test_batch_features_are_not_loaded_beside_those_under_another_key(place: Place) -> None:
    await place.mark(Part.BATCH, "one")
    with pytest.raises(ServiceError, match="batch features were written under another ASSAY_HASH_KEY"):
        await load(NOTHING, place.url, place.keyspace, fingerprint="another")


async def test_the_doctor_says_under_which_key_it_is(place: Place) -> None:
    one, another = place.settings("one"), place.settings("another")
    place.prefix = one.entity_prefix
    assert (await redis_key(one)).found == "nothing is there yet"
    await place.mark(Part.WINDOWS, one.digests().fingerprint)
    assert (await redis_key(one)).state is State.OK
    refused = await redis_key(another)
    assert (refused.state, "assay rebuild entities" in refused.mend) == (State.FAIL, True)
