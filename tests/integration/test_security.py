"""Who may do what on a real Kafka that checks it: each way to log in, and lists that allow what is needed and nothing else."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import orjson
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic

from assay.deploy.acls import Acl, Role, acls
from assay.streams.client import DecisionClient
from assay.streams.kafka import client_options
from assay.streams.settings import Settings
from assay.streams.topics import ensure_topics

from .secured_kafka import SecuredKafka, allow, secured_kafka
from .security_matrix import PEOPLE, WAYS_IN, tried
from .topics import transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
PREFIX, REPLY, PARTITIONS = "secured-", "shop.reply", 2
NOW = time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured"), PEOPLE) as running:
        yield running


def settings(broker: SecuredKafka, listener: str, who: str) -> Settings:
    values = broker.environment(listener, who)
    return Settings.load(
        topic_prefix=PREFIX,
        partitions=PARTITIONS,
        **{name.removeprefix("ASSAY_").lower(): value for name, value in values.items()},
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(
    broker: SecuredKafka, redis_url: str, bundle_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[WorkerProcess]:
    """One that logs in by SCRAM, on topics that the operator made, with the rights of the list and no others."""
    admin = await broker.admin()
    for role in Role:
        await allow(admin, role, acls(settings(broker, "SCRAM", role), role, [REPLY]))
    await admin.create_topics([NewTopic(REPLY, PARTITIONS, 1)])
    await admin.close()
    await ensure_topics(settings(broker, "MTLS", Role.OPERATOR))
    environment = broker.environment("SCRAM", Role.WORKER) | {
        "ASSAY_TOPIC_PREFIX": PREFIX,
        "ASSAY_PARTITIONS": str(PARTITIONS),
        "ASSAY_REDIS_URL": redis_url,
        "ASSAY_REDIS_TIMEOUT_S": "5",
        "ASSAY_BUNDLE": str(bundle_path),
        "ASSAY_HTTP_HOST": "127.0.0.1",
        "ASSAY_LOG_FORMAT": "json",
    }
    process = WorkerProcess("secured", tmp_path_factory.mktemp("worker"), environment)
    process.start()
    await asyncio.to_thread(process.wait_until_ready)
    yield process
    process.stop()


async def answered(broker: SecuredKafka, listener: str) -> str:
    """The id of a transaction that a checkout has asked about and got its decision on."""
    shop = settings(broker, listener, Role.CHECKOUT)
    async with DecisionClient(
        shop.bootstrap_servers,
        transactions_topic=shop.transactions,
        reply_topic=REPLY,
        create_reply_topic=False,
        options=client_options(shop),
    ) as client:
        return (await client.decide(transaction(listener, "user-1", timestamp=NOW), timeout=20)).transaction_id


@pytest.mark.parametrize("listener", WAYS_IN)
async def test_a_checkout_gets_its_answer_by_each_way_to_log_in(
    broker: SecuredKafka, worker: WorkerProcess, listener: str
) -> None:
    assert await answered(broker, listener) == f"t-{listener}"


async def test_i6_a_reply_topic_that_the_worker_may_not_write_costs_that_reply_alone(
    broker: SecuredKafka, worker: WorkerProcess
) -> None:
    admin = await broker.admin()
    await admin.create_topics([NewTopic("forbidden.reply", 1, 1)])
    await admin.close()
    shop = settings(broker, "SCRAM", Role.CHECKOUT)
    producer = AIOKafkaProducer(**client_options(shop))
    await producer.start()
    asking = [("reply-to", b"forbidden.reply"), ("correlation-id", b"c-1")]
    body = orjson.dumps(transaction("forbidden", "user-1", timestamp=NOW))
    await producer.send_and_wait(shop.transactions, body, key=b"user-1", headers=asking)
    await producer.stop()
    async with asyncio.timeout(60):
        while not worker.metric("assay_replies_total", result="no_topic"):
            await asyncio.sleep(0.1)
    assert await answered(broker, "SCRAM") == "t-SCRAM"


async def test_the_lists_allow_what_is_used_and_all_that_they_allow_is_used(
    broker: SecuredKafka, worker: WorkerProcess
) -> None:
    outcome = {
        "outcome_id": "o-1", "user_id": "user-1", "transaction_id": "t-SCRAM", "status": "fraud", "known_at": NOW,
    }  # fmt: skip
    analyst = settings(broker, "OAUTH", Role.ANALYST)
    producer = AIOKafkaProducer(**client_options(analyst))
    await producer.start()
    await producer.send_and_wait(analyst.outcomes, orjson.dumps(outcome), key=b"user-1")
    await producer.stop()
    async with asyncio.timeout(60):
        while not any(name == "assay_outcomes_total" and value for (name, _), value in worker.metrics().items()):
            await asyncio.sleep(0.1)
    await asyncio.to_thread(worker.restart)  # to read back what it has remembered
    assert not {denial for denial in broker.denials() if denial.principal == Role.WORKER}
    granted = acls(settings(broker, "SCRAM", Role.WORKER), Role.WORKER, [REPLY])
    assert broker.used(Role.WORKER) == {right for acl in granted for right in rights(acl)}


def rights(acl: Acl) -> set[tuple[str, str, str]]:
    """(resource, name, operation) of each that it allows."""
    return {(acl.resource, acl.name, operation) for operation in acl.operations}


async def run(broker: SecuredKafka, role: Role, *arguments: str, **settings: str) -> str:
    """What a command says to somebody of that role who logs in by a certificate."""
    environment = broker.environment("MTLS", role) | {"ASSAY_TOPIC_PREFIX": PREFIX, "ASSAY_PARTITIONS": str(PARTITIONS)}
    command = [sys.executable, "-m", "assay.deploy.cli", *arguments]
    done = await asyncio.to_thread(
        subprocess.run, command, env=os.environ | environment | settings, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_an_analyst_has_the_rights_that_the_analysts_commands_use_and_no_others(
    broker: SecuredKafka, worker: WorkerProcess, bundle_path: Path, tmp_path: Path
) -> None:
    await run(broker, Role.ANALYST, "decision", "user-1", "t-SCRAM", "--features")
    await run(broker, Role.ANALYST, "outcome", "user-1", "t-SCRAM", "--status", "genuine")
    await run(broker, Role.ANALYST, "dead-letters", "list")
    topic = settings(broker, "MTLS", Role.ANALYST).transactions
    await run(broker, Role.ANALYST, "backtest", "--from", topic, "--model", str(bundle_path), ASSAY_BUNDLE=str(bundle_path))
    assert not {denial for denial in broker.denials() if denial.principal == Role.ANALYST}
    granted = acls(settings(broker, "SCRAM", Role.ANALYST), Role.ANALYST)
    assert broker.used(Role.ANALYST) == {right for acl in granted for right in rights(acl)}


async def test_an_operator_rebuilds_with_the_rights_of_the_list(
    broker: SecuredKafka, worker: WorkerProcess, tmp_path: Path
) -> None:
    await asyncio.to_thread(worker.stop)
    await run(broker, Role.OPERATOR, "rebuild", ASSAY_DATA_DIR=str(tmp_path))
    assert not {denial for denial in broker.denials() if denial.principal == Role.OPERATOR}


@pytest.mark.parametrize(
    ("listener", "changes", "why"),
    [
        ("SCRAM", {"ASSAY_SASL_PASSWORD": "wrong"}, "does not let us in: SaslAuthenticationFailed"),
        ("OAUTH", {"ASSAY_SASL_TOKEN_FILE": "expired.token"}, "bearer token"),
        ("MTLS", {"ASSAY_SSL_CERTIFICATE_FILE": "foreign.pem"}, "Kafka"),
        ("SCRAM", {"ASSAY_SSL_CA_FILE": "other-ca.pem"}, "certificate verify failed"),
    ],
)
async def test_a_worker_that_is_not_let_in_ends_and_says_why(
    broker: SecuredKafka, bundle_path: Path, tmp_path: Path, listener: str, changes: dict[str, str], why: str
) -> None:
    changed = {name: str(broker.folder / value) if "FILE" in name else value for name, value in changes.items()}
    environment = broker.environment(listener, Role.WORKER) | changed | {"ASSAY_BUNDLE": str(bundle_path)}
    process = WorkerProcess("outside", tmp_path, environment | {"ASSAY_TOPIC_PREFIX": PREFIX})
    process.start()
    async with asyncio.timeout(60):
        while process.running:
            await asyncio.sleep(0.1)
    assert process.status not in (0, None)
    said = next(line for line in reversed(process.log.splitlines()) if line.startswith("error: "))
    assert why in said
    assert "ASSAY_SSL_" in said


async def test_everybody_may_do_what_the_lists_say_and_nothing_else(broker: SecuredKafka) -> None:
    found = await tried(broker)
    assert len(found) > 100
    assert [(case, got) for case, got in found if got != case.expected] == []
