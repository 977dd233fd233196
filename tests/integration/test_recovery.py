"""Reading profiles back from a real changelog: also where it is broken off in the middle."""

import asyncio
import json
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from assay.streams.settings import Settings
from assay.streams.topics import ensure_topics
from assay.tables.profile import new_rows

from .recovery_process import PARTITIONS

pytestmark = [pytest.mark.services, pytest.mark.timeout(180)]
PROGRAM = Path(__file__).with_name("recovery_process.py")
USERS, WAVES, WRITES = 600, 3, 5  # of each partition; a fetch holds some 500 rows
Changelog = dict[int, dict[bytes, bytes]]


@pytest.fixture
async def changelog(kafka: str, topic_prefix: str) -> Changelog:
    """{partition: {user: last row}} of a changelog in which rows were written over and deleted."""
    settings = Settings.load(bootstrap_servers=kafka, topic_prefix=topic_prefix, partitions=PARTITIONS)
    await ensure_topics(settings)
    written: Changelog = {partition: {} for partition in range(PARTITIONS)}
    producer = AIOKafkaProducer(bootstrap_servers=kafka, linger_ms=5)
    await producer.start()
    for wave in range(WAVES):
        for partition, rows in written.items():
            values = new_rows(USERS)
            values["last_offset"], values["attempts"] = range(wave, wave + USERS), wave
            for number, row in enumerate(values):
                user = b"user-%d" % number
                if wave and number % 100 == wave:
                    await producer.send(settings.changelog, None, key=user, partition=partition)
                    rows.pop(user, None)
                else:
                    rows[user] = row.tobytes()
                    await producer.send(settings.changelog, rows[user], key=user, partition=partition)
    await producer.stop()
    return written


def expected(changelog: Changelog) -> dict[str, str]:
    return {
        str(partition): sha256(b"".join(key + row for key, row in sorted(rows.items()))).hexdigest()
        for partition, rows in changelog.items()
    }


async def read_back(kafka: str, prefix: str, data_dir: Path, dies: int = 0) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(PROGRAM), kafka, prefix, str(data_dir), str(dies)]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120)


def found(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    lines = [line[line.index("{") :] for line in done.stdout.splitlines() if "{" in line]
    assert lines, done.stdout + done.stderr
    said: dict[str, Any] = json.loads(lines[-1])
    return said


async def test_i3_a_worker_killed_in_the_middle_of_recovery_goes_on_and_has_equal_rows(
    kafka: str, topic_prefix: str, changelog: Changelog, tmp_path: Path
) -> None:
    killed = await read_back(kafka, topic_prefix, tmp_path, dies=WRITES)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    again = found(await read_back(kafka, topic_prefix, tmp_path))
    last = WAVES * USERS - 1
    assert any(offset is not None for offset in again["began"].values()), "it goes on with what was on disk"
    assert all(offset is None or offset < last for offset in again["began"].values()), "it was killed on the way"
    assert again["digest"] == expected(changelog)


async def test_a_missing_disk_is_no_fault(kafka: str, topic_prefix: str, changelog: Changelog, tmp_path: Path) -> None:
    assert found(await read_back(kafka, topic_prefix, tmp_path / "new"))["digest"] == expected(changelog)
