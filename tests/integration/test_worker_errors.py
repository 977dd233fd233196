"""A worker that can't start says so in one line that names what is wrong and how to mend it."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from assay.deploy.data_dir import claim_data_dir
from assay.deploy.ports import free_port
from assay.streams.ending import EXIT_NOT_STARTED

pytestmark = pytest.mark.services
# Without a name, a folder and a port: each case is told those as settings.
COMMAND = [sys.executable, "-m", "assay.deploy.cli", "worker", "--end-with", str(os.getpid())]
TIMEOUT_S = 90
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True)
class Place:
    """What a case may use to get something wrong; what `held` holds is let go at the end."""

    folder: Path
    bundle: Path
    bootstrap: str
    prefix: str
    held: ExitStack

    def make_topics(self, **partitions: int) -> None:
        """Topics by name, all with append time, but for the one named `unstamped`, which is the transactions topic."""

        async def make() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            for name, count in partitions.items():
                topic = self.prefix + name.replace("unstamped", "transactions")
                await admin.create_topics([NewTopic(topic, count, 1, topic_configs={} if name == "unstamped" else APPEND_TIME)])
            await admin.close()

        asyncio.run(make())


Wrong = tuple[dict[str, object], list[object]]
"""Settings (without ASSAY_, in lower case), and what the error must name."""


def a_setting_of_the_wrong_type(place: Place) -> Wrong:
    return {"batch_age_ms": "soon"}, ["ASSAY_BATCH_AGE_MS"]


def a_data_directory_of_another_worker(place: Place) -> Wrong:
    path = place.folder / "taken"
    place.held.enter_context(claim_data_dir(path))
    return {"data_dir": path}, [path, "another worker", "--data-dir"]


def no_bundle(place: Place) -> Wrong:
    return {"bundle": place.folder / "nothing"}, [place.folder / "nothing", "assay train"]


def a_tampered_bundle(place: Place) -> Wrong:
    path = place.folder / "tampered"
    shutil.copytree(place.bundle, path)
    model = sorted(path.glob("*.ubj"))[0]
    content = bytearray(model.read_bytes())
    content[len(content) // 2] ^= 1
    model.write_bytes(content)
    return {"bundle": path}, [model]


def a_rule_about_no_column(place: Place) -> Wrong:
    path = place.folder / "rules.yaml"
    path.write_text("rules:\n  - id: typo\n    when: amont > 10\n    then: review\n    reason: x\n")
    return {"rules": path}, [path, "typo", "amont"]


def no_broker(place: Place) -> Wrong:
    address = f"127.0.0.1:{free_port()}"
    return {"bootstrap_servers": address}, ["Kafka does not answer", address, "ASSAY_BOOTSTRAP_SERVERS"]


def decisions_with_other_partitions(place: Place) -> Wrong:
    place.make_topics(transactions=3, decisions=2)
    return {}, [f"{place.prefix}decisions", "expected: 3 partitions", "got: 2"]


def transactions_without_append_time(place: Place) -> Wrong:
    place.make_topics(unstamped=3)
    return {}, [f"{place.prefix}transactions", "LogAppendTime", "kafka-configs.sh"]


def a_port_that_is_taken(place: Place) -> Wrong:
    port = place.held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
    return {"http_port": port}, [port, "ASSAY_HTTP_PORT"]


CASES: list[Callable[[Place], Wrong]] = [
    a_setting_of_the_wrong_type,
    a_data_directory_of_another_worker,
    no_bundle,
    a_tampered_bundle,
    a_rule_about_no_column,
    no_broker,
    decisions_with_other_partitions,
    transactions_without_append_time,
    a_port_that_is_taken,
]


@dataclass(frozen=True)
class Ended:
    status: int
    lines: list[str]
    named: list[object]


@pytest.fixture(scope="module")
def endings(
    environment: dict[str, str], bundle_path: Path, kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Ended]]:
    """How the worker ended in each case; as many at a time as there are cores, since starting is what takes long."""
    with ExitStack() as held:

        def run(case: Callable[[Place], Wrong]) -> Ended:
            place = Place(folder := tmp_path_factory.mktemp("case"), bundle_path, kafka, f"t{uuid.uuid4().hex[:12]}-", held)
            settings, named = case(place)
            own = {"data_dir": folder / "data", "http_port": 0, "topic_prefix": place.prefix} | settings
            told = environment | {f"ASSAY_{name.upper()}": str(value) for name, value in own.items()}
            answer = subprocess.run(
                [sys.executable, "-m", "assay.deploy.cli", "worker"],
                env=os.environ | told,
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT_S,
            )
            return Ended(answer.returncode, (answer.stdout + answer.stderr).splitlines(), named)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            yield dict(zip([case.__name__ for case in CASES], pool.map(run, CASES), strict=True))


@pytest.mark.parametrize("case", [case.__name__ for case in CASES])
def test_a_worker_that_cannot_start_names_what_is_wrong_and_the_mend(endings: dict[str, Ended], case: str) -> None:
    ended = endings[case]
    logged = [line for line in ended.lines if line.startswith("{")]  # by the Kafka client, meanwhile
    [line] = [line for line in ended.lines if line not in logged]  # and nothing else
    assert ended.status == EXIT_NOT_STARTED
    assert line.startswith("error: ")
    assert "Mend: " in line
    for part in ended.named:
        assert str(part) in line
    for other in logged:
        assert "exception" not in orjson.loads(other)
