"""The whole worker on a real Kafka and Redis: what comes out for a transaction, and for the same one again."""

from typing import Any

import numpy as np
import orjson
import pytest
from aiokafka.structs import ConsumerRecord

from assay.schemas.decision import Action, Decision, Tier
from assay.schemas.evidence import Evidence
from assay.schemas.source import Source
from assay.schemas.transaction import Transaction
from assay.streams.partitioning import partition_of
from assay.streams.simulator import simulate
from assay.tables.features import FEATURE_COUNT, NAMES, features_digest
from assay.tables.profile import ROW
from assay.tables.rates import SHIPPED_RATES, Rates
from assay.tables.replay import replay

from .conftest import START_MS
from .topics import PARTITIONS, Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]
RAW_ID = bytes(range(240, 256))  # 16 bytes that are no UTF-8


def decision_in(record: ConsumerRecord) -> Decision:
    return Decision.model_validate_json(record.value)


async def decided(topics: Topics, source: Source) -> tuple[Decision, dict[str, bytes]]:
    """The decision that a source record led to, and its headers."""
    record = await topics.first(source, "decisions")
    return decision_in(record), dict(record.headers)


async def test_a_transaction_gets_exactly_one_decision_beside_it(topics: Topics) -> None:
    for partition in range(PARTITIONS):
        body = transaction(f"beside-{partition}", f"user-{partition}")
        source = await topics.send(
            body,
            partition=partition,
            headers=[("correlation-id", b"c-1"), ("traceparent", b"00-ab-cd-01"), ("assay-explain", b"1")],
        )
        await topics.settled()
        [record] = topics.made_from(source, "decisions")
        assert (record.partition, record.key) == (partition, body["user_id"].encode())
        headers = dict(record.headers)
        assert headers["content-type"] == b"application/json"
        assert headers["correlation-id"] == b"c-1"
        assert headers["traceparent"] == b"00-ab-cd-01"
        assert "assay-replay" not in headers
        decision = decision_in(record)
        assert (decision.transaction_id, decision.user_id) == (body["transaction_id"], body["user_id"])
        assert (decision.source.topic, decision.source.partition, decision.source.offset) == source
        assert (decision.tier, decision.decided_by.worker) == (Tier.FULL, "worker")
        assert decision.fraud_score is not None
        assert 1 <= len(decision.explanation) <= 4
        assert not topics.made_from(source, "dead-letters")


async def test_the_profile_row_is_in_the_changelog_once_the_offset_is_committed(topics: Topics) -> None:
    sources = [await topics.send(transaction(number, "remembered")) for number in range(3)]
    await topics.settled()
    [*_, last] = topics.made_from(sources[-1], "assay-profiles-changelog")
    assert (last.partition, last.key) == (sources[-1].partition, b"remembered")
    [row] = np.frombuffer(last.value, ROW)
    assert (row["attempts"], row["last_offset"]) == (3, sources[-1].offset)
    assert set(row["decision_offset"][:3]) == {source.offset for source in sources}


async def test_evidence_holds_the_features_that_an_offline_replay_computes(topics: Topics) -> None:
    history = [payment.transaction for payment in simulate(seed=21, transactions=60, start_ms=START_MS, users=1)]
    sources = await topics.send_all(history)
    await topics.until(lambda: all(topics.made_from(source, "evidence") for source in sources), "evidence")
    expected = replay([Transaction.model_validate(body) for body in history], Rates.load(SHIPPED_RATES))
    for source, features in zip(sources, expected, strict=True):
        [record] = topics.made_from(source, "evidence")
        evidence = Evidence.model_validate_json(record.value)
        [written] = np.array([evidence.features], np.float32)  # null is NaN
        assert len(written) == FEATURE_COUNT
        assert evidence.features_digest == features_digest()
        differing = [name for name, a, b in zip(NAMES, written, features, strict=True) if a.tobytes() != b.tobytes()]
        assert not differing
        assert evidence.entity_sequences is not None
        decision, _ = await decided(topics, source)
        assert evidence.digests == decision.digests


