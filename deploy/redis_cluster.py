"""A Redis Cluster of this machine's processes, for tests and benchmarks: masters alone, and as many replicas as wanted."""

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from redis import Redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS
from redis.exceptions import RedisError

from assay.deploy.ports import free_port
from assay.deploy.redis_local import command, find_server
from assay.schemas.errors import ServiceError

NODE_TIMEOUT_MS = 1_000  # until the others take a node for dead
READY_TIMEOUT_S = 60.0
_PORT_TRIES = 5  # somebody may take a port between our look and its bind
_POLL_S = 0.05


class LocalCluster:
    """The processes of a cluster, each of which can be killed, stopped and started again."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self._folder = folder
        self.ports = [free_port() for _ in range(nodes)]
        self._bus_ports = [free_port() for _ in range(nodes)]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """Of all nodes, as `ASSAY_REDIS_URL` takes it."""
        return f"redis://{','.join(f'127.0.0.1:{port}' for port in self.ports)}/0"

    def ask(self, node: int, *words: str | int | bytes) -> Any:
        """One command to one node, and its reply as redis-py gives it. Raises redis.RedisError or OSError."""
        with Redis(port=self.ports[node], protocol=2, socket_timeout=READY_TIMEOUT_S) as client:
            return client.execute_command(*words)

    def start(self, node: int, *options: str) -> None:
        """Start a node and wait until it answers; what it knew of the cluster is in its folder. Raises ServiceError."""
        for _ in range(_PORT_TRIES):
            process = self._processes[node] = self._process(node, options)
            self._wait(f"node {node} does not answer", partial(self._came_up_or_ended, node, process))
            if process.returncode is None:
                return
            if "Address already in use" not in self._log(node).read_text():
                break
            self.ports[node], self._bus_ports[node] = free_port(), free_port()
        raise ServiceError(f"node {node} ended while it started", got=self._log(node).read_text()[-500:])

    def _came_up_or_ended(self, node: int, process: subprocess.Popen[bytes]) -> bool:
        if process.poll() is not None:
            return True
        with Redis(port=self.ports[node], protocol=2, socket_timeout=_POLL_S) as client:  # maybe somebody else's port
            return bool(client.info("server").get("process_id") == process.pid)

    def _process(self, node: int, options: tuple[str, ...]) -> subprocess.Popen[bytes]:
        bus = ("--cluster-enabled", "yes", "--cluster-port", str(self._bus_ports[node]))
        timeout = ("--cluster-node-timeout", str(NODE_TIMEOUT_MS))
        line = command(find_server(), self._folder / str(node), self.ports[node], keep=False)
        with self._log(node).open("wb") as log:
            return subprocess.Popen([*line, *bus, *timeout, *options], stdout=log)

    def _log(self, node: int) -> Path:
        return self._folder / str(node) / "log"

    def signal(self, node: int, number: int) -> None:
        os.kill(self._processes[node].pid, number)

    def kill(self, node: int) -> None:
        process = self._processes.pop(node)
        process.kill()
        process.wait()

    def join(self, masters: int) -> None:
        """Give all slots to the first nodes, make the others replicas of those, in turn. Raises ServiceError."""
        edges = [REDIS_CLUSTER_HASH_SLOTS * node // masters for node in range(masters + 1)]
        for node in range(masters):
            self.ask(node, "CLUSTER", "ADDSLOTSRANGE", edges[node], edges[node + 1] - 1)
        for port, bus in zip(self.ports[1:], self._bus_ports[1:], strict=True):
            self.ask(0, "CLUSTER", "MEET", "127.0.0.1", port, bus)
        self.wait_until_well(range(len(self.ports)))
        for node in range(masters, len(self.ports)):
            self.ask(node, "CLUSTER", "REPLICATE", self.id_of(node % masters))
            self._wait("a replica has no copy", partial(self._has_copy, node))

    def _has_copy(self, replica: int) -> bool:
        return bool(self.ask(replica, "INFO", "replication").get("master_link_status") == "up")

    def wait_until_copied(self, master: int, replica: int) -> None:
        """Return once the replica has all that the master has. Raises ServiceError."""
        self._wait("the replica lags behind", lambda: self._offset(master) == self._offset(replica))

    def _offset(self, node: int) -> object:
        return self.ask(node, "INFO", "replication").get("master_repl_offset")

    def wait_until_well(self, nodes: Iterable[int]) -> None:
        """Return once each of these nodes knows all others and serves. Raises ServiceError."""
        for node in nodes:
            self._wait("the cluster is not well", partial(self._well, node))

    def _well(self, node: int) -> bool:
        wanted = (b"cluster_state:ok", b"cluster_known_nodes:%d\r" % len(self.ports))
        facts = self.ask(node, "CLUSTER", "INFO")
        return all(fact in facts for fact in wanted)

    def id_of(self, node: int) -> str:
        return str(self.ask(node, "CLUSTER", "MYID").decode())

    def stop(self) -> None:
        for node in tuple(self._processes):
            self.kill(node)

    def _wait(self, what: str, condition: Callable[[], object]) -> None:
        until = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < until:
            with suppress(RedisError, OSError):
                if condition():
                    return
            time.sleep(_POLL_S)
        raise ServiceError(what, expected=f"that within {READY_TIMEOUT_S:.0f} s", mend=f"see {self._folder}")


@contextmanager
def local_cluster(folder: Path, *, masters: int = 3, replicas: int = 0) -> Iterator[LocalCluster]:
    """A cluster of so many masters, with so many replicas in all, ended afterwards. Raises ServiceError."""
    cluster = LocalCluster(folder, masters + replicas)
    try:
        for node in range(masters + replicas):
            cluster.start(node)
        cluster.join(masters)
        yield cluster
    finally:
        cluster.stop()
