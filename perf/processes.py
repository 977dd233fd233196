"""Processes that the benchmark measures: started, watched, and ended with it, whatever happens."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from assay.schemas.errors import ServiceError

STOP_TIMEOUT_S = 15.0


class Watched:
    """A child process with a log."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name, self._process, self._log = name, process, log
        self.pid = process.pid

    def cpu_s(self) -> float:
        """CPU seconds, user and system, of all of its threads so far. Raises ServiceError when it has ended."""
        self.must_run()
        return cpu_seconds(self.pid)

    def must_run(self) -> None:
        """Raises ServiceError with the end of its log when it has ended."""
        if self._process.poll() is not None:
            raise self.failure(f"ended with status {self._process.returncode}")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def log_lines(self) -> list[str]:
        """All that it has written."""
        return self._log.read_text(errors="replace").splitlines()

    def failure(self, what: str) -> ServiceError:
        """That, and the end of its log."""
        lines = self._log.read_text(errors="replace").strip().splitlines()[-12:]
        return ServiceError(f"{self.name} {what}", got="\n".join(["", *lines]) if lines else "nothing in its log")


@contextmanager
def running(name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[Watched]:
    """Run it as long as the block. It sees the benchmark's end as the end of its standard input, should that be killed.

    It has a session of its own: Ctrl-C is for the benchmark, which ends things in order. `folder` is where it runs, so that
    no `.env` of the checkout is read.
    """
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(command), cwd=folder, env=None if environment is None else dict(environment),
            stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        yield Watched(name, process, log)
    finally:
        _stop(process)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, some patience, SIGKILL."""
    try:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a running process: /proc on Linux (in ticks of 10 ms, see proc(5)), `ps` elsewhere."""
    if sys.platform == "linux":
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()  # the name may hold anything
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    answer = subprocess.run(["ps", "-o", "time=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return parse_ps_time(answer.stdout)


def parse_ps_time(text: str) -> float:
    """Seconds in what `ps -o time=` prints.

    >>> parse_ps_time("  1:02.50"), parse_ps_time("2-03:04:05")
    (62.5, 183845.0)
    """
    days, _, clock = text.strip().rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + int(days or 0) * 86_400


def sample_of(metrics: str, name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels in Prometheus' text format; 0 where there is none.

    >>> sample_of('a_total{stage="x",tier="full"} 2.0\\na_total{stage="y",tier="full"} 3.0', "a_total", tier="full")
    5.0
    """
    total = 0.0
    for found in re.finditer(rf"^{re.escape(name)}(?:\{{(.*)\}})? (\S+)$", metrics, re.MULTILINE):
        if all(f'{label}="{value}"' in (found[1] or "") for label, value in labels.items()):
            total += float(found[2])
    return total