async def test_an_amount_above_10_000_is_never_approved(topics: Topics) -> None:
    large = {"EUR": "10000.01", "GBP": "9999.99", "JPY": "9999999"}
    bodies = [
        transaction(f"{kind}-{currency}", f"{kind}-{currency}", kind=kind, amount=amount, currency=currency)
        for kind in ("purchase", "refund")
        for currency, amount in large.items()
    ]
    for source in await topics.send_all(bodies):
        decision, _ = await decided(topics, source)
        assert decision.action == Action.DECLINE or (decision.action == Action.REVIEW and "large_amount" in decision.rules)


async def test_a_key_that_is_not_the_user_still_gets_its_decision_and_is_counted(topics: Topics, worker: WorkerProcess) -> None:
    before = worker.metric("assay_misplaced_total", kind="other_key")
    elsewhere = (partition_of(b"placed-elsewhere", PARTITIONS) + 1) % PARTITIONS
    source = await topics.send(transaction("misplaced", "placed-elsewhere"), key=b"another key", partition=elsewhere)
    record = await topics.first(source, "decisions")
    assert (record.partition, record.key) == (elsewhere, b"placed-elsewhere")
    assert worker.metric("assay_misplaced_total", kind="other_key") == before + 1


# -- replies


def asked(dialect: str, topic: str, partition: int | None) -> tuple[list[tuple[str, bytes]], tuple[str, bytes]]:
    """The headers of a request in that dialect, and the correlation header that its answer is to bear."""
    where = b"" if partition is None else str(partition).encode()
    match dialect:
        case "assay":
            names, correlation = ("reply-to", "reply-partition"), ("correlation-id", b"c-42")
        case "spring":
            names, correlation = ("kafka_replyTopic", "kafka_replyPartition"), ("kafka_correlationId", RAW_ID)
            where = b"" if partition is None else partition.to_bytes(4, "big")
        case _:
            names, correlation = ("kafka_replyTopic", "kafka_replyPartition"), ("kafka_correlationId", b"nest-42")
    headers = [(names[0], topic.encode()), correlation]
    return headers + ([(names[1], where)] if partition is not None else []), correlation


@pytest.mark.parametrize("dialect", ["assay", "spring", "nest"])
async def test_the_reply_goes_to_the_partition_and_correlation_asked_for(topics: Topics, dialect: str) -> None:
    for partition in range(PARTITIONS):
        headers, (name, value) = asked(dialect, topics.name("checkout.reply"), partition)
        source = await topics.send(transaction(f"{dialect}-{partition}", "caller"), headers=headers)
        reply, decision = await topics.first(source, "checkout.reply"), await topics.first(source, "decisions")
        assert reply.partition == partition
        assert reply.value == decision.value
        answered = dict(reply.headers)
        assert answered[name] == value
        assert answered["kafka_nest-is-disposed"] == b"\x00"
        assert not {"kafka_replyTopic", "kafka_replyPartition", "reply-to", "reply-partition"} & answered.keys()


async def test_without_a_partition_the_reply_goes_where_the_key_belongs(topics: Topics) -> None:
    places = set()
    for number in range(2):
        headers, _ = asked("assay", topics.name("checkout.reply"), None)
        source = await topics.send(transaction(f"anywhere-{number}", "anywhere"), headers=headers)
        places.add((await topics.first(source, "checkout.reply")).partition)
    assert places == {source.partition}  # the same partitioner, as many partitions


@pytest.mark.parametrize(
    ("topic", "partition", "result"),
    [("decisions", 0, "not_allowed"), ("nobody.reply", 0, "no_topic"), ("checkout.reply", PARTITIONS, "no_partition")],
)
async def test_a_reply_that_cannot_be_delivered_is_counted_and_the_decision_stands(
    topics: Topics, worker: WorkerProcess, topic: str, partition: int, result: str
) -> None:
    before, written = worker.metric("assay_replies_total", result=result), len(topics.seen["checkout.reply"])
    headers, _ = asked("assay", topics.name(topic), partition)
    source = await topics.send(transaction(result, "lost-reply"), headers=headers)
    await topics.first(source, "decisions")
    # Replies leave in order: once a later one has arrived, the fate of this one is known.
    headers, _ = asked("assay", topics.name("checkout.reply"), 0)
    await topics.first(await topics.send(transaction(f"after-{result}", "lost-reply"), headers=headers), "checkout.reply")
    assert worker.metric("assay_replies_total", result=result) == before + 1
    await topics.settled()
    assert len(topics.made_from(source, "decisions")) == 1
    assert len(topics.seen["checkout.reply"]) == written + 1


