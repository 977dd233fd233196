"""Redis behind TLS, with users that may do what `assay acls` lists: what is allowed is used, and what is used is allowed."""

import asyncio
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from redis import Redis

from assay.deploy.acls import Role
from assay.deploy.probes import ask_redis
from assay.deploy.redis_acl import redis_commands, redis_rules
from assay.schemas.errors import ServiceError
from assay.streams.settings import Settings
from assay.tables.entities import Entities
from assay.tables.redis_link import RedisLink
from assay.tables.redis_sweep import sweep

from .own_redis import OwnRedis
from .tls_front import tls_front
from .topics import Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]
PASSWORD, PATIENCE_S = "correct-horse", 60.0
OURS = {"acl|log", "acl|setuser", "config|resetstat", "info"}  # commands of this test itself
ALWAYS = {"auth"}  # needs no right
CLUSTER_ONLY = {"asking"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With ca.pem, whose server is called localhost and nothing else, and other-ca.pem, which nobody has asked."""
    folder = tmp_path_factory.mktemp("redis")
    trustme.CA().cert_pem.write_to_path(str(folder / "other-ca.pem"))
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[OwnRedis]:
    server = OwnRedis(folder / "data")
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def port(server: OwnRedis, folder: Path) -> Iterator[int]:
    """Where it speaks TLS."""
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    authority.issue_cert("localhost").configure_cert(context)
    with tls_front(context, server.port) as port:
        yield port


@pytest.fixture(scope="module")
def admin(server: OwnRedis, environment: dict[str, str]) -> Iterator[Redis]:
    """Somebody who may do all; the users are there."""
    with Redis.from_url(server.url) as admin:
        for role in (Role.WORKER, Role.OPERATOR):
            admin.execute_command("ACL", "SETUSER", role, "on", f">{PASSWORD}", *redis_rules(deployment(environment), role))
        yield admin


@pytest.fixture(scope="module")
def environment(environment: dict[str, str], port: int, folder: Path) -> dict[str, str]:
    """A deployment that reaches Redis so."""
    return environment | {"ASSAY_REDIS_URL": url(port, folder), "ASSAY_OUTCOME_DAYS": "3000"}


@pytest.fixture(scope="module")
def worker(environment: dict[str, str], folder: Path, admin: Redis) -> Iterator[WorkerProcess]:
    admin.config_resetstat()
    process = WorkerProcess("worker", folder, environment)
    process.start()
    process.wait_until_ready()
    yield process
    process.stop()


def url(port: int, folder: Path, *, ca: str = "ca.pem", host: str = "localhost", login: str = f"worker:{PASSWORD}") -> str:
    return f"rediss://{login}@{host}:{port}/0?ssl_ca_certs={folder / ca}"


def deployment(environment: dict[str, str]) -> Settings:
    return Settings.load(topic_prefix=environment["ASSAY_TOPIC_PREFIX"], redis_url=environment["ASSAY_REDIS_URL"])


def used(admin: Redis) -> set[str]:
    """The commands that somebody has called since the counts were reset."""
    return {name.removeprefix("cmdstat_") for name in admin.info("commandstats")} - OURS - ALWAYS


async def test_a_worker_uses_all_of_its_rights_and_needs_no_others(
    worker: WorkerProcess, topics: Topics, environment: dict[str, str], admin: Redis
) -> None:
    now = int(time.time() * 1000)
    body = transaction("t", "user-1", device={"id": "d-1", "ip": "203.0.113.7"})
    for number in range(40):  # more than a row waits for before it is compacted
        await topics.first(await topics.send(body | {"transaction_id": f"t-{number}", "timestamp": now}), "decisions")
    decision = topics.seen["decisions"][-1]
    outcome = {"outcome_id": "o-1", "user_id": "user-1", "transaction_id": "t-1", "status": "fraud", "known_at": now}
    await topics.tell(outcome)
    await topics.learnt()
    assert b'"tier":"full"' in decision.value
    assert admin.acl_log() == []
    assert used(admin) == set(redis_commands(deployment(environment), Role.WORKER)) - CLUSTER_ONLY


async def test_an_operator_sweeps_and_asks_for_facts_and_a_worker_may_not(
    worker: WorkerProcess, admin: Redis, port: int, folder: Path, environment: dict[str, str]
) -> None:
    pattern = f"{{{deployment(environment).entity_prefix}:*"
    operator = url(port, folder, login=f"operator:{PASSWORD}")
    link = RedisLink(operator)
    await link.connect()
    assert await sweep(link, pattern, delete=True, found=lambda _: None) > 0
    assert (await asyncio.to_thread(ask_redis, operator, 5.0)).functions
    await link.disconnect()
    assert admin.acl_log() == []
    link = RedisLink(url(port, folder))
    await link.connect()
    with pytest.raises(Exception, match="no permissions to run the 'scan' command"):
        await sweep(link, pattern, delete=True, found=lambda _: None)
    await link.disconnect()
    admin.execute_command("ACL", "LOG", "RESET")


async def test_keys_of_another_prefix_are_nobodys(admin: Redis, environment: dict[str, str]) -> None:
    ours = deployment(environment).entity_prefix
    for key, answer in ((f"{{{ours}:0}}:x", b"OK"), (f"{{other-{ours}:0}}:x", None), (f"{ours}", None)):
        said = admin.execute_command("ACL", "DRYRUN", Role.WORKER, "GET", key)
        assert (said == answer) is (answer is not None), said


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"ca": "other-ca.pem"}, "certificate verify failed"),
        ({"host": "127.0.0.1"}, "IP address mismatch|doesn't match"),
        ({"login": "worker:wrong"}, "refuses our credentials"),
        ({"login": f"nobody:{PASSWORD}"}, "refuses our credentials"),
    ],
)
async def test_who_is_not_who_was_expected_is_not_spoken_to(
    port: int, folder: Path, admin: Redis, wrong: dict, why: str
) -> None:
    entities = Entities(url(port, folder, **wrong), prefix="p", deadline=5.0)
    with pytest.raises(ServiceError, match=why):
        await entities.start()
    await entities.close()


async def test_in_the_clear_nothing_is_answered_where_tls_is_spoken(port: int) -> None:
    entities = Entities(f"redis://worker:{PASSWORD}@localhost:{port}/0", prefix="p", deadline=5.0)
    with pytest.raises(ServiceError, match="does not answer"):
        await entities.start()
    await entities.close()
