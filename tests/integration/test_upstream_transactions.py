"""Upstream systems that use Kafka transactions: their ends take offsets and are no records, what they abort is no payment."""

import asyncio

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from .topics import Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]
COMMITTED = 12


class Aborted(Exception):
    """What makes an upstream transaction fail."""


async def in_transactions(topics: Topics, environment: dict[str, str]) -> None:
    """Payments one transaction each, every third of which is aborted after it was sent."""
    producer = AIOKafkaProducer(
        bootstrap_servers=environment["ASSAY_BOOTSTRAP_SERVERS"], transactional_id=topics.name("upstream")
    )
    await producer.start()
    try:
        for number in range(COMMITTED):
            for aborted in (False, True) if number % 3 == 0 else (False,):
                body = transaction(f"{'aborted' if aborted else 'kept'}-{number}", "u-1")
                try:
                    async with producer.transaction():
                        await (await producer.send(topics.name("transactions"), orjson.dumps(body), key=b"u-1"))
                        if aborted:
                            raise Aborted
                except Aborted:
                    pass
            await asyncio.sleep(0.03)  # so that fetches begin at the ends of transactions
    finally:
        await producer.stop()


async def test_i1_each_committed_payment_has_one_decision_and_aborted_ones_have_none(
    topics: Topics, worker: WorkerProcess, environment: dict[str, str]
) -> None:
    await in_transactions(topics, environment)
    await topics.until(lambda: len(topics.seen["decisions"]) >= COMMITTED, "decisions of all committed payments")
    decided = [orjson.loads(record.value)["transaction_id"] for record in topics.seen["decisions"]]
    assert decided == [f"t-kept-{number}" for number in range(COMMITTED)]
    assert topics.seen["dead-letters"] == []


async def test_the_ends_of_transactions_are_no_lag(topics: Topics, worker: WorkerProcess) -> None:
    async with asyncio.timeout(10):
        while sum(value for (name, _), value in worker.metrics().items() if name == "assay_lag_records"):
            await asyncio.sleep(0.2)
    assert worker.get("/livez")[0] == 200