# -- repeats


async def again(topics: Topics, body: dict[str, Any]) -> tuple[bytes, bytes, dict[str, bytes]]:
    """The same transaction once more, with a reply: the bytes of decision and reply, and the decision's headers."""
    headers, _ = asked("assay", topics.name("checkout.reply"), 1)
    source = await topics.send(body, headers=headers)
    decision, reply = await topics.first(source, "decisions"), await topics.first(source, "checkout.reply")
    marks = {name: value for name, value in decision.headers if name.startswith("assay-") and name != "assay-source"}
    assert marks.items() <= dict(reply.headers).items()
    return decision.value, reply.value, marks


async def test_a_repeated_transaction_gets_the_same_bytes_and_is_counted_once(topics: Topics) -> None:
    body = transaction("repeated", "repeater")
    first = await topics.first(await topics.send(body), "decisions")
    for _ in range(2):
        assert await again(topics, body) == (first.value, first.value, {"assay-replay": b"1"})
    next_one = await topics.send(transaction("next", "repeater"))
    evidence = orjson.loads((await topics.first(next_one, "evidence")).value)
    assert evidence["features"][NAMES.index("user_count")] == 1


async def test_a_caller_that_has_started_anew_gets_the_same_decision_under_its_new_correlation_and_nothing_is_judged(
    topics: Topics, worker: WorkerProcess
) -> None:
    body, address = transaction("asked-again", "restarter"), ("reply-to", topics.name("checkout.reply").encode())
    replies = []
    judged = []
    for life, correlation in enumerate((b"before", b"after")):
        headers = [address, ("reply-partition", b"%d" % life), ("correlation-id", correlation)]
        source = await topics.send(body, headers=headers)
        replies.append(await topics.first(source, "checkout.reply"))
        judged.append(sum(value for (name, _), value in worker.metrics().items() if name == "assay_decisions_total"))
    first, second = replies
    assert (second.value, second.partition, dict(second.headers)["correlation-id"]) == (first.value, 1, b"after")
    assert dict(second.headers)["assay-replay"] == b"1"
    assert judged[0] == judged[1]
    await topics.settled()
    assert topics.made_from(source, "evidence") == []


async def test_a_repeat_in_the_same_micro_batch_gets_the_same_bytes(topics: Topics) -> None:
    sources = await topics.send_all([transaction("at-once", "hasty")] * 20)
    await topics.until(lambda: all(topics.made_from(source, "decisions") for source in sources), "decisions")
    await topics.settled()
    assert len({record.value for source in sources for record in topics.made_from(source, "decisions")}) == 1
    assert [len(topics.made_from(source, "decisions")) for source in sources] == [1] * 20
    assert sum(len(topics.made_from(source, "evidence")) for source in sources) <= 1


async def test_a_changed_payload_gets_the_first_decision_and_is_marked(topics: Topics) -> None:
    body = transaction("changed", "changer")
    first = await topics.first(await topics.send(body), "decisions")
    value, reply, marks = await again(topics, body | {"amount": "50000"})
    assert value == reply == first.value
    assert marks == {"assay-replay": b"1", "assay-conflict": b"1"}


async def test_the_same_id_of_another_user_is_another_transaction(topics: Topics) -> None:
    sources = [await topics.send(transaction("shared-id", user)) for user in ("one", "other")]
    decisions = [await decided(topics, source) for source in sources]
    assert [decision.user_id for decision, _ in decisions] == ["one", "other"]
    assert all("assay-replay" not in headers for _, headers in decisions)


async def test_after_a_restart_a_repeat_is_answered_from_the_decisions_topic(topics: Topics, worker: WorkerProcess) -> None:
    bodies = [transaction(f"kept-{number}", "keeper", amount=f"{number}.50") for number in range(1, 13)]
    firsts = [await topics.first(await topics.send(body), "decisions") for body in bodies]
    await topics.settled()
    assert worker.stop() == 0
    worker.start()
    worker.wait_until_ready()
    for body, first in zip(bodies[::4], firsts[::4], strict=True):
        assert await again(topics, body) == (first.value, first.value, {"assay-replay": b"1"})
