"""Kafka and Redis as containers, where a Docker engine answers.

Kept small on purpose: this rung of the ladder has not been run where the project is built, since there is no engine.
Should it fail, `services` says so and falls through to local processes.
"""

import contextlib
from typing import Any

KAFKA_IMAGE = "apache/kafka:4.4.0"
REDIS_IMAGE = "valkey/valkey:9-alpine"


def engine_answers(timeout_s: float = 2.0) -> bool:
    """Whether a Docker engine answers. The command `docker` alone proves nothing."""
    try:
        import docker  # type: ignore[import-untyped]  # comes with testcontainers
    except ImportError:
        return False
    with contextlib.suppress(Exception):  # no socket, no permission, a context that is gone: all mean "no engine"
        return bool(docker.from_env(timeout=timeout_s).ping())
    return False


def start_kafka(port: int) -> Any:
    """A started one-node Kafka that answers on 127.0.0.1:`port` after a while."""
    from testcontainers.core.container import DockerContainer

    container = DockerContainer(KAFKA_IMAGE).with_bind_ports(port, port)
    environment = {
        "NODE_ID": "1",
        "PROCESS_ROLES": "broker,controller",
        "CONTROLLER_QUORUM_VOTERS": "1@localhost:29093",
        "LISTENERS": f"PLAINTEXT://:{port},CONTROLLER://:29093",
        "ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
        "LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "AUTO_CREATE_TOPICS_ENABLE": "false",
        "GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
        "SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": "1",
    }
    for name, value in environment.items():
        container = container.with_env(f"KAFKA_{name}", value)
    return container.start()


def start_redis(port: int) -> Any:
    """A started Valkey that answers on 127.0.0.1:`port` after a while."""
    from testcontainers.core.container import DockerContainer

    return DockerContainer(REDIS_IMAGE).with_bind_ports(6379, port).start()
