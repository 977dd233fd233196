"""The open-loop load generator against an echo on a real Kafka: it counts what happened, and only that."""

from typing import Any

import polars as pl
import pytest

from assay.schemas.transaction import Transaction
from assay.streams.load import Load, Payload, Topics, prepare
from assay.streams.load_process import LoadPlan, run_apart
from assay.streams.simulation_feed import feed
from assay.streams.simulator import simulate

pytestmark = pytest.mark.services
START_MS = 1_767_225_600_000


def payloads(count: int) -> list[Payload]:
    payments = simulate(seed=3, transactions=count, start_ms=START_MS, rate=500, users=50)
    return prepare((payment.transaction for payment in payments), stamped=True)


@pytest.fixture
def topics(echo: Any, topic_prefix: str) -> Topics:
    return Topics(echo.transactions, f"{topic_prefix}load.reply", echo.decisions)


async def test_all_are_sent_answered_and_timed(echo: Any, topics: Topics) -> None:
    load = Load({"bootstrap_servers": echo.bootstrap}, topics, payloads(300), rate=300, keep_replies=True)
    snapshots = []
    summary = (await load.run(snapshots.append, every_s=0.3)).summary()
    assert (summary["transactions"], summary["decisions"], summary["lost"]) == (300, 300, 0)
    assert (summary["duplicate"], summary["contradictory"], load.unsent, load.results.undecided) == (0, 0, 0, 0)
    assert 0 < summary["p50_ms"] <= summary["p99_ms"] <= summary["max_ms"]
    assert snapshots
    assert all(load.results.replies or [])


async def test_each_transaction_happens_when_it_was_due(echo: Any, topics: Topics) -> None:
    load = Load({"bootstrap_servers": echo.bootstrap}, topics, payloads(100), rate=500)
    await load.run()
    read = [Transaction.model_validate_json(record.value) for record in echo.seen]
    stamps = {transaction.transaction_id: transaction.timestamp.ms for transaction in read}
    assert len(stamps) == 100
    in_order = [stamps[name] for name in sorted(stamps)]
    assert in_order == sorted(in_order)
    assert 190 <= in_order[-1] - in_order[0] <= 206  # 99 gaps of 2 ms, and what the clock was set by meanwhile


async def test_what_is_not_answered_is_lost(echo: Any, topics: Topics) -> None:
    answers = echo.answers
    echo.answers = lambda echo, record: answers(echo, record) if record.offset % 2 else []
    load = Load({"bootstrap_servers": echo.bootstrap}, topics, payloads(100), rate=500, grace_s=2)
    summary = (await load.run()).summary()
    assert summary["lost"] == sum(record.offset % 2 == 0 for record in echo.seen) > 0


async def test_a_second_answer_is_a_duplicate_and_another_one_a_contradiction(echo: Any, topics: Topics) -> None:
    answers = echo.answers

    def twice(echo: Any, record: Any) -> list[bytes]:
        first = answers(echo, record)
        return [*first, first[0] if record.offset % 2 else first[0].replace(b"approve", b"decline")]

    echo.answers = twice
    load = Load({"bootstrap_servers": echo.bootstrap}, topics, payloads(100), rate=500)
    results = await load.run()
    assert results.contradictory <= sum(record.offset % 2 == 0 for record in echo.seen)
    assert results.contradictory > 0
    assert results.duplicate > results.contradictory


async def test_a_run_apart_tells_its_summary_and_writes_its_results(echo: Any, topic_prefix: str, tmp_path: Any) -> None:
    plan = LoadPlan(
        rate=200, transactions=200, seed=5, users=50, bootstrap_servers=echo.bootstrap, topic_prefix=topic_prefix,
        every_s=0.3, check_decisions=True, results=str(tmp_path / "results.parquet"),
    )  # fmt: skip
    events = [event async for event in run_apart(plan)]
    assert events[0] == {"event": "prepared", "transactions": 200}
    assert [event["event"] for event in events[1:-1]] == ["snapshot"] * (len(events) - 2)
    summary = events[-1]
    assert (summary["event"], summary["decisions"], summary["lost"], summary["undecided"]) == ("summary", 200, 0, 0)
    rows = pl.read_parquet(tmp_path / "results.parquet")
    assert len(rows) == 200
    assert rows["latency_ms"].null_count() == 0
    assert set(rows["action"]) == {"approve"}


async def test_a_run_that_is_given_up_ends_its_process(echo: Any, topic_prefix: str) -> None:
    plan = LoadPlan(rate=10, transactions=10_000, seed=5, bootstrap_servers=echo.bootstrap, topic_prefix=topic_prefix)
    run = run_apart(plan)
    assert (await anext(run))["event"] == "prepared"
    await run.aclose()


async def test_payments_and_their_outcomes_are_fed_to_their_topics(echo: Any, topic_prefix: str) -> None:
    payments = simulate(seed=3, transactions=100, start_ms=START_MS, rate=1_000, users=50)
    fed = await feed(
        payments,
        options={"bootstrap_servers": echo.bootstrap},
        transactions_topic=echo.transactions,
        outcomes_topic=echo.decisions,
        rate=1_000,
        hurry=100_000,
    )
    assert fed.transactions == 100
    assert fed.outcomes > 50
    assert fed.outcomes + fed.waiting >= 100
