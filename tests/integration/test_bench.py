"""The benchmark runs from its command line, ends in one line of JSON, and leaves nothing behind. No figure is judged."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.deploy.services import Running

ROOT = Path(__file__).parents[2]
KEYS = [
    "drain_per_s", "drain_vs_faust", "drain_vs_floor", "p99_ms_500", "p99_ms_2000", "p99_ms_5000", "p999_ms_5000", "cpu_us",
]  # fmt: skip
BENCH = [
    sys.executable, str(ROOT / "perf" / "bench.py"), "--quick", "--only", "drain", "--transactions", "2000",
    "--faust-transactions", "300", "--users", "200",
]  # fmt: skip

pytestmark = pytest.mark.services


@pytest.fixture
def bench_environment(services: Running, tmp_path: Path) -> dict[str, str]:
    """The session's services, and a place for temporary folders that can be looked into."""
    return os.environ | {
        "ASSAY_BOOTSTRAP_SERVERS": services.bootstrap_servers,
        "ASSAY_REDIS_URL": services.redis_url,
        "TMPDIR": str(tmp_path),
    }


@pytest.fixture
def command(bundle_path: Path) -> list[str]:
    """A small drain of all three contenders."""
    return [*BENCH, "--bundle", str(bundle_path)]


def test_a_drain_ends_in_one_line_with_every_figure(
    bench_environment: dict[str, str], command: list[str], tmp_path: Path
) -> None:
    ran = subprocess.run(command, env=bench_environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(ran.stdout.splitlines()[-1])
    assert list(figures) == KEYS
    assert [name for name in KEYS if figures[name] is None] == [name for name in KEYS if "ms" in name]
    assert not list(tmp_path.glob("assay-bench-*"))


def test_asking_at_a_low_rate_ends_in_one_line_with_every_figure(
    bench_environment: dict[str, str], bundle_path: Path, tmp_path: Path
) -> None:
    few = ["--rates", "20", "--seconds", "2", "--warmup", "1", "--workers", "1", "--users", "50", "--repeat", "1"]
    ask = [sys.executable, str(ROOT / "perf" / "ask.py"), *few, "--bundle", str(bundle_path)]
    ran = subprocess.run(ask, env=bench_environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(ran.stdout.splitlines()[-1])
    assert {"p50_ms", "p99_ms", "vs_bare"} <= figures.keys()
    assert None not in figures.values()
    assert not list(tmp_path.glob("assay-ask-*"))


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_a_benchmark_that_is_stopped_stops_what_it_started(
    bench_environment: dict[str, str], command: list[str], tmp_path: Path, ended_by: signal.Signals
) -> None:
    with subprocess.Popen(command, env=bench_environment, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as bench:
        assert bench.stderr is not None
        for line in bench.stderr:
            if "drain 1 of 1: assay" in line:
                break
        # Until what it has started has a folder, not only a log: stopped amid a start, it can't know what it has to stop.
        while not list(tmp_path.glob("assay-bench-*/*/worker.lock")) and bench.poll() is None:
            time.sleep(0.05)
        bench.send_signal(ended_by)
        rest = bench.stderr.read()
        status = bench.wait()
    assert status == {signal.SIGINT: 130, signal.SIGTERM: 143}[ended_by], rest
    assert not list(tmp_path.glob("assay-bench-*"))
    left = subprocess.run(["ps", "-A", "-o", "command="], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in left


def test_what_can_not_be_asked_for_is_refused() -> None:
    command = [sys.executable, str(ROOT / "perf" / "bench.py"), "--repeat", "0"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "0 is not above 0" in ran.stderr
