"""The topics that Assay needs: made where they are missing, checked where they are there."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from assay.schemas.errors import ServiceError, TopologyError
from assay.streams.kafka import client_options
from assay.streams.settings import Settings

APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
CONNECT_TIMEOUT_S = 10.0
SETTLE_ATTEMPTS = 50  # times 0.1 s: until the controller's word has reached the broker


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What a topic has to be like. `checked` are the configs that an existing one must have."""

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    checked: tuple[str, ...] = ()


def topic_specs(settings: Settings) -> list[TopicSpec]:
    """The topics of one deployment, but for the changelog, which Faust makes."""
    stamped = ("message.timestamp.type",)
    return [
        TopicSpec(settings.transactions, settings.partitions, APPEND_TIME, stamped),
        TopicSpec(settings.decisions, settings.partitions, APPEND_TIME, stamped),
        TopicSpec(settings.dead_letters, settings.partitions, APPEND_TIME, stamped),
        TopicSpec(settings.evidence, settings.partitions, APPEND_TIME),
        TopicSpec(settings.outcomes, settings.partitions, APPEND_TIME, stamped),
        TopicSpec(settings.control, 1, {"cleanup.policy": "compact"}, ("cleanup.policy",)),
    ]


async def ensure_topics(settings: Settings) -> int:
    """Make what is missing, check what is there. Returns the number of partitions of the transactions topic.

    Raises ServiceError where Kafka does not answer, TopologyError where a topic is not as it has to be.
    """
    async with _admin(settings) as admin:
        there = await describe(admin)
        partitions = there.get(settings.transactions, settings.partitions)
        like_source = {settings.decisions, settings.dead_letters, settings.evidence}
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
        return partitions


async def describe(admin: AIOKafkaAdminClient) -> dict[str, int]:
    """{topic: number of partitions} of all that this client may see."""
    return {topic["topic"]: len(topic["partitions"]) for topic in await admin.describe_topics()}


async def configs_of(admin: AIOKafkaAdminClient, topic: str) -> dict[str, str]:
    """The configuration of a topic, defaults included."""
    [answer] = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return {entry[0]: entry[1] for entry in answer.resources[0][4]}


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
    answer = await admin.create_topics(
        [NewTopic(spec.name, num_partitions=partitions, replication_factor=replicas, topic_configs=dict(spec.configs))]
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


class _admin:  # noqa: N801
    """An admin client that says in our words that Kafka is not there."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: Any = None

    async def __aenter__(self) -> AIOKafkaAdminClient:
        try:
            self._client = AIOKafkaAdminClient(**client_options(self._settings))
            await asyncio.wait_for(self._client.start(), CONNECT_TIMEOUT_S)
        except (KafkaError, TimeoutError, OSError) as error:
            await self.__aexit__()
            raise ServiceError(
                f"Kafka does not answer at {self._settings.bootstrap_servers}: {error!r}",
                expected="a broker at ASSAY_BOOTSTRAP_SERVERS",
                mend="start one (`assay services up` does, for development) or set ASSAY_BOOTSTRAP_SERVERS",
            ) from error
        return self._client

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()
