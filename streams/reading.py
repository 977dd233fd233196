"""Reading a topic without a consumer group: partitions assigned by hand, positions resolved before anything is sent.

A group would rebalance while callers wait, and commit offsets that nobody needs.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.conn import create_conn
from aiokafka.errors import (
    KafkaError,
    SaslAuthenticationFailed,
    TopicAlreadyExistsError,
    UnsupportedSaslMechanismError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest

from assay.schemas.errors import NoTopic, ServiceError, SettingError
from assay.schemas.limits import CONNECT_TIMEOUT_S
from assay.streams.header_names import read_any_header_name

STOP_PATIENCE_S = 0.5
# Of one who asks for offsets between fetches: whatever is asked of a broker waits behind a fetch that waits for records.
FETCH_MAX_WAIT_MS = 10
SETTLE_ATTEMPTS = 100  # times 0.05 s: until the controller's word has reached the broker
BEARER = "OAUTHBEARER"
REPLY_PARTITIONS = 4  # of a reply topic that we make; clients choose one each
REPLY_REPLICAS = 3  # where there are so many brokers: aiokafka does not let the broker choose
REPLY_TOPIC: Mapping[str, str] = {"retention.ms": "600000"}  # nobody reads a reply that is older than ten minutes

Result = TypeVar("Result")


async def connect(starting: Awaitable[Result], options: Mapping[str, Any]) -> Result:
    """Await it for so long, and say in our words that Kafka is not there, or does not let us in. Raises ServiceError."""
    try:
        result = await asyncio.wait_for(starting, CONNECT_TIMEOUT_S)
    except (KafkaError, TimeoutError, OSError) as error:
        raise _not_connected(options, error, await _refused(options)) from error
    if options.get("sasl_mechanism") == BEARER and (refused := await _refused(options)) is not None:  # aiokafka does not notice
        raise _not_connected(options, refused, refused)
    return result


async def begin(client: AIOKafkaProducer | AIOKafkaConsumer, options: Mapping[str, Any]) -> None:
    """Start a client as `connect` does; one that can't be is stopped again. Raises ServiceError."""
    try:
        await connect(client.start(), options)
    except BaseException:
        await client.stop()
        raise


def _not_connected(options: Mapping[str, Any], error: Exception, refused: Exception | None) -> ServiceError:
    where, protocol = options["bootstrap_servers"], options.get("security_protocol", "PLAINTEXT")
    if protocol == "PLAINTEXT":
        return ServiceError(
            f"Kafka does not answer at {where}: {error!r}",
            expected="a broker at ASSAY_BOOTSTRAP_SERVERS",
            mend="start one (`assay services up` does, for development) or set ASSAY_BOOTSTRAP_SERVERS",
        )
    return ServiceError(
        f"Kafka at {where} {'does not answer' if refused is None else 'does not let us in'}: {refused or error!r}",
        expected=f"a broker that takes {protocol} with our credentials",
        mend="see that it runs, and that ASSAY_SECURITY_PROTOCOL, ASSAY_SASL_* and ASSAY_SSL_* fit that listener of it",
    )


async def _refused(options: Mapping[str, Any]) -> Exception | None:
    """Why the first broker does not let us in, which aiokafka only logs; None if that is not what is wrong."""
    if options.get("security_protocol", "PLAINTEXT") == "PLAINTEXT":
        return None  # it asks for nothing
    host, _, port = options["bootstrap_servers"].split(",")[0].strip().rpartition(":")
    how = {name: value for name, value in options.items() if name.startswith(("ssl_", "sasl_", "security_"))}
    try:
        connection = await create_conn(host, int(port), request_timeout_ms=int(1_000 * CONNECT_TIMEOUT_S), **how)
    except (SaslAuthenticationFailed, UnsupportedSaslMechanismError, ssl.SSLError, SettingError) as error:
        return error
    except (KafkaError, OSError, ValueError):
        return None
    try:
        known = (await asyncio.wait_for(connection.send(MetadataRequest([])), CONNECT_TIMEOUT_S)).brokers
    except (KafkaError, OSError, TimeoutError):
        known = []
    finally:
        connection.close()
    # What refuses a bearer token is read by aiokafka as the answer of a broker that knows of none.
    return None if known or BEARER not in how.values() else SaslAuthenticationFailed("the bearer token was not taken")


