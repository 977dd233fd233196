"""A small process that owns a stack's services: they end with it, and it ends with whoever asked for them.

Started by `services` as `python -m assay.deploy.supervisor PLAN`, with a pipe as stdin and another as stdout:

- stdin is never written to. It reports the owner's death, kill -9 included, since the kernel then closes its end. A
  process forked by the owner may hold a copy of that end, so the parent's pid is watched too.
- stdout takes lines of JSON: any number of {"step"}, then one {"ready"} or one {"error"}.
- FOLDER/lock is held (flock) by this process *and by what it starts*, which inherit it: while it is held something of the
  stack lives, and the process group named in it is ours. No pid is ever mistaken for another.
"""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from assay.deploy import containers, kafka_local, redis_local
from assay.deploy.ports import free_port, is_free
from assay.deploy.probes import kafka_answers, redis_answers
from assay.schemas.errors import ServiceError

START_TIMEOUT_S = 90.0  # a broker needs 4 s, more on a machine that is busy with other things
STOP_TIMEOUT_S = 10.0  # for a clean end, where data is kept; then kill
_PORT_TRIES = 3
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. Ports: None where the service isn't wanted, 0 for any free one."""

    folder: str
    containers: bool  # else local processes
    kafka_port: int | None = None
    redis_port: int | None = None
    java: str = ""
    jars: str = ""
    redis_server: str = ""
    keep: bool = False  # leave the folder and end cleanly; else kill and remove
    detached: bool = False  # once ready, outlive the owner


@dataclass(frozen=True, slots=True)
class State:
    """FOLDER/state.json, and what {"ready"} holds."""

    supervisor: int
    bootstrap_servers: str = ""
    redis_url: str = ""
    origin: str = "local process"
    pids: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Service:
    """One started service."""

    name: str
    port: int
    answers: Callable[[], bool]
    process: subprocess.Popen[bytes] | None = None
    container: Any = None
    log: Path | None = None

    def tail(self) -> str:
        """The end of its log, on one line, without the frames of stack traces."""
        texts = [path.read_text(errors="replace") for path in self._logs() if path.is_file()]
        lines = [line.strip() for line in "".join(texts).splitlines()]
        return " | ".join([line for line in lines if line and not line.startswith(("at ", "... "))][-6:])[-1500:]

    def _logs(self) -> list[Path]:
        return [self.log, self.log.with_suffix(".out")] if self.log else []

    def stop(self, *, clean: bool) -> None:
        if self.container is not None:
            with contextlib.suppress(Exception):  # an engine that has gone has taken the container along
                self.container.stop()
        if self.process is None or self.process.poll() is not None:
            return
        if clean:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_TIMEOUT_S)
        self.process.kill()
        self.process.wait()


class Ended(Exception):
    """The owner has gone, or a signal asked for the end."""


class Watch:
    """Whether to go on: `pause` sleeps a little and raises Ended when the owner has gone or a signal came."""

    def __init__(self) -> None:
        self._owner = os.getppid()
        self._stdin: list[int] = [sys.stdin.fileno()]
        self._signalled = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        self._signalled = True

    def let_go(self) -> None:
        """From now on the owner may end."""
        self._owner, self._stdin = 0, []

    def pause(self) -> None:
        readable, _, _ = select.select(self._stdin, [], [], _POLL_S)
        closed = bool(readable) and not os.read(readable[0], 1)
        if closed or self._signalled or (self._owner and os.getppid() != self._owner):
            raise Ended


def say(**line: Any) -> None:
    """One line to the owner, who may have gone."""
    with contextlib.suppress(OSError):
        print(json.dumps(line), flush=True)


def hold(folder: Path) -> IO[str]:
    """The folder's lock, held until every process that inherits it has ended. Raises ServiceError when it is held."""
    lock = (folder / "lock").open("a+")
    for last in (False, False, False, True):  # `status` holds it for a moment while it looks
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if last:
                raise ServiceError(
                    f"services run in {folder} already", mend=f"stop them: assay services down --folder {folder}"
                ) from None
            time.sleep(_POLL_S)
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


