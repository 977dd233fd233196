"""The topics that Assay needs: made where they are missing, checked where they are there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from assay.schemas.errors import ServiceError, TopologyError
from assay.schemas.limits import LEAST_TOPIC_BYTES
from assay.schemas.source import SourceTopic
from assay.streams.claims import topic_id
from assay.streams.kafka import client_options
from assay.streams.reading import connect
from assay.streams.settings import Settings

APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
FIRST_APPEND_TIME = {"message.timestamp.type": "CreateTime"}  # copies have the append time of what they were made from
COMPACTED = {"cleanup.policy": "compact"}
SETTLE_ATTEMPTS = 50  # times 0.1 s: until the controller's word has reached the broker


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What a topic has to be like. `checked` are the configs that an existing one must have."""

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    checked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Topics:
    """What was found out about the topics of one deployment.

    Attributes:
        transactions: where records come from.
        max_bytes: of the topics that we publish to: `max.message.bytes`, what one batch may have.
        outcomes_id: Kafka's id of the outcomes topic: one that is made anew has another.
    """

    transactions: SourceTopic
    max_bytes: Mapping[str, int]
    outcomes_id: str


def topic_specs(settings: Settings) -> list[TopicSpec]:
    """The topics of one deployment."""
    stamped = ("message.timestamp.type",)
    kept = APPEND_TIME | {"cleanup.policy": "delete"}  # the write-ahead log: compaction would leave one decision of a user
    rekeyed = [TopicSpec(settings.transactions, settings.partitions, FIRST_APPEND_TIME, stamped)] if settings.rekey else []
    return [
        TopicSpec(settings.incoming, settings.partitions, APPEND_TIME, stamped),
        *rekeyed,
        TopicSpec(settings.decisions, settings.partitions, kept, (*stamped, "cleanup.policy")),
        TopicSpec(settings.dead_letters, settings.partitions, kept, (*stamped, "cleanup.policy")),
        TopicSpec(settings.evidence, settings.partitions, APPEND_TIME),
        TopicSpec(settings.changelog, settings.partitions, COMPACTED, ("cleanup.policy",)),
        TopicSpec(settings.outcomes, settings.partitions, APPEND_TIME, stamped),
        TopicSpec(settings.control, 1, COMPACTED, ("cleanup.policy",)),
    ]


async def ensure_topics(settings: Settings) -> Topics:
    """Make what is missing, check what is there.

    Raises ServiceError where Kafka does not answer, TopologyError where a topic is not as it has to be.
    """
    async with _admin(settings) as admin:
        there = await describe(admin)
        partitions = there.get(settings.transactions) or there.get(settings.incoming, settings.partitions)
        like_source = {settings.decisions, settings.dead_letters, settings.evidence, settings.changelog}
        if settings.rekey:
            like_source.add(settings.transactions)
        for spec in topic_specs(settings):
            if spec.name not in there:
                wanted = partitions if spec.name in like_source else spec.partitions
                await _create(admin, spec, wanted, settings.replication_factor)
            elif spec.name in like_source and there[spec.name] != partitions:
                raise TopologyError(
                    f"topic {spec.name} does not have the partitions of {settings.transactions}",
                    expected=f"{partitions} partitions",
                    got=f"{there[spec.name]}",
                    mend=f"give {spec.name} the same number, or start anew under another ASSAY_TOPIC_PREFIX",
                )
            else:
                await _check_configs(admin, spec)
        id_of = partial(topic_id, admin._client)
        source = await source_topic(id_of, settings, partitions)
        max_bytes = {topic: await _max_bytes(admin, topic) for topic in sorted(like_source)}
        return Topics(source, max_bytes, await id_of(settings.outcomes))


async def source_topic(id_of: Callable[[str], Awaitable[str]], settings: Settings, partitions: int) -> SourceTopic:
    """What the transactions topic is, with Kafka's ids of it and of what is said about it."""
    source, decisions, dead_letters = [
        await id_of(topic) for topic in (settings.transactions, settings.decisions, settings.dead_letters)
    ]
    return SourceTopic(settings.transactions, source, partitions, f"{decisions} {dead_letters}")


def durable(replicas: int) -> dict[str, str]:
    """What is acknowledged has to outlive a broker where there is more than one (invariant I3)."""
    return {"min.insync.replicas": str(min(2, replicas))}


async def describe(admin: AIOKafkaAdminClient) -> dict[str, int]:
    """{topic: number of partitions} of all that this client may see."""
    return {topic["topic"]: len(topic["partitions"]) for topic in await admin.describe_topics()}


async def configs_of(admin: AIOKafkaAdminClient, topic: str) -> dict[str, str]:
    """The configuration of a topic, defaults included."""
    [answer] = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return {entry[0]: entry[1] for entry in answer.resources[0][4]}


async def _max_bytes(admin: AIOKafkaAdminClient, topic: str) -> int:
    size = int((await configs_of(admin, topic))["max.message.bytes"])
    if size < LEAST_TOPIC_BYTES:
        raise TopologyError(
            f"topic {topic} takes too little at once: what was read could not be answered",
            expected=f"max.message.bytes of {LEAST_TOPIC_BYTES} or more",
            got=str(size),
            mend=f"kafka-configs.sh --alter --topic {topic} --add-config max.message.bytes=1048588 (Kafka's default)",
        )
    return size


async def _check_configs(admin: AIOKafkaAdminClient, spec: TopicSpec) -> None:
    if not spec.checked:
        return
    configs = await configs_of(admin, spec.name)
    for name in spec.checked:
        if configs.get(name) != spec.configs[name]:
            raise TopologyError(
                f"topic {spec.name} has the wrong {name}",
                expected=spec.configs[name],
                got=str(configs.get(name)),
                mend=f"kafka-configs.sh --alter --topic {spec.name} --add-config {name}={spec.configs[name]}",
            )


async def _create(admin: AIOKafkaAdminClient, spec: TopicSpec, partitions: int, replicas: int) -> None:
    configs = {**spec.configs, **durable(replicas)}
    answer = await admin.create_topics(
        [NewTopic(spec.name, num_partitions=partitions, replication_factor=replicas, topic_configs=configs)]
    )
    for name, code, *detail in answer.topic_errors:
        error = for_code(code)
        if code and error is not TopicAlreadyExistsError:
            raise TopologyError(
                f"topic {name} could not be made: {error.__name__} {detail[0] if detail else ''}",
                mend="make it by hand, or give this client the right to",
            )
    for _ in range(SETTLE_ATTEMPTS):
        if spec.name in await describe(admin):
            return
        await asyncio.sleep(0.1)
    raise ServiceError(f"topic {spec.name} was made and does not appear", mend="look at the brokers, then start again")


@asynccontextmanager
async def _admin(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    """An admin client; whatever Kafka refuses is said in our words."""
    options = client_options(settings)
    admin = AIOKafkaAdminClient(**options)
    try:
        await connect(admin.start(), options)
        yield admin
    except KafkaError as error:
        raise ServiceError(
            f"Kafka at {settings.bootstrap_servers} refuses to show or make topics: {error!r}",
            expected="the right to describe topics and their configs, and to create them where they are missing",
            mend="grant it, or make the topics by hand (`assay doctor` lists what is wrong with them)",
        ) from error
    finally:
        await admin.close()