async def partitions_of(options: Mapping[str, Any], topic: str, *, create: Mapping[str, str] | None = None) -> int:
    """How many partitions the topic has, once each has a leader.

    Args:
        create: make a missing topic with these configs; None: a missing topic is an error.

    Raises:
        ServiceError: it is missing, or can't be made, or has no leader.
    """
    admin = AIOKafkaAdminClient(**options)
    try:
        await connect(admin.start(), options)
        if topic not in await admin.list_topics():
            if create is None:
                raise NoTopic(
                    f"there is no topic {topic}",
                    expected="the topics that a worker makes when it starts",
                    mend="start a worker, or set ASSAY_TOPIC_PREFIX and the topic names as the worker has them",
                )
            await _create(admin, topic, create)
        for _ in range(SETTLE_ATTEMPTS):
            [described] = await admin.describe_topics([topic])
            partitions = described["partitions"]
            if partitions and all(partition["leader"] >= 0 for partition in partitions):
                return len(partitions)
            await asyncio.sleep(0.05)
    finally:
        await admin.close()
    raise ServiceError(f"topic {topic} has a partition without a leader", mend="look at the brokers")


async def _create(admin: AIOKafkaAdminClient, topic: str, configs: Mapping[str, str]) -> None:
    brokers = len((await admin.describe_cluster())["brokers"])
    wanted = NewTopic(topic, REPLY_PARTITIONS, min(REPLY_REPLICAS, brokers), topic_configs=dict(configs))
    answer = await admin.create_topics([wanted])
    for name, code, *detail in answer.topic_errors:
        error = for_code(code)
        if code and error is not TopicAlreadyExistsError:
            raise ServiceError(
                f"topic {name} could not be made: {error.__name__} {detail[0] if detail else ''}",
                mend="make it by hand, or give this client the right to; replies only go to topics on the allow-list",
            )


async def reader(options: Mapping[str, Any], **more: Any) -> AIOKafkaConsumer:
    """A started consumer without a group and without partitions. `more`: aiokafka's consumer options. Raises ServiceError."""
    read_any_header_name()
    consumer = AIOKafkaConsumer(**options, group_id=None, enable_auto_commit=False, **more)
    await begin(consumer, options)
    return consumer


async def assigned(
    options: Mapping[str, Any], topic: str, partitions: Sequence[int], *, from_beginning: bool = False, **more: Any
) -> AIOKafkaConsumer:
    """A consumer of these partitions whose positions are resolved: nothing appended from now on is missed.

    Args:
        from_beginning: also what is there already.
        more: aiokafka's consumer options.
    """
    consumer = await reader(options, auto_offset_reset="latest", **more)
    try:
        ours = [TopicPartition(topic, partition) for partition in partitions]
        consumer.assign(ours)
        await (consumer.seek_to_beginning if from_beginning else consumer.seek_to_end)(*ours)
        for partition in ours:
            await consumer.position(partition)
    except BaseException:
        await consumer.stop()
        raise
    return consumer


async def stop(consumer: AIOKafkaConsumer) -> None:
    """Stop it, also where partitions were assigned a moment ago: its fetcher swallows a cancellation then (fetcher.py:515), and
    aiokafka's own stop waits for ever."""
    stopping = asyncio.ensure_future(consumer.stop())
    while not stopping.done():
        await asyncio.wait([stopping], timeout=STOP_PATIENCE_S)
        if not stopping.done() and consumer._fetcher is not None:
            consumer._fetcher._fetch_task.cancel()
    await stopping
