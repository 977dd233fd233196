"""What integration tests share: an echo that answers without scoring, and real workers with a small bundle."""

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import ConsumerRecord
from redis import Redis

from assay.deploy.redis_cluster import LocalCluster, local_cluster
from assay.deploy.services import Running
from assay.schemas.decision import Action, Tier, encode_decision, encode_digests
from assay.schemas.source import Source
from assay.streams.settings import Settings

from .own_redis import OwnRedis
from .small_bundle import START_MS as START_MS
from .topics import PARTITIONS, Topics
from .worker_process import WorkerProcess

Answers = Callable[["Echo", ConsumerRecord], list[bytes]]
Run = Callable[..., subprocess.CompletedProcess[str]]


@dataclass
class Echo:
    """Its topics, what it has read, and how it answers: a list of replies to each record."""

    bootstrap: str
    transactions: str
    decisions: str
    answers: Answers
    seen: list[ConsumerRecord] = field(default_factory=list)

    async def run(self, ready: asyncio.Event) -> None:
        consumer = AIOKafkaConsumer(self.transactions, bootstrap_servers=self.bootstrap, fetch_max_wait_ms=10)
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap)
        await consumer.start()
        await producer.start()
        try:
            await consumer.seek_to_end()
            ready.set()
            async for record in consumer:
                self.seen.append(record)
                headers = dict(record.headers)
                echoed = [("correlation-id", headers.get("correlation-id", b""))]
                for number, value in enumerate(self.answers(self, record)):
                    if number == 0:
                        await producer.send(
                            self.decisions, value=value, key=record.key, partition=record.partition, headers=echoed
                        )
                    if "reply-to" in headers:
                        where = headers.get("reply-partition")
                        await producer.send(
                            headers["reply-to"].decode(),
                            value=value,
                            key=record.key,
                            partition=None if where is None else int(where),
                            headers=echoed,
                        )
        finally:
            await consumer.stop()
            await producer.stop()


def decision(record: ConsumerRecord, action: Action = Action.APPROVE) -> bytes:
    """A decision about the transaction in that record; the same for the same record."""
    transaction = orjson.loads(record.value)
    return encode_decision(
        transaction_id=transaction["transaction_id"],
        user_id=transaction["user_id"],
        fraud_score=0.25,
        action=action,
        reasons=[("amount", "the amount", 0.5)],
        rules=[],
        model=None,
        digests=encode_digests(None, None, None, None, None),
        tier=Tier.FULL,
        late_event=False,
        deadline_missed=False,
        decided_ms=record.timestamp + 5,
        appended_ms=record.timestamp,
        worker="echo",
        generation=1,
        source=Source(record.topic, record.partition, record.offset),
    )


def approves(echo: Echo, record: ConsumerRecord) -> list[bytes]:
    """One approval."""
    return [decision(record)]


@pytest.fixture
async def echo(kafka: str, topic_prefix: str) -> AsyncIterator[Echo]:
    """A running echo with topics of its own. Set `answers` to make it behave otherwise."""
    scorer = Echo(kafka, topic_prefix + "transactions", topic_prefix + "decisions", approves)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    stamped = {"message.timestamp.type": "LogAppendTime"}
    await admin.create_topics(
        [NewTopic(name, PARTITIONS, 1, topic_configs=stamped) for name in (scorer.transactions, scorer.decisions)]
    )
    await admin.close()
    ready = asyncio.Event()
    task = asyncio.create_task(scorer.run(ready))
    await asyncio.wait([task, asyncio.ensure_future(ready.wait())], return_when=asyncio.FIRST_COMPLETED)
    yield scorer
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.fixture(scope="module")
def environment(services: Running, bundle_path: Path) -> dict[str, str]:
    """Settings of one deployment with topics, keys and a group of its own."""
    return {
        "ASSAY_BOOTSTRAP_SERVERS": services.bootstrap_servers,
        "ASSAY_REDIS_URL": services.redis_url,
        "ASSAY_REDIS_TIMEOUT_S": "5",  # tests are not about how quick a busy machine is
        "ASSAY_COMMIT_INTERVAL_S": "0.2",
        "ASSAY_OUTCOME_PATIENCE_S": "5",  # some wait for what never comes
        "ASSAY_TOPIC_PREFIX": f"t{uuid.uuid4().hex[:12]}-",
        "ASSAY_PARTITIONS": str(PARTITIONS),
        "ASSAY_BUNDLE": str(bundle_path),
        "ASSAY_HTTP_HOST": "127.0.0.1",
        "ASSAY_LOG_FORMAT": "json",
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture(scope="module")
def worker(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """A worker that scores, for all tests of a module."""
    process = WorkerProcess("worker", tmp_path_factory.mktemp("worker"), environment)
    process.start()
    process.wait_until_ready()
    yield process
    process.stop()


@pytest.fixture
def assay(environment: dict[str, str]) -> Run:
    """The command, as operators run it; settings besides those of the deployment by name."""

    def call(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "assay.deploy.cli", *arguments],
            env=os.environ | environment | settings, capture_output=True, text=True, timeout=90,
        )  # fmt: skip

    return call


@pytest.fixture(scope="module")
def pair(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[WorkerProcess]]:
    """Two workers of one group."""
    folder = tmp_path_factory.mktemp("pair")
    workers = [WorkerProcess(name, folder, environment) for name in ("one", "other")]
    for process in workers:
        process.start()
    for process in workers:
        process.wait_until_ready()
    yield workers
    for process in workers:
        process.stop()


@pytest.fixture(scope="module")
def settings(environment: dict[str, str]) -> Settings:
    """Those of the deployment."""
    return Settings.load(
        bootstrap_servers=environment["ASSAY_BOOTSTRAP_SERVERS"],
        redis_url=environment["ASSAY_REDIS_URL"],
        topic_prefix=environment["ASSAY_TOPIC_PREFIX"],
        partitions=PARTITIONS,
    )


@pytest.fixture(scope="module")
def redis(settings: Settings) -> Iterator[Redis]:
    with Redis.from_url(settings.redis_url.get_secret_value()) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def topics(worker: WorkerProcess, environment: dict[str, str]) -> AsyncIterator[Topics]:
    """The topics of that worker."""
    async with Topics(environment["ASSAY_BOOTSTRAP_SERVERS"], environment["ASSAY_TOPIC_PREFIX"]) as watched:
        yield watched


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[OwnRedis]:
    """A Redis that one test may stop, stall and start again."""
    server = OwnRedis(tmp_path / "redis")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A Redis Cluster of three masters whose slots and processes one test may do with as it likes."""
    with local_cluster(tmp_path / "cluster") as running:
        yield running
