"""The doctor's checks of Kafka and Redis. None waits for more than a few seconds."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from redis.crc import key_slot

from assay.deploy.check import Check, fail, failure, ok, warn
from assay.deploy.placement_check import key_placement
from assay.deploy.probes import KafkaFacts, ask_kafka, ask_redis, without_password
from assay.schemas.limits import REDIS_CATCH_UP_S
from assay.streams.kafka import client_options, ssl_context
from assay.streams.settings import Settings
from assay.streams.topics import TopicSpec, configs_of, topic_specs
from assay.tables.entities import MEND_LOST
from assay.tables.key_marks import KeyMarks
from assay.tables.keyspace import LOST, Part
from assay.tables.redis_link import OUTAGES, Command, RedisLink, packed
from assay.tables.redis_topology import Topology

TIMEOUT_S = 3.0
SHARDS_A_MASTER = 4  # of a Redis Cluster: then shares differ little, and few calls go out for a micro-batch
# Protocol API keys that the worker can't do without: https://kafka.apache.org/protocol#protocol_api_keys
_NEEDED_APIS = {0: "Produce", 1: "Fetch", 2: "ListOffsets", 11: "JoinGroup", 22: "InitProducerId", 32: "DescribeConfigs"}
_START_KAFKA = "start one (`assay services up` does, for development), or set ASSAY_BOOTSTRAP_SERVERS"
_START_REDIS = "start one (`assay services up` does, for development), or set ASSAY_REDIS_URL"


async def service_checks(settings: Settings) -> list[Check]:
    """Kafka, its topics, where keys lie, and Redis."""
    kafka, redis, key, lost = await asyncio.gather(
        _kafka(settings), asyncio.to_thread(redis_check, settings), redis_key(settings), redis_lost(settings)
    )
    return [*kafka, redis, key, lost]


async def _kafka(settings: Settings) -> list[Check]:
    tls = ssl_context(settings) if settings.security_protocol.endswith("SSL") else None
    try:
        facts = await asyncio.to_thread(ask_kafka, settings.bootstrap_servers, TIMEOUT_S, tls)
    except (OSError, ValueError) as error:
        found = f"none answers at {settings.bootstrap_servers}: {error}"
        unknown = [warn(name, "not checked, since Kafka does not answer", "see kafka") for name in ("topics", "key placement")]
        return [fail("kafka", found, _START_KAFKA), *unknown]
    return [judge_broker(settings.bootstrap_servers, facts), *await _topics_and_keys(settings)]


def judge_broker(address: str, facts: KafkaFacts) -> Check:
    """Whether a broker that says this of itself will do."""
    missing = [name for key, name in _NEEDED_APIS.items() if key not in facts.apis]
    if missing:
        return fail("kafka", f"{address} lacks {', '.join(missing)}", "use Kafka 4.0 or newer")
    features = ", ".join(f"{name} {level}" for name, level in sorted(facts.features.items()) if name != "share.version")
    if "metadata.version" not in facts.features:
        return warn("kafka", f"{address}, without KRaft's features", "use Kafka 4.0 or newer: nothing older is tested")
    return ok("kafka", f"{address}: {features}")


async def _topics_and_keys(settings: Settings) -> list[Check]:
    try:
        described, configs = await asyncio.wait_for(_describe(settings), 2 * TIMEOUT_S)
    except (KafkaError, OSError, TimeoutError) as error:
        mend = "check ASSAY_SECURITY_PROTOCOL, ASSAY_SASL_* and what this user may do"
        return [fail("topics", f"can't be described: {error!r}", mend)]
    topics = judge_topics(topic_specs(settings), settings, described, configs)
    partitions = len(described.get(settings.incoming, []))
    if not partitions:
        return [topics, warn("key placement", "not checked: there is no transactions topic", "see topics")]
    try:
        return [topics, await asyncio.wait_for(key_placement(settings, partitions), 2 * TIMEOUT_S)]
    except (KafkaError, OSError, TimeoutError) as error:
        return [topics, failure("key placement", error)]


async def _describe(settings: Settings) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """{topic: its partitions} of all, and {topic: its configuration} of ours."""
    admin = AIOKafkaAdminClient(**client_options(settings), request_timeout_ms=int(TIMEOUT_S * 1000))
    try:
        await admin.start()
        described = {topic["topic"]: topic["partitions"] for topic in await admin.describe_topics()}
        ours = [spec.name for spec in topic_specs(settings) if spec.name in described]
        return described, {name: await configs_of(admin, name) for name in ours}
    finally:
        await admin.close()


def judge_topics(
    specs: Sequence[TopicSpec], settings: Settings, described: dict[str, Any], configs: dict[str, dict[str, str]]
) -> Check:
    """Partitions, append time, clean-up and replicas of the topics that are there."""
    absent = [spec.name for spec in specs if spec.name not in described]
    if len(absent) == len(specs):
        return warn("topics", "none is there yet", "the first `assay worker` makes them")
    partitions = len(described.get(settings.transactions, [])) or settings.partitions
    like_source = {settings.decisions, settings.dead_letters, settings.evidence}
    wrong, thin = [], set()
    for spec in specs:
        if spec.name not in described:
            continue
        found = described[spec.name]
        if spec.name in like_source and len(found) != partitions:
            wrong.append(f"{spec.name} has {len(found)} partitions, {settings.transactions} {partitions}")
        for config in spec.checked:
            if configs[spec.name].get(config) != spec.configs[config]:
                wrong.append(f"{spec.name} has {config}={configs[spec.name].get(config)}, not {spec.configs[config]}")
        if any(len(partition["replicas"]) < settings.replication_factor for partition in found):
            thin.add(spec.name)
        if any(partition["leader"] < 0 for partition in found):
            wrong.append(f"{spec.name} has partitions without a leader")
    if wrong:
        mend = "mend them with kafka-configs.sh and kafka-topics.sh, or start anew under another ASSAY_TOPIC_PREFIX"
        return fail("topics", "; ".join(wrong), mend)
    if thin:
        return warn("topics", f"fewer replicas than ASSAY_REPLICATION_FACTOR: {', '.join(sorted(thin))}", "add replicas")
    if absent:
        return warn("topics", f"missing: {', '.join(absent)}", "the next `assay worker` makes them")
    return ok("topics", f"{len(specs)} as they should be, {partitions} partitions")


def redis_check(settings: Settings) -> Check:
    """Whether Redis answers and knows Functions."""
    from redis import RedisError

    url = settings.redis_url.get_secret_value()
    try:
        facts = ask_redis(url, TIMEOUT_S)
    except (OSError, ValueError, RedisError) as error:
        return fail("redis", f"none answers at {without_password(url)}: {error}", _START_REDIS)
    found = f"{without_password(url)}: {facts.version}"
    if facts.topology is not None:
        found += f", a cluster of {len(facts.topology.masters)} masters"
    if not facts.functions:
        return fail("redis", f"{found}, which knows no Functions", "use Redis 7.0 or Valkey 7.2 or newer")
    if facts.eviction not in ("noeviction", ""):
        return warn(
            "redis", f"{found}, maxmemory-policy {facts.eviction}", "set noeviction: else windows vanish without a word"
        )
    if facts.topology is None:
        return ok("redis", f"{found}, with Functions")
    return judge_shards(facts.topology, settings, f"{found} with Functions")


async def redis_key(settings: Settings) -> Check:
    """Whether what is in Redis is under our key."""
    link = RedisLink(settings.redis_url.get_secret_value())
    marks = KeyMarks(settings.keyspace(), Part.WINDOWS, (Part.OUTCOMES, Part.BATCH))
    try:
        await link.connect()
        found = await marks.look(link)
    except OUTAGES as error:
        return warn("redis key", f"not checked: {error!r}", "see redis")
    finally:
        await link.disconnect()
    if (refusal := marks.refusal(found)) is not None:
        return fail("redis key", refusal.what, refusal.mend)
    return ok("redis key", "ASSAY_HASH_KEY is that of what is there" if any(found.values()) else "nothing is there yet")


async def redis_lost(settings: Settings) -> Check:
    """Whether workers have found that Redis had less than it had taken, and nothing has been rebuilt since."""
    link, keyspace = RedisLink(settings.redis_url.get_secret_value()), settings.keyspace()
    tags = [keyspace.tag(shard) for shard in range(keyspace.shards)]
    try:
        await link.connect()
        until = asyncio.get_running_loop().time() + REDIS_CATCH_UP_S
        found = await link.exchange([Command(tag, packed(b"GET", tag + LOST)) for tag in tags], until)
    except OUTAGES as error:
        return warn("redis windows", f"not checked: {error!r}", "see redis")
    finally:
        await link.disconnect()
    if lost := [int(when) for when in found if isinstance(when, bytes)]:
        when = datetime.fromtimestamp(max(lost) / 1000, UTC).isoformat(" ", "seconds")
        return fail("redis windows", f"of {len(lost)} shards, {when}: Redis had less than it had taken", MEND_LOST)
    return ok("redis windows", "no worker has found any missing")


def judge_shards(topology: Topology, settings: Settings, found: str) -> Check:
    """Whether each master of a Redis Cluster has a share of the entities."""
    keyspace = settings.keyspace()
    try:
        owners = Counter(topology.master(key_slot(keyspace.tag(shard))) for shard in range(keyspace.shards))
    except ConnectionError as error:
        return fail("redis", f"{found}: {error}", "give each slot a node: see CLUSTER INFO and CLUSTER SLOTS")
    shares = [owners[master] for master in topology.masters]
    found += f", which have {', '.join(map(str, shares))} of {keyspace.shards} shards"
    if not all(shares):
        return warn("redis", found, f"set ASSAY_REDIS_SHARDS, {SHARDS_A_MASTER} for each master; it begins the windows anew")
    return ok("redis", found)