class Stack:
    """The services of one plan."""

    def __init__(self, plan: Plan, watch: Watch, lock: IO[str]) -> None:
        self._plan, self._watch, self._lock = plan, watch, lock
        self._folder = Path(plan.folder)
        self._services: list[Service] = []

    def start(self) -> State:
        """Starts what the plan wants and waits until it answers. Raises ServiceError, Ended."""
        wanted = {"redis": (self._plan.redis_port, self._redis), "kafka": (self._plan.kafka_port, self._kafka)}
        ports = {name: self._port(name, port) for name, (port, _) in wanted.items() if port is not None}
        for name, port in ports.items():
            say(step=f"starting {name}")
            self._services.append(wanted[name][1](port))
        for index, service in enumerate(self._services):
            tries = 1
            while not self._came_up(service):
                tail = service.tail()
                seen = f"; all of it is in {service.log}" if self._plan.keep else ""
                if "Address already in use" not in tail or getattr(self._plan, f"{service.name}_port") or tries == _PORT_TRIES:
                    raise ServiceError(
                        f"{service.name} ended while it started", got=tail or "no log", mend=f"mend what its log says{seen}"
                    )
                tries += 1  # somebody took the port between our look and its bind
                service = self._services[index] = wanted[service.name][1](free_port())
        return self._state()

    def check(self) -> None:
        """Raises ServiceError when a service has ended by itself."""
        for service in self._services:
            if service.process is not None and service.process.poll() is not None:
                raise ServiceError(f"{service.name} has ended, exit code {service.process.returncode}", got=service.tail())

    def stop(self) -> None:
        for service in reversed(self._services):
            service.stop(clean=self._plan.keep)

    def _came_up(self, service: Service) -> bool:
        """Whether it answers, in the end; False when its process has ended. Raises ServiceError, Ended."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if service.process is not None and service.process.poll() is not None:
                return False
            if service.answers():
                return True
            self._watch.pause()
        raise ServiceError(
            f"{service.name} does not answer", expected=f"an answer within {START_TIMEOUT_S:.0f} s", got=service.tail()
        )

    def _state(self) -> State:
        ports = {service.name: service.port for service in self._services}
        return State(
            supervisor=os.getpid(),
            bootstrap_servers=f"127.0.0.1:{ports['kafka']}" if "kafka" in ports else "",
            redis_url=f"redis://127.0.0.1:{ports['redis']}/0" if "redis" in ports else "",
            origin="container" if self._plan.containers else "local process",
            pids={service.name: service.process.pid for service in self._services if service.process is not None},
        )

    def _port(self, name: str, port: int) -> int:
        if port and not is_free(port):
            raise ServiceError(
                f"port {port} is taken, {name} can't have it",
                mend=f"stop what listens there, or give another with --{name}-port, or none for any that is free",
            )
        return port or free_port()

    def _kafka(self, port: int) -> Service:
        answers = partial(kafka_answers, f"127.0.0.1:{port}")
        if self._plan.containers:
            return Service("kafka", port, answers, container=containers.start_kafka(port))
        folder = self._folder / "kafka"
        command = kafka_local.prepare(folder, self._plan.java, Path(self._plan.jars), port, free_port())
        return Service("kafka", port, answers, self._run(command, folder / "kafka.log"), log=folder / "kafka.log")

    def _redis(self, port: int) -> Service:
        answers = partial(redis_answers, port)
        if self._plan.containers:
            return Service("redis", port, answers, container=containers.start_redis(port))
        folder = self._folder / "redis"
        command = redis_local.command(self._plan.redis_server, folder, port, keep=self._plan.keep)
        return Service("redis", port, answers, self._run(command, folder / "redis.log"), log=folder / "redis.log")

    def _run(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        log.unlink(missing_ok=True)
        with log.with_suffix(".out").open("wb") as out:
            # In this process's group, and with the lock: `down` relies on both.
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=(self._lock.fileno(),))


def run(plan: Plan) -> None:
    """Runs the plan until its owner goes, a signal comes or a service ends. Raises ServiceError."""
    folder, watch = Path(plan.folder), Watch()
    state_file = folder / "state.json"
    with hold(folder) as lock:
        stack = Stack(plan, watch, lock)
        try:
            state = stack.start()
            half_written = state_file.with_suffix(".partial")
            half_written.write_text(json.dumps(asdict(state)))
            half_written.replace(state_file)
            say(ready=asdict(state))
            if plan.detached:
                watch.let_go()
                _leave_pipes()
            while True:
                watch.pause()
                stack.check()
        except Ended:
            pass
        finally:
            stack.stop()
            state_file.unlink(missing_ok=True)
            if not plan.keep:
                shutil.rmtree(folder, ignore_errors=True)


def _leave_pipes() -> None:
    """Lets the owner's pipes go, so that it isn't kept waiting for their end."""
    with Path(os.devnull).open("r+b") as nothing:
        for number in (0, 1):
            os.dup2(nothing.fileno(), number)


def main() -> int:
    plan = Plan(**json.loads(sys.argv[1]))
    try:
        run(plan)
    except ServiceError as error:
        say(error={"what": error.what, "expected": error.expected, "got": error.got, "mend": error.mend})
        print(error, file=sys.stderr)
        return 1
    except Exception as error:  # most likely of the engine of containers
        say(error={"what": f"services could not be started: {type(error).__name__}: {error}", "mend": "assay doctor"})
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
