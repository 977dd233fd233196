"""Development services: they come up, are found, go down, and never outlive whoever asked for them."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from assay.deploy import containers, kafka_local, probes
from assay.deploy.check import Check
from assay.deploy.service_checks import service_checks
from assay.deploy.services import Running, down, services, up
from assay.schemas.errors import ServiceError, TopologyError
from assay.streams.partitioning import partition_of
from assay.streams.settings import Settings
from assay.streams.topics import ensure_topics

from .topics import transaction

pytestmark = pytest.mark.services
PATIENCE_S = 30.0

# Owns services, says where they are, and waits to be killed; told to, it forks a child that holds all of its pipes.
OWNER = """
import os, sys, time
from assay.deploy.services import services
with services(kafka=sys.argv[1] == "both") as running:
    child = os.fork() if sys.argv[1] == "fork" else 1
    if child:
        print(running.bootstrap_servers, running.redis_url, child, *running.pids.values(), flush=True)
    else:
        os.close(1)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _nothing_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test starts from an environment that names no service, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("ASSAY_BOOTSTRAP_SERVERS", "ASSAY_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)


def assay(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command line."""
    return subprocess.run(
        [sys.executable, "-m", "assay.deploy.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
        timeout=120,
    )


def becomes(true: Callable[[], bool]) -> bool:
    """Whether it comes true while patience lasts."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or dead and only not yet waited for by whoever adopted it."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True
    answer = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.strip()[:1] in ("", "Z")


@pytest.fixture
def owner() -> Iterator[Callable[[str], tuple[subprocess.Popen[str], Running]]]:
    """Starts processes that own services, and tells what they own."""
    started: list[subprocess.Popen[str]] = []
    forked: list[int] = []

    def start(what: str) -> tuple[subprocess.Popen[str], Running]:
        process = subprocess.Popen([sys.executable, "-c", OWNER, what], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        bootstrap, url, child, *pids = process.stdout.readline().split(" ")
        if int(child) > 1:
            forked.append(int(child))
        return process, Running(bootstrap, url, pids={pid: int(pid) for pid in pids})

    yield start
    for child in forked:
        os.kill(child, signal.SIGKILL)
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_up_status_and_down_through_the_command_line() -> None:
    running = json.loads(assay("services", "up", "--json").stdout)
    try:
        assert running["origin"] == {"kafka": "local process", "redis": "local process"}
        again = json.loads(assay("services", "up", "--json").stdout)
        assert again == running, "what runs is left as it is"
        status = assay("services", "status", "--json")
        assert (status.returncode, json.loads(status.stdout)["answers"]) == (0, {"kafka": True, "redis": True})
        exports = assay("services", "up").stdout.splitlines()
        assert f"export ASSAY_BOOTSTRAP_SERVERS={running['bootstrap_servers']}" in exports
        assert f"export ASSAY_REDIS_URL={running['redis_url']}" in exports
    finally:
        down = assay("services", "down", "--json")
    assert json.loads(down.stdout) == {"stopped": True}
    assert all(has_ended(pid) for pid in running["pids"].values())
    assert assay("services", "status").returncode == 1
    assert json.loads(assay("services", "down", "--json").stdout) == {"stopped": False}


def test_a_folder_keeps_its_topics_from_one_start_to_the_next(tmp_path: Path) -> None:
    for partitions in (3, 7):
        with services(tmp_path / "kept", redis=False) as running:
            settings = Settings.load(bootstrap_servers=running.bootstrap_servers, partitions=partitions)
            assert asyncio.run(ensure_topics(settings)).transactions.partitions == 3


def test_what_the_environment_names_is_used_and_left_alone(kafka: str, redis_url: str) -> None:
    named = {"ASSAY_BOOTSTRAP_SERVERS": kafka, "ASSAY_REDIS_URL": redis_url}
    running = json.loads(assay("services", "up", "--json", **named).stdout)
    assert (running["bootstrap_servers"], running["redis_url"]) == (kafka, redis_url)
    assert running["origin"] == {"kafka": "environment", "redis": "environment"}
    assert json.loads(assay("services", "down", "--json", **named).stdout) == {"stopped": False}
    assert assay("services", "status", **named).returncode == 0
    assert "export" not in assay("services", "up", **named).stdout


def test_an_address_in_the_environment_that_does_not_answer_is_an_error(redis_url: str) -> None:
    answer = assay("services", "up", ASSAY_BOOTSTRAP_SERVERS="127.0.0.1:1", ASSAY_REDIS_URL=redis_url)
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: no Kafka answers at 127.0.0.1:1")
    assert "ASSAY_BOOTSTRAP_SERVERS" in answer.stderr


def test_up_says_so_when_what_runs_is_only_half_of_it(tmp_path: Path, kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_BOOTSTRAP_SERVERS", kafka)
    up(tmp_path)
    try:
        monkeypatch.delenv("ASSAY_BOOTSTRAP_SERVERS")
        with pytest.raises(ServiceError, match="not all services run"):
            up(tmp_path)
    finally:
        down(tmp_path)


def test_down_ends_services_whose_supervisor_was_killed(kafka: str) -> None:
    named = {"ASSAY_BOOTSTRAP_SERVERS": kafka}
    running = json.loads(assay("services", "up", "--json", **named).stdout)
    os.kill(int(Path(".assay/services/lock").read_text()), signal.SIGKILL)
    assert not has_ended(running["pids"]["redis"])
    assert json.loads(assay("services", "down", "--json", "--clear", **named).stdout) == {"stopped": True}
    assert has_ended(running["pids"]["redis"])
    assert not Path(".assay/services").exists()


def test_down_clears_no_folder_that_services_never_ran_in(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    assay("services", "down", "--clear", "--folder", str(precious))
    assert precious.exists()


def test_services_end_when_their_owner_is_killed(owner: Any) -> None:
    process, running = owner("both")
    assert probes.kafka_answers(running.bootstrap_servers)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert becomes(lambda: all(has_ended(pid) for pid in running.pids.values()))
    assert not probes.kafka_answers(running.bootstrap_servers)


def test_a_fork_of_the_owner_does_not_keep_its_services_alive(owner: Any) -> None:
    process, running = owner("fork")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert becomes(lambda: all(has_ended(pid) for pid in running.pids.values()))


def test_a_service_that_dies_takes_the_others_along(tmp_path: Path) -> None:
    with services(tmp_path, kafka=False) as running:
        os.kill(running.pids["redis"], signal.SIGKILL)
        assert becomes(lambda: not (tmp_path / "state.json").exists())
    assert "redis has ended" in (tmp_path / "supervisor.log").read_text()


def test_leaving_the_block_ends_services_whose_supervisor_was_killed(tmp_path: Path) -> None:
    with services(tmp_path, kafka=False) as running:
        os.kill(int((tmp_path / "lock").read_text()), signal.SIGKILL)
    assert has_ended(running.pids["redis"])


def test_a_temporary_folder_goes_with_its_services(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with services(kafka=False):
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_two_stacks_at_once_do_not_disturb_each_other() -> None:
    with services(kafka=False) as one, services(kafka=False) as other:
        assert one.redis_url != other.redis_url


def test_one_folder_holds_one_stack(tmp_path: Path) -> None:
    with services(tmp_path, kafka=False), pytest.raises(ServiceError, match="already"), services(tmp_path, kafka=False):
        pass


def test_containers_that_can_not_be_started_give_way_to_local_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "engine_answers", lambda: True)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    told: list[str] = []
    with services(kafka=False, tell=told.append) as running:
        assert running.origin["redis"] == "local process"
    assert [line for line in told if "local processes are started instead" in line]


def test_a_taken_port_is_an_error_that_names_it(tmp_path: Path, kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_BOOTSTRAP_SERVERS", kafka)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ServiceError, match=f"port {port} is taken.*--redis-port"):
            up(tmp_path, redis_port=port)


def test_other_ports_than_those_of_what_runs_are_an_error(tmp_path: Path, kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_BOOTSTRAP_SERVERS", kafka)
    up(tmp_path)
    try:
        with pytest.raises(ServiceError, match="on other ports"):
            up(tmp_path, redis_port=1)
    finally:
        down(tmp_path)


def test_a_kafka_that_can_not_start_shows_why(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "data").write_text("not a folder")
    with pytest.raises(ServiceError, match=r"Kafka could not format its folder.*remove"), services(tmp_path, redis=False):
        pass


def test_without_java_the_ways_out_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ServiceError, match=r"Java 17.*Maven.*Docker.*ASSAY_BOOTSTRAP_SERVERS"):
        kafka_local.find_java()


def test_without_maven_and_jars_the_ways_out_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServiceError, match=r"mvn on PATH.*ASSAY_BOOTSTRAP_SERVERS"):
        kafka_local.fetch_jars()


def test_jars_are_fetched_once_by_two_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    with ThreadPoolExecutor(2) as both:
        one, other = both.map(lambda _: kafka_local.fetch_jars(said.append), range(2))
    assert one == other
    assert len(list(one.glob("*.jar"))) == 45
    assert len([line for line in said if line.startswith("fetching") and line.endswith(one.name)]) == 1
    assert [path.name for path in tmp_path.joinpath("assay").iterdir() if "partial" in path.name] == []


def test_a_failed_download_says_what_maven_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho '[ERROR] the network is gone'; exit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(ServiceError, match="the network is gone"):
        kafka_local.fetch_jars()
    assert not (tmp_path / "cache" / "assay" / f"kafka-{kafka_local.KAFKA_VERSION}").exists()


def test_a_topic_that_takes_less_than_an_answer_is_refused(kafka: str, topic_prefix: str) -> None:
    settings = Settings.load(bootstrap_servers=kafka, topic_prefix=topic_prefix, partitions=3)

    async def make() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
        await admin.start()
        small = {"max.message.bytes": "10000", "message.timestamp.type": "LogAppendTime"}
        await admin.create_topics([NewTopic(settings.dead_letters, 3, 1, topic_configs=small)])
        await admin.close()

    asyncio.run(make())
    with pytest.raises(TopologyError, match=rf"{settings.dead_letters} takes too little.*got: 10000.*max.message.bytes"):
        asyncio.run(ensure_topics(settings))


def test_the_doctor_finds_a_whole_deployment_well(kafka: str, redis_url: str, topic_prefix: str) -> None:
    settings = Settings.load(bootstrap_servers=kafka, redis_url=redis_url, topic_prefix=topic_prefix)
    asyncio.run(ensure_topics(settings))
    found = {check.name: check for check in asyncio.run(service_checks(settings))}
    assert {name: check.state for name, check in found.items()} == dict.fromkeys(found, "ok"), found


def test_the_doctor_counts_transactions_that_lie_astray(kafka: str, redis_url: str, topic_prefix: str) -> None:
    settings = Settings.load(bootstrap_servers=kafka, redis_url=redis_url, topic_prefix=topic_prefix, partitions=4)

    async def examine() -> dict[str, Check]:
        await ensure_topics(settings)
        async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
            for number in range(20):
                await producer.send_and_wait(settings.transactions, b"{}", key=b"user-%d" % number)
            belongs = partition_of(b"user-1", 4)
            await producer.send_and_wait(settings.transactions, b"{}", key=b"user-1", partition=(belongs + 1) % 4)
            keyless = json.dumps(transaction("keyless", "user-1")).encode()
            await producer.send_and_wait(settings.transactions, keyless, partition=(belongs + 1) % 4)
            await producer.send_and_wait(settings.transactions, b"{}", partition=0)  # nobody's
        return {check.name: check for check in await service_checks(settings)}

    found = asyncio.run(examine())["key placement"]
    assert "of 22 recent transactions 2 lie on another partition than their user's: 1 without a key, 1 by" in found.found
