"""`assay worker` as operators run it: a process of its own, with an environment, a port and a log."""

import http.client
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from assay.deploy.ports import free_port
from assay.deploy.worker_process import worker_command

READY_TIMEOUT_S, STOP_TIMEOUT_S = 90.0, 30.0


class WorkerProcess:
    """One worker that a test may stop and start again, on the same data directory unless told otherwise."""

    def __init__(self, name: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.name, self.data_dir, self.port = name, folder / name, free_port()
        self.log_file, self._environment = folder / f"{name}.log", dict(environment)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, without waiting."""
        command = worker_command(self.name, self.data_dir, self.port)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=os.environ | self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def wait_until_ready(self) -> None:
        """Return once /readyz says so."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline and self.running:
            try:
                if self.get("/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"{self.name} does not score; the end of its log:\n{self.log[-3000:]}")

    def stop(self) -> int:
        """As Kubernetes does: SIGTERM, and wait. Returns the exit status."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"{self.name} did not stop; the end of its log:\n{self.log[-3000:]}") from None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)

    @property
    def status(self) -> int | None:
        """How its last life ended; None while it runs, and before the first."""
        return None if self._process is None else self._process.poll()

    def restart(self) -> None:
        """Stop it, start it, and wait until it scores."""
        self.stop()
        self.start()
        self.wait_until_ready()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """All that it has written, of all its lives."""
        return self.log_file.read_text(errors="replace")

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        """Status and body of an answer of its port. Raises OSError where nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()

    def metrics(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """{(name, labels): value} of every sample."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}

    def metric(self, name: str, **labels: str) -> float:
        """One sample; 0 where it does not exist yet."""
        return self.metrics().get((name, frozenset(labels.items())), 0.0)
