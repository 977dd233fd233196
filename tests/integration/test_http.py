"""What an operator sees of a worker: its port, its metrics and its log."""

import orjson
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from assay.streams.metrics import STAGES, Metrics
from assay.streams.simulator import simulate

from .conftest import START_MS
from .topics import PARTITIONS, Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]
WORD = "Eve-Mallory"  # in every field of a user that may hold text; nothing of it may be logged


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def traffic(topics: Topics) -> None:
    """Payments of a simulated crowd, a large one, a refused one, a tombstone and a lost reply."""
    crowd = [payment.transaction for payment in simulate(seed=4, transactions=300, start_ms=START_MS, users=6, fraud_share=0.1)]
    await topics.send_all(crowd)
    await topics.send(
        transaction("large", WORD, amount="99999", attributes={WORD: WORD}, device={"id": WORD, "ip": "203.0.113.9"})
    )
    await topics.send(transaction("refused", WORD, amount="12.345"))
    await topics.send(None, key=b"nobody")
    await topics.send(transaction("unheard", WORD), headers=[("reply-to", b"elsewhere"), ("correlation-id", WORD.encode())])
    await topics.settled()


async def test_every_metric_is_served_with_its_meaning(worker: WorkerProcess) -> None:
    status, text = worker.get("/metrics")
    assert status == 200
    served = {family.name: family for family in text_string_to_metric_families(text)}
    declared = {family.name: family for family in Metrics().registry.collect()}
    assert declared.keys() <= served.keys()
    assert all(served[name].documentation and served[name].type == family.type for name, family in declared.items())


async def test_metrics_tell_what_became_of_every_record(worker: WorkerProcess) -> None:
    metrics = worker.metrics()

    def total(name: str) -> float:
        return sum(value for (sample, _), value in metrics.items() if sample == name)

    assert total("assay_transactions_total") == 304
    assert total("assay_decisions_total") == 302
    assert total("assay_dead_letters_total") == worker.metric("assay_dead_letters_total", code="invalid") == 1
    assert total("assay_tombstones_total") == 1
    assert total("assay_decision_latency_seconds_count") == 302
    assert worker.metric("assay_replies_total", result="not_allowed") == 1
    assert total("assay_micro_batch_transactions_sum") == 304


async def test_stages_release_reasons_and_lag_are_measured(worker: WorkerProcess) -> None:
    metrics = worker.metrics()
    batches = sum(value for (name, _), value in metrics.items() if name == "assay_micro_batches_total")
    assert batches >= 1
    for stage in STAGES:  # rows of several micro-batches may be remembered at once
        assert 1 <= metrics["assay_stage_seconds_count", frozenset({("stage", stage)})] <= batches
    releases = {dict(labels)["release"] for name, labels in metrics if name == "assay_micro_batches_total"}
    assert releases <= {"size", "bytes", "age", "idle"}
    lag = {dict(labels)["partition"]: value for (name, labels), value in metrics.items() if name == "assay_lag_records"}
    assert lag.keys() <= {str(partition) for partition in range(PARTITIONS)}
    assert metrics["assay_assigned_partitions", frozenset()] == PARTITIONS


async def test_what_is_served_is_named(worker: WorkerProcess) -> None:
    [(labels, value)] = [(dict(its), v) for (name, its), v in worker.metrics().items() if name == "assay_build_info"]
    assert value == 1
    assert len(labels["bundle"]) == 64
    assert labels["rules"]


async def test_health_is_served_and_nothing_else(worker: WorkerProcess) -> None:
    assert worker.get("/livez") == worker.get("/readyz") == (200, "ok\n")
    for path in ("/", "/table/profiles", "/metrics/", "/graph", "/stats", "/.env"):
        assert worker.get(path)[0] == 404
    assert worker.get("/metrics", "POST")[0] == 405


async def test_logs_are_json_lines_that_name_declines_and_no_user(worker: WorkerProcess, topics: Topics) -> None:
    lines = [orjson.loads(line) for line in worker.log.splitlines()]
    assert all({"event", "level", "logger", "timestamp", "worker"} <= line.keys() for line in lines)
    declined = {
        decision["transaction_id"]
        for decision in (orjson.loads(record.value) for record in topics.seen["decisions"])
        if decision["action"] == "decline"
    }
    assert declined
    logged = {line.get("transaction_id") for line in lines}
    assert declined <= logged
    users = {orjson.loads(record.value)["user_id"] for record in topics.seen["decisions"]}
    for secret in (*users, WORD, "203.0.113.9"):
        assert secret not in worker.log
