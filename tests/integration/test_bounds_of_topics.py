"""Topics that take less than Kafka's default (I1): batches and letters are made to fit, also where it is lowered later."""

import asyncio

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from assay.schemas.limits import LEAST_TOPIC_BYTES

from .conftest import START_MS
from .logged import assert_profiles_as_replayed, made_from_each
from .topics import PARTITIONS, Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]
SMALL = {"max.message.bytes": str(LEAST_TOPIC_BYTES)}
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
TOPICS = {
    "decisions": SMALL | APPEND_TIME,
    "evidence": SMALL,
    "assay-profiles-changelog": SMALL | {"cleanup.policy": "compact"},
}


@pytest.fixture(scope="module")
def environment(environment: dict[str, str]) -> dict[str, str]:
    """Of a deployment whose topics take no more than they have to; dead letters as much as Kafka does."""

    async def make() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=environment["ASSAY_BOOTSTRAP_SERVERS"])
        await admin.start()
        prefix = environment["ASSAY_TOPIC_PREFIX"]
        await admin.create_topics([NewTopic(prefix + name, PARTITIONS, 1, topic_configs=how) for name, how in TOPICS.items()])
        await admin.close()

    asyncio.run(make())
    return environment


async def test_i1_more_than_a_topic_takes_at_once_goes_in_several_batches(topics: Topics, worker: WorkerProcess) -> None:
    bodies = [transaction(number, f"user-{number % 500}", timestamp=START_MS + number) for number in range(2_000)]
    sources = await topics.send_all(bodies, partition=0)
    await made_from_each(topics, sources, "decisions")
    await assert_profiles_as_replayed(topics, sources, bodies)
    assert worker.running


async def test_i1_a_limit_that_is_lowered_ends_the_worker_once_and_its_successor_writes_what_fits(
    topics: Topics, worker: WorkerProcess
) -> None:
    lowered = ConfigResource(ConfigResourceType.TOPIC, topics.name("dead-letters"), SMALL | APPEND_TIME)
    await topics._admin.alter_configs([lowered])
    value = b"v" * 900_000
    source = await topics.send(value, key=b"k", partition=0)
    async with asyncio.timeout(60):
        while worker.running:
            await asyncio.sleep(0.1)
    assert "max.message.bytes of the topics is read at start" in worker.log
    await asyncio.to_thread(worker.restart)
    letter = await topics.first(source, "dead-letters")
    assert len(letter.value) < LEAST_TOPIC_BYTES
    assert value.startswith(letter.value)
    await topics.settled()
    assert len(topics.made_from(source, "dead-letters")) == 1
    assert worker.running
