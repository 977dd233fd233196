"""Entity windows on a Redis Cluster of three nodes: the same bits as anywhere, whichever node is asked first."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from assay.deploy import redis_cluster
from assay.deploy.check import State
from assay.deploy.ports import free_port
from assay.deploy.redis_cluster import LocalCluster, local_cluster
from assay.deploy.service_checks import redis_check
from assay.schemas.errors import ServiceError
from assay.streams.settings import Settings
from assay.tables.redis_link import RedisLink
from assay.tables.redis_sweep import sweep

from .entity_cluster import PREFIX, SHARDS, node_of, slot_of
from .entity_payments import assert_same, expected, fresh, observe, payments

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


async def test_six_shards_on_three_nodes_give_the_bits_of_the_offline_fold(cluster: LocalCluster) -> None:
    events, partitions = payments(2_000, few=300)
    entities = fresh(cluster.url, prefix=PREFIX, shards=SHARDS)
    await entities.start()
    answer = await observe(entities, events, partitions, 64)
    await entities.close()
    assert {node_of(slot_of(shard)) for shard in range(SHARDS)} == {0, 1, 2}
    assert_same(answer, expected(events))


@pytest.mark.parametrize("node", [0, 1, 2])
async def test_any_node_will_do_for_a_start(cluster: LocalCluster, node: int) -> None:
    events, partitions = payments(100)
    entities = fresh(f"redis://127.0.0.1:{cluster.ports[node]}/0", shards=SHARDS)
    await entities.start()
    answer = await observe(entities, events, partitions)
    await entities.close()
    assert_same(answer, expected(events))


async def test_a_node_of_the_url_that_is_gone_hinders_no_start(cluster: LocalCluster) -> None:
    events, partitions = payments(100)
    entities = fresh(f"redis://127.0.0.1:1,127.0.0.1:{cluster.ports[1]}", shards=SHARDS)
    await entities.start()
    answer = await observe(entities, events, partitions)
    await entities.close()
    assert_same(answer, expected(events))


@pytest.mark.parametrize("taken", ["client", "bus"])
def test_a_port_that_somebody_takes_before_a_node_binds_it_is_replaced(
    taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        lost = somebody.getsockname()[1]
        offers = iter([lost] if taken == "client" else [free_port(), free_port(), free_port(), lost])
        monkeypatch.setattr(redis_cluster, "free_port", lambda: next(offers, None) or free_port())
        with local_cluster(tmp_path) as cluster:
            assert f":{lost}" not in cluster.url
            assert cluster.ask(0, "PING")


async def test_a_database_that_the_cluster_does_not_have_is_named(cluster: LocalCluster) -> None:
    entities = fresh(f"redis://127.0.0.1:{cluster.ports[0]}/5")
    with pytest.raises(ServiceError, match="no such database"):
        await entities.start()
    await entities.close()


def test_the_doctor_finds_the_cluster_well_whichever_node_it_asks(cluster: LocalCluster) -> None:
    for url in (cluster.url, f"redis://127.0.0.1:{cluster.ports[2]}"):
        check = redis_check(Settings.load(redis_url=SecretStr(url), redis_shards=16))
        assert (check.state, "3 masters" in check.found) == (State.OK, True), check


def test_the_doctor_tells_of_a_master_that_evicts(cluster: LocalCluster) -> None:
    cluster.ask(2, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    check = redis_check(Settings.load(redis_url=SecretStr(cluster.url)))
    cluster.ask(2, "CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert check.state is State.WARN
    assert "allkeys-lru" in check.found


async def test_a_sweep_finds_and_deletes_the_keys_of_every_node_and_no_others(own_cluster: LocalCluster) -> None:
    events, partitions = payments(500, few=100)
    ours, others = (fresh(own_cluster.url, prefix=prefix, shards=SHARDS) for prefix in (PREFIX, "other"))
    counts = []
    for entities in (others, ours):
        await observe(entities, events, partitions)
        await entities.close()
        counts.append(sum(own_cluster.ask(node, "DBSIZE") for node in range(3)))
    link = RedisLink(own_cluster.url)
    await link.connect()
    turns: list[int] = []
    found = [await sweep(link, f"{{{PREFIX}:*}}:*", delete=delete, found=turns.append) for delete in (False, True, False)]
    await link.disconnect()
    assert found == [counts[1] - counts[0], counts[1] - counts[0], 0]
    assert turns[-1] == 0
    assert sum(own_cluster.ask(node, "DBSIZE") for node in range(3)) == counts[0]


async def test_the_password_of_the_url_is_given_to_every_node(own_cluster: LocalCluster) -> None:
    for node in range(3):
        await asyncio.to_thread(own_cluster.ask, node, "CONFIG", "SET", "requirepass", "a-word")
    events, partitions = payments(100)
    entities = fresh(own_cluster.url.replace("//", "//:a-word@"), prefix=PREFIX, shards=SHARDS)
    await entities.start()
    answer = await observe(entities, events, partitions)
    await entities.close()
    assert_same(answer, expected(events))
    strangers = fresh(own_cluster.url, prefix=PREFIX, shards=SHARDS)
    with pytest.raises(ServiceError, match="credentials"):
        await strangers.start()
    await strangers.close()
