"""A Kafka of our own that may be stopped, killed and started again, with one more listener for each link (`links`)."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from assay.deploy import kafka_local
from assay.deploy.ports import free_port
from assay.deploy.probes import kafka_answers

GUARD = Path(__file__).with_name("guard.py")
START_TIMEOUT_S, STOP_TIMEOUT_S = 90.0, 30.0
POLL_S = 0.05
# A client that enters by a link's listener is sent back to the link.
_LISTENERS = """
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}{listening}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{advertised}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}
log.cleaner.backoff.ms=500
"""


class Broker:
    """One KRaft node with its data in `folder`, on the same ports each time it is started.

    Args:
        advertised: for each link, the port that clients behind it are told.

    Attributes:
        bootstrap: HOST:PORT for whoever is behind no link.
        link_ports: for each link, the port that it leads to.
    """

    def __init__(self, folder: Path, advertised: Sequence[int]) -> None:
        self._folder, self._advertised = folder, list(advertised)
        self._port, self._controller_port = free_port(), free_port()
        self.link_ports = [free_port() for _ in advertised]
        self.bootstrap = f"127.0.0.1:{self._port}"
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self.turn = asyncio.Lock()  # for whoever stops and starts it

    def prepare(self) -> None:
        """Fetch what is missing, format the folder. Raises ServiceError."""
        links = [(f"LINK{i}", port, told) for i, (port, told) in enumerate(zip(self.link_ports, self._advertised, strict=True))]
        listeners = _LISTENERS.format(
            port=self._port,
            controller_port=self._controller_port,
            listening="".join(f",{name}://127.0.0.1:{port}" for name, port, _ in links),
            advertised="".join(f",{name}://127.0.0.1:{told}" for name, _, told in links),
            protocols="".join(f",{name}:PLAINTEXT" for name, _, _ in links),
        )
        self._command = kafka_local.prepare(
            self._folder, kafka_local.find_java(), kafka_local.fetch_jars(), self._port, self._controller_port, listeners
        )

    async def start(self) -> None:
        """Return once it answers."""
        self._launch()
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await asyncio.to_thread(kafka_answers, self.bootstrap):
                assert self._guard is not None, "it was launched"
                assert self._guard.poll() is None, f"the broker ended while it started: see {self._folder}"
                await asyncio.sleep(POLL_S)

    def _launch(self) -> None:
        with (self._folder / "broker.out").open("ab") as out:
            self._guard = subprocess.Popen(
                [sys.executable, str(GUARD), *self._command],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, start_new_session=True,
            )  # fmt: skip
        assert self._guard.stdout is not None
        self._pid = int(self._guard.stdout.readline())

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal, and wait for it."""
        if self._guard is None:
            return
        os.kill(self._pid, number)
        try:
            await asyncio.to_thread(self._guard.wait, STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.kill(self._pid, signal.SIGKILL)
            await asyncio.to_thread(self._guard.wait)
        self._guard = None
