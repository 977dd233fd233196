"""The supervisor's start: what it does when a port is lost at the last moment, and when a service dies."""

import contextlib
import io
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.deploy import kafka_local, probes, redis_local, supervisor
from assay.deploy.supervisor import Plan, Stack, hold
from assay.schemas.errors import ServiceError

pytestmark = pytest.mark.services


class NobodyLeaves:
    """A Watch whose owner stays."""

    def pause(self) -> None:
        time.sleep(0.05)


@contextlib.contextmanager
def stack(folder: Path, **wanted: Any) -> Iterator[Stack]:
    plan = Plan(
        str(folder),
        containers=False,
        java=kafka_local.find_java(),
        jars=str(kafka_local.fetch_jars()),
        redis_server=redis_local.find_server(),
        **wanted,
    )
    with hold(folder) as lock:
        made = Stack(plan, NobodyLeaves(), lock)  # type: ignore[arg-type]
        try:
            yield made
        finally:
            made.stop()


@pytest.mark.parametrize("name", ["redis", "kafka"])
def test_a_free_port_that_somebody_takes_meanwhile_is_replaced(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = supervisor.free_port
    with socket.create_server(("127.0.0.1", 0)) as somebody, stack(tmp_path, **{f"{name}_port": 0}) as started:
        lost = somebody.getsockname()[1]
        offers = iter([lost])
        monkeypatch.setattr(supervisor, "free_port", lambda: next(offers, None) or find())
        state = started.start()
        assert f":{lost}" not in state.bootstrap_servers + state.redis_url
        if name == "kafka":
            assert probes.kafka_answers(state.bootstrap_servers)


def test_a_service_that_dies_while_it_starts_shows_its_log(tmp_path: Path) -> None:
    (tmp_path / "kafka" / "data").mkdir(parents=True)
    (tmp_path / "kafka" / "data" / "meta.properties").write_text("version=9\n")
    shown = pytest.raises(ServiceError, match=r"kafka ended while it started .*meta\.properties.*kafka\.log")
    with stack(tmp_path, kafka_port=0, keep=True) as started, shown:
        started.start()


def test_the_owner_is_told_of_each_step_in_lines_of_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr("sys.stdout", said)
    with stack(tmp_path, redis_port=0) as started:
        started.start()
    assert [json.loads(line) for line in said.getvalue().splitlines()] == [{"step": "starting redis"}]
