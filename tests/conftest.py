"""A real Kafka and a real Redis, once per test session, by the ladder of `assay.deploy.services`.

Never skipped: where they can't be had, the tests that need them end in an error that says how to mend it.
"""

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.deploy.services import Running
from assay.deploy.services import services as start_services

# Read when XGBoost is loaded: its threads must not spin while they wait for one that another test's process keeps from a core.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """HOST:PORT of a Kafka, alone in a temporary folder, unless ASSAY_BOOTSTRAP_SERVERS names one."""
    with start_services(redis=False, tell=_tell) as running:
        yield running.bootstrap_servers


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """URL of a Redis, alone in a temporary folder, unless ASSAY_REDIS_URL names one."""
    with start_services(kafka=False, tell=_tell) as running:
        yield running.redis_url


@pytest.fixture(scope="session")
def services(kafka: str, redis_url: str) -> Running:
    """Both."""
    return Running(kafka, redis_url)


@pytest.fixture(scope="session")
def bundle_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle trained on a little simulated history. Copy it before you change it."""
    from tests.integration.small_bundle import START_MS, train_small_bundle  # a second, for tests that need no bundle

    path = tmp_path_factory.mktemp("bundles") / "bundle"
    train_small_bundle(path, START_MS)
    return path


@pytest.fixture
def topic_prefix() -> str:
    """A prefix for topics, groups and keys that no other test has."""
    return f"t{uuid.uuid4().hex[:12]}-"
