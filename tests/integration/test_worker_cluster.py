"""A worker whose Redis is a cluster: windows, look-ups and outcomes, all from three nodes."""

from collections.abc import Iterator

import orjson
import pytest

from assay.deploy.redis_cluster import LocalCluster, local_cluster
from assay.streams.simulator import simulate

from .conftest import START_MS
from .topics import Topics

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def environment(environment: dict[str, str], cluster: LocalCluster) -> dict[str, str]:
    """The same deployment on the cluster."""
    return environment | {"ASSAY_REDIS_URL": cluster.url, "ASSAY_REDIS_SHARDS": "12"}


async def test_every_payment_is_judged_in_the_full_tier_and_every_outcome_learnt(topics: Topics, cluster: LocalCluster) -> None:
    payments = [each.transaction for each in simulate(seed=9, transactions=200, start_ms=START_MS, users=40)]
    await topics.send_all(payments)
    await topics.settled()
    outcome = {"status": "fraud", "known_at": START_MS}
    ids = [{name: payment[name] for name in ("user_id", "transaction_id")} for payment in payments[:20]]
    await topics.tell(*({**one, **outcome, "outcome_id": f"o-{number}"} for number, one in enumerate(ids)))
    await topics.learnt()
    tiers = [orjson.loads(record.value)["tier"] for record in topics.seen["decisions"]]
    assert tiers == ["full"] * len(payments)
    assert len(topics.seen["changes"]) >= len(ids)
    assert all(cluster.ask(node, "DBSIZE") > 0 for node in range(3))
