"""Owning source partitions in the eyes of the brokers: claims, fences, and renewals before either is forgotten.

Claiming takes the partition from whoever had it, however stale the claimant is: the last one wins. So a claim is made once for
each assignment, and counts only when the group confirms the assignment afterwards (`agents.take_over`).
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import InvalidProducerEpoch, KafkaError, ProducerFenced

from assay.schemas.errors import Fenced, PublishError
from assay.streams.claims import MAX_EPOCH, Claim, claim, known_producers, topic_id
from assay.streams.kafka import client_options
from assay.streams.publisher import UNKNOWN, Placed, Publisher
from assay.streams.reading import connect
from assay.streams.settings import Settings


def owned_publishers(settings: Settings, max_bytes: Mapping[str, int]) -> "tuple[Ownership, Publisher, Publisher]":
    """The ownership of a deployment's partitions, with who publishes decisions and dead letters, and who the changelog.

    Whoever takes partitions uses these: under other transactional ids, or with other topics, a fence would outrank nobody. Two
    connections, since a changelog batch must not delay decisions. `max_bytes`: see `Publisher`.
    """
    options, deadline = client_options(settings), settings.publish_timeout_s
    log = Publisher(options, deadline=deadline, owned=(settings.decisions, settings.dead_letters), max_bytes=max_bytes)
    changelog = Publisher(options, deadline=deadline, owned=(settings.changelog,), max_bytes=max_bytes)
    return Ownership(options, settings.group_id, (log, changelog), deadline), log, changelog


class Ownership:
    """The claims of one worker, by source partition.

    Args:
        options: aiokafka's client options.
        prefix: of the transactional ids: the partition's number goes after it.
        publishers: what publishes to owned topics.
        deadline: seconds for taking partitions, and for renewing them.
    """

    def __init__(self, options: Mapping[str, Any], prefix: str, publishers: Sequence[Publisher], deadline: float) -> None:
        self._options, self._prefix, self._publishers, self._deadline = dict(options), prefix, tuple(publishers), deadline
        self._client: AIOKafkaClient | None = None
        self.claims: dict[int, Claim] = {}
        self._turn = asyncio.Lock()
        self._taking: asyncio.Future[Placed] | None = None

    async def start(self) -> None:
        """Connect. Raises ServiceError."""
        self._client = AIOKafkaClient(**self._options)
        await connect(self._client.bootstrap(), self._options)
        await self._client.set_topics({topic for publisher in self._publishers for topic in publisher.owned})

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def take(self, partitions: Iterable[int]) -> Placed:
        """Claim these partitions and fence whoever had them; all others are let go.

        Returns where our fences lie, {(topic, partition): offset}: former owners end there. Whoever gives up waiting for it
        must be able to take other partitions later, so what has begun is ended. Raises PublishError.
        """
        self._taking = asyncio.ensure_future(self._take(partitions))
        return await asyncio.shield(self._taking)

    async def _take(self, partitions: Iterable[int]) -> Placed:
        async with self._bounded("taking partitions over"), self._turn:
            wanted = sorted(partitions)
            found = await asyncio.gather(*(claim(self._running, self._name(partition)) for partition in wanted))
            self.claims = claims = dict(zip(wanted, found, strict=True))
            return await self._fence(claims)

    async def release(self) -> None:
        """Partitions are given up: another may claim them, once what was begun here has ended."""
        if self._taking is not None:
            await asyncio.wait([self._taking])
        self.claims = {}

    async def renew(self) -> None:
        """Keep claims and fences from being forgotten by quiet brokers, without taking them from a newer owner.

        Well within producer.id.expiration.ms (1 day) and transactional.id.expiration.ms (7 days; publishing does not count).
        Raises Fenced, PublishError.
        """
        held = self.claims
        try:
            async with self._bounded("renewing claims"), self._turn:
                for partition in list(held):
                    await self._renew(partition, held)
                await self._fence(held)
        except Fenced:
            if self.claims is held:  # else they were given up meanwhile
                raise

    async def topic_id(self, topic: str) -> str:
        """Kafka's id of a topic. Raises PublishError."""
        async with self._bounded(f"asking for the id of {topic}"):
            return await topic_id(self._running, topic)

    async def _renew(self, partition: int, claims: dict[int, Claim]) -> None:
        claims[partition] = await claim(self._running, self._name(partition), claims[partition])

    async def _fence(self, claims: dict[int, Claim]) -> Placed:
        """Fence, and shut out every producer id that ours does not outrank: of a claim that expired, ran out of epochs, or had
        another prefix."""
        placed = await self._fence_once(claims)
        strangers = {p: others for p, ours in claims.items() if (others := await self._strangers(p, ours))}
        if not strangers:
            return placed
        for partition, others in strangers.items():
            await self._renew(partition, claims)  # still the last to claim? Then they are former owners
            for producer_id in others:
                outranking = Claim(producer_id, MAX_EPOCH)  # which nobody is ever given
                await asyncio.gather(*(publisher.shut_out(partition, outranking) for publisher in self._publishers))
        return await self._fence_once(claims)

    async def _fence_once(self, claims: Mapping[int, Claim]) -> Placed:
        placed: Placed = {}
        for each in await asyncio.gather(*(publisher.fence(claims) for publisher in self._publishers)):
            placed |= each
        if UNKNOWN in placed.values():
            raise PublishError("a fence was taken for a duplicate, so it can't be said where it lies")
        return placed

    async def _strangers(self, partition: int, ours: Claim) -> set[int]:
        """Producer ids that the leaders of owned topics know, are not ours, and could still append."""
        topics = [topic for publisher in self._publishers for topic in publisher.owned]
        known = await asyncio.gather(*(known_producers(self._running, TopicPartition(topic, partition)) for topic in topics))
        known_ids = ((id_, epoch) for producers in known for id_, epoch in producers.items())
        return {id_ for id_, epoch in known_ids if id_ != ours.producer_id and epoch < MAX_EPOCH}

    def _name(self, partition: int) -> str:
        return f"{self._prefix}-{partition}"

    @property
    def _running(self) -> AIOKafkaClient:
        if self._client is None:
            raise PublishError("the ownership of partitions is not started")
        return self._client

    @asynccontextmanager
    async def _bounded(self, doing: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._deadline):
                yield
        except (ProducerFenced, InvalidProducerEpoch) as error:  # the second is what version 3 says for the first
            raise Fenced(f"{doing}: another worker has claimed since") from error
        except (KafkaError, TimeoutError) as error:
            raise PublishError(
                f"{doing}: {error!r}",
                mend=f"see that Kafka answers within {self._deadline} s, and that this client may WRITE to transactional ids "
                f"{self._prefix}-*, and READ and WRITE decisions, dead letters and changelog",
            ) from error
