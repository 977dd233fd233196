"""Claims: how a worker becomes the producer of a source partition in the eyes of the brokers, and stays it.

No transaction is ever opened. InitProducerId with a transactional id gives the partition a producer id and a new epoch; plain
idempotent batches then carry them; the first record of a new epoch, the fence, makes a partition's leader refuse lower ones.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import ConcurrentTransactions, KafkaError, ProducerFenced, for_code
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import TopicPartition

from assay.streams.protocol import NOBODY, DescribeProducers, InitProducerId, TopicMetadata

MAX_SEQUENCE = 2**31 - 1
MAX_EPOCH = 2**15 - 1  # never given out: the coordinator changes the id after 32766
PRODUCER_FENCED = 90  # newer than aiokafka's list of errors
RETRY_PAUSE_S = 0.05  # while a coordinator or leader moves or loads


class Claim(NamedTuple):
    """What the transaction coordinator gave us for one source partition."""

    producer_id: int
    epoch: int


@dataclass(slots=True)
class Identity:
    """A claim at work in one publisher: a next sequence for each topic.

    >>> identity = Identity(Claim(producer_id=9, epoch=0))
    >>> [identity.take("decisions", 2), identity.take("decisions", 5), identity.take("changelog", 1)]
    [0, 2, 0]
    >>> identity.sequences["decisions"] = MAX_SEQUENCE - 1  # two are left before it wraps to 0 (aiokafka wraps to -2**31)
    >>> [identity.take("decisions", 5), identity.take("decisions", 1)]
    [2147483646, 3]
    """

    claim: Claim
    sequences: dict[str, int] = field(default_factory=dict)

    def take(self, topic: str, count: int) -> int:
        """The sequence of the first of the next `count` records to this topic."""
        first = self.sequences.get(topic, 0)
        self.sequences[topic] = (first + count) & MAX_SEQUENCE
        return first


class OwnedBatch(BatchBuilder):
    """A record batch that bears a partition's identity instead of the producer's own.

    aiokafka asks once, as the batch first leaves the queue, and never for a retry: sequences follow the order of sending.
    """

    def __init__(self, identity: Identity, topic: str, max_bytes: int, compression: int) -> None:
        super().__init__(max_bytes, compression)
        self._identity, self._topic = identity, topic

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        claim = self._identity.claim
        first = self._identity.take(self._topic, self.record_count())
        super()._set_producer_state(claim.producer_id, claim.epoch, first)


async def claim(client: AIOKafkaClient, name: str, holder: Claim | None = None) -> Claim:
    """The next claim of this transactional id; only if `holder` still holds it, when that is given.

    Retries for as long as the coordinator is away or loading: run it under a deadline. Raises ProducerFenced, or a KafkaError
    that will not pass, such as TransactionalIdAuthorizationFailed.
    """

    async def ask() -> Any:
        coordinator = await client.coordinator_lookup(CoordinationType.TRANSACTION, name)
        request = InitProducerId(name, holder or NOBODY)
        answer = await client.send(coordinator, request, group=ConnectionGroup.COORDINATION)
        return answer.error_code, answer

    answer = await _insist(client, ask)
    return Claim(answer.producer_id, answer.producer_epoch)


async def known_producers(client: AIOKafkaClient, where: TopicPartition) -> dict[int, int]:
    """{producer id: epoch} of all that the leader of this partition remembers; takes READ on the topic.

    An id that is not ours is one that our epoch does not outrank. Run it under a deadline.
    """

    async def ask() -> Any:
        answer = await client.send(client.cluster.leader_for_partition(where), DescribeProducers(where))
        [(_, [(_, error_code, _, producers, _)], _)] = answer.topics
        return error_code, producers

    producers = await _insist(client, ask)
    return {producer_id: epoch for producer_id, epoch, *_ in producers}


async def topic_id(client: AIOKafkaClient, topic: str) -> str:
    """Kafka's id of a topic: one that is made anew has another. Run it under a deadline."""

    async def ask() -> Any:
        answer = await client.send(client.get_random_node(), TopicMetadata(topic))
        [(error_code, _, identity, *_)] = answer.topics
        return error_code, str(identity)

    return str(await _insist(client, ask))


async def _insist(client: AIOKafkaClient, ask: Callable[[], Awaitable[tuple[int, Any]]]) -> Any:
    """Ask until there is an answer, or an error that will not pass."""
    while True:
        try:
            error_code, answer = await ask()
        except KafkaError as error:
            problem = error
        else:
            if not error_code:
                return answer
            problem = ProducerFenced() if error_code == PRODUCER_FENCED else for_code(error_code)()
        if not problem.retriable and not isinstance(problem, ConcurrentTransactions):
            raise problem
        client.force_metadata_update()
        await asyncio.sleep(RETRY_PAUSE_S)
