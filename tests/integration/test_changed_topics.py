"""Topics and offsets that are not as the profiles know them: refused with the way out, never judged anew or skipped (I1)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete

from .deployment import ENDS_WITHIN_S, Deployment
from .topics import PARTITIONS, Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]
PAYMENTS = 40
OWN_TOPICS = ("transactions", "decisions", "dead-letters", "evidence", "assay-profiles-changelog")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(topics: Topics, worker: WorkerProcess, environment: dict[str, str]) -> AsyncIterator[Deployment]:
    for wave in "ab":  # so that the state of the profiles knows a commit
        await topics.send_all([transaction(f"{wave}-{number}", f"user-{number}") for number in range(PAYMENTS)])
        await topics.settled()
    assert await asyncio.to_thread(worker.stop) == 0
    bootstrap = environment["ASSAY_BOOTSTRAP_SERVERS"]
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    yield Deployment(bootstrap, topics, worker, admin)
    await admin.close()


async def test_i1_an_offset_that_was_set_back_is_refused(deployment: Deployment) -> None:
    committed = await deployment.committed()
    await deployment.commit(0)
    refusal = await deployment.refusal()
    await deployment.commit(committed)
    assert "set by hand, back" in refusal
    assert f"set the group's offset to {committed}" in refusal


async def test_i1_an_offset_that_was_set_forward_is_refused(deployment: Deployment) -> None:
    committed = await deployment.committed()
    await deployment.commit(committed + 1)
    refusal = await deployment.refusal()
    await deployment.commit(committed)
    assert "set by hand, past" in refusal
    assert "assay rebuild" in refusal


async def records_that_expired_before_they_were_scored(deployment: Deployment) -> None:
    await deployment.topics.send_all([transaction(f"late-{number}", f"user-{number}") for number in range(PAYMENTS)])
    await deployment.admin.delete_records({deployment.source: RecordsToDelete(await deployment.committed() + 1)})


async def partitions_that_were_added(deployment: Deployment) -> None:
    more = {deployment.topics.name(name): NewPartitions(PARTITIONS + 1) for name in OWN_TOPICS}
    await deployment.admin.create_partitions(more)


async def a_topic_that_was_made_anew(deployment: Deployment) -> None:
    name = deployment.topics.name("transactions")
    await deployment.admin.delete_topics([name])
    async with asyncio.timeout(ENDS_WITHIN_S):
        while name in await deployment.admin.list_topics():
            await asyncio.sleep(0.05)
    await deployment.admin.create_topics(
        [NewTopic(name, PARTITIONS + 1, 1, topic_configs={"message.timestamp.type": "LogAppendTime"})]
    )


# In this order: each is noticed whatever the ones before have left behind.
CHANGES: dict[Callable[[Deployment], Awaitable[None]], str] = {
    records_that_expired_before_they_were_scored: "expired before they were scored",
    partitions_that_were_added: "number of partitions",
    a_topic_that_was_made_anew: "made anew",
}


@pytest.mark.parametrize(("change", "why"), CHANGES.items(), ids=[change.__name__ for change in CHANGES])
async def test_i1_it_refuses(deployment: Deployment, change: Callable[[Deployment], Awaitable[None]], why: str) -> None:
    await change(deployment)
    refusal = await deployment.refusal()
    assert why in refusal
    assert "assay rebuild" in refusal
