"""Who may do what, by which way to log in: tried on a real broker, each as its settings would have it.

python -m tests.integration.security_matrix       the table, and one line of JSON
"""

import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from assay.deploy.acls import Role, acls
from assay.schemas.errors import SettingError
from assay.streams.kafka import client_options
from assay.streams.settings import Settings
from assay.streams.topics import ensure_topics

from .secured_kafka import SecuredKafka, allow, secured_kafka

REPLY = "matrix.reply"
PREFIX = "matrix-"
PEOPLE = (*Role, "stranger")
WAYS_IN = ("MTLS", "SCRAM", "OAUTH")
PATIENCE_S = 10.0
ALLOWED, REFUSED, NO_LOGIN, NO_SETTINGS = "allowed", "refused", "no login", "settings refused"
# Role -> what it may do; everybody tries all of it.
MAY: dict[str, set[tuple[str, str]]] = {
    Role.WORKER: {
        *(("read", topic) for topic in ("transactions", "outcomes", "decisions")),
        *(("write", topic) for topic in ("decisions", "evidence", "reply")),
    },
    Role.CHECKOUT: {("write", "transactions"), ("read", "reply")},
    Role.ANALYST: {
        ("write", "outcomes"),
        *(("read", topic) for topic in ("transactions", "outcomes", "decisions", "evidence")),
    },
    "stranger": set(),
}
TOPICS = ("transactions", "outcomes", "decisions", "evidence", "reply")


@dataclass(frozen=True, slots=True)
class Case:
    """Somebody, by a listener, tries one thing. `changes` are other settings than those that would do."""

    listener: str
    who: str
    action: str
    topic: str
    expected: str
    changes: tuple[tuple[str, str | None], ...] = ()


def cases(folder: Path) -> Iterator[Case]:
    """All that is tried; `folder` is the broker's."""
    for listener in WAYS_IN:
        for who, may in MAY.items():
            for topic in TOPICS:
                for action in ("read", "write"):
                    yield Case(listener, who, action, topic, ALLOWED if (action, topic) in may else REFUSED)
    for action in ("read", "write"):
        yield Case("TLS", "nobody", action, "transactions", REFUSED)  # a connection that nobody overhears, and nobody's
    wrong: dict[str, str] = {
        "ASSAY_SASL_PASSWORD": "wrong",
        "ASSAY_SASL_TOKEN_FILE": str(folder / "expired.token"),
        "ASSAY_SSL_CA_FILE": str(folder / "other-ca.pem"),
    }
    for name, listener in zip(wrong, ("SCRAM", "OAUTH", "SCRAM"), strict=True):
        yield Case(listener, Role.CHECKOUT, "write", "transactions", NO_LOGIN, ((name, wrong[name]),))
    unsigned = (("ASSAY_SSL_CERTIFICATE_FILE", None),)
    yield Case("MTLS", Role.CHECKOUT, "write", "transactions", NO_LOGIN, unsigned)
    foreign = (("ASSAY_SSL_CERTIFICATE_FILE", str(folder / "foreign.pem")),)
    yield Case("MTLS", Role.CHECKOUT, "write", "transactions", NO_LOGIN, foreign)
    for listener in WAYS_IN:  # the protocol was forgotten: nothing must go out in the clear
        forgotten = (("ASSAY_SECURITY_PROTOCOL", None),)
        yield Case(listener, Role.CHECKOUT, "write", "transactions", NO_SETTINGS, forgotten)
    named = (("ASSAY_SECURITY_PROTOCOL", "SASL_PLAINTEXT"),)
    yield Case("CLEAR", Role.CHECKOUT, "write", "transactions", ALLOWED, named)


async def prepare(broker: SecuredKafka) -> None:
    """Topics and lists of who may do what."""
    admin = await broker.admin()
    try:
        settings = Settings(topic_prefix=PREFIX, partitions=1)
        for role in Role:
            await allow(admin, role, acls(settings, role, [REPLY]))
        await admin.create_topics([NewTopic(REPLY, 1, 1)])
        await ensure_topics(_settings(broker, Case("SCRAM", Role.OPERATOR, "", "", "")))
    finally:
        await admin.close()


async def outcome(broker: SecuredKafka, case: Case) -> str:
    """What came of it."""
    try:
        settings = _settings(broker, case)
        options = client_options(settings)
    except SettingError:
        return NO_SETTINGS
    topic = REPLY if case.topic == "reply" else settings.topic(case.topic)
    client: Any = (
        AIOKafkaProducer(**options, request_timeout_ms=5_000)
        if case.action == "write"
        else AIOKafkaConsumer(**options, auto_offset_reset="earliest", request_timeout_ms=5_000)
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            try:
                await client.start()
            except KafkaError:
                return NO_LOGIN
            cluster = await _cluster(client, topic)
            if not cluster.brokers():  # aiokafka takes a bearer token's refusal for a broker that knows of no brokers
                return NO_LOGIN
            if topic in cluster.unauthorized_topics:  # it would ask again until its deadline
                return REFUSED
            if case.action == "write":
                await client.send_and_wait(topic, b"{}")
            else:
                await _read(client, topic)
    except TopicAuthorizationFailedError:
        return REFUSED
    finally:
        with suppress(KafkaError):
            await client.stop()
    return ALLOWED


async def _cluster(client: Any, topic: str) -> Any:
    """What the brokers tell this client of themselves and the topic."""
    inner = client.client if isinstance(client, AIOKafkaProducer) else client._client
    await inner.set_topics([topic])
    return inner.cluster


async def _read(consumer: AIOKafkaConsumer, topic: str) -> None:
    where = TopicPartition(topic, 0)
    consumer.assign([where])
    await consumer.getmany(where, timeout_ms=300)


def _settings(broker: SecuredKafka, case: Case) -> Settings:
    values = broker.environment(case.listener, case.who) | {"ASSAY_TOPIC_PREFIX": PREFIX, "ASSAY_PARTITIONS": "1"}
    for name, value in case.changes:
        values.pop(name, None)
        if value is not None:
            values[name] = value
    return Settings.load(**{name.removeprefix("ASSAY_").lower(): value for name, value in values.items()})


async def tried(broker: SecuredKafka) -> list[tuple[Case, str]]:
    """Each case, and what came of it."""
    await prepare(broker)
    return [(case, await outcome(broker, case)) for case in cases(broker.folder)]


def main() -> int:
    """Prints all; returns 1 where anything is not as it should be."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="assay-security-") as folder, secured_kafka(Path(folder), PEOPLE) as broker:
        found = asyncio.run(tried(broker))
    for case, got in found:
        mark = "" if got == case.expected else f"   WRONG: expected {case.expected}"
        changed = " ".join(f"{name}={'' if value is None else Path(value).name}" for name, value in case.changes)
        print(f"{case.listener:6} {case.who:9} {case.action:6} {case.topic:13} {got:17}{changed}{mark}")
    wrong = sum(got != case.expected for case, got in found)
    print(json.dumps({"cases": len(found), "wrong": wrong}))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
