"""How a worker ends on purpose: at once, with the reason written, whatever else waits."""

import subprocess
import sys

import orjson
import pytest

from assay.streams.ending import EXIT_NOT_STARTED, EXIT_UNCOMMITTED

BEGINNING = """
from assay.schemas.errors import *
from assay.streams.ending import *
from assay.streams.logs import set_up_logs
set_up_logs("INFO", "json")
"""


def ended(program: str) -> tuple[int, list[str]]:
    """Exit status and lines of a process with logs as a worker has them."""
    answer = subprocess.run([sys.executable, "-c", BEGINNING + program], capture_output=True, text=True, check=False)
    return answer.returncode, answer.stderr.splitlines()


def test_the_reason_and_its_traceback_are_logged_before_the_process_is_gone() -> None:
    status, [logged, line] = ended("end_process('a micro-batch failed', ValueError('no such column'))")
    assert status == EXIT_UNCOMMITTED
    assert line == "assay: worker ends, uncommitted: a micro-batch failed: no such column"
    entry = orjson.loads(logged)
    assert (entry["event"], entry["level"]) == ("ending: a micro-batch failed", "critical")
    assert "ValueError: no such column" in entry["exception"]


@pytest.mark.parametrize("kind", ["TopologyError", "ChangelogError"])
def test_what_a_restart_does_not_mend_ends_as_what_somebody_has_to_mend(kind: str) -> None:
    status, [logged, line] = ended(f"end_process('partitions are not ours', {kind}('another topic', mend='rebuild'))")
    assert status == EXIT_NOT_STARTED
    assert line == "assay: worker ends, uncommitted: partitions are not ours: another topic. Mend: rebuild"
    assert "exception" not in orjson.loads(logged)


def test_what_keeps_a_worker_from_starting_is_one_line() -> None:
    status, lines = ended("refuse_to_start(ServiceError('port 1 is taken', mend='another'))")
    assert status == EXIT_NOT_STARTED
    assert lines == ["error: port 1 is taken. Mend: another"]
