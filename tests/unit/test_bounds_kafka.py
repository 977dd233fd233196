"""One more than each limit towards Kafka (invariant I5): sent together, taken by a topic, held, waited for."""

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.schemas import limits
from assay.schemas.decision import Action, Tier, encode_decision, encode_digests, encode_model
from assay.schemas.errors import ServiceError, TopologyError
from assay.schemas.headers import decision_headers
from assay.schemas.source import OutRecord, Source
from assay.streams import logs, reading, source_log, topics
from assay.streams.app import build_app, partitioned_table
from assay.streams.publisher import Publisher
from assay.streams.settings import Settings
from assay.streams.source_log import SourceLog
from assay.streams.transport import Consumer
from assay.tables.partition_state import Earlier, PartitionState
from assay.tables.profile_table import ProfileTable

FAR = 10**12  # an offset that no topic has reached
MS = 1_772_362_800_000
PATIENCE_S = 10.0


def prepared(records: list[OutRecord]) -> list[int]:
    """How many records each batch has."""
    publisher = Publisher({}, deadline=1.0)
    return [batch.record_count() for batch in publisher._prepare("topic", 0, records, {})]


def test_i5_max_published_batch_bytes_one_more_goes_into_the_next_batch() -> None:
    half: OutRecord = (None, b"v" * (limits.MAX_PUBLISHED_BATCH_BYTES // 2 - 100), [])
    assert prepared([half, half]) == [2]
    assert prepared([half, half, half]) == [2, 1]


def test_i5_max_published_batch_bytes_is_less_where_a_topic_takes_less() -> None:
    publisher = Publisher({}, deadline=1.0, max_bytes={"topic": 1_000})
    batches = list(publisher._prepare("topic", 0, [(None, b"v" * 400, [])] * 3, {}))
    assert [batch.record_count() for batch in batches] == [2, 1]


@pytest.mark.parametrize("takes", [limits.LEAST_TOPIC_BYTES, limits.LEAST_TOPIC_BYTES - 1])
async def test_i5_least_topic_bytes_one_less_is_refused_at_start(takes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def configs_of(*_: Any) -> dict[str, str]:
        return {"max.message.bytes": str(takes)}

    monkeypatch.setattr(topics, "configs_of", configs_of)
    if takes == limits.LEAST_TOPIC_BYTES:
        assert await topics._max_bytes(SimpleNamespace(), "decisions") == takes  # type: ignore[arg-type]
    else:
        with pytest.raises(TopologyError, match=r"decisions takes too little.*max\.message\.bytes"):
            await topics._max_bytes(SimpleNamespace(), "decisions")  # type: ignore[arg-type]


def largest_decision() -> tuple[bytes, list[tuple[str, bytes]]]:
    """A decision whose parts are all as large as they may be, and its headers."""
    source = Source("t" * 249, 2**31 - 1, FAR)
    value = encode_decision(
        transaction_id='"' * limits.MAX_ID_CHARACTERS,
        user_id="\U0001d11e" * limits.MAX_ID_CHARACTERS,
        fraud_score=0.123456,
        action=Action.DECLINE,
        reasons=[("C" * 64, "\U0001d11e" * 200, -12.3456)] * limits.MAX_REASONS,
        rules=[f"{number:064}" for number in range(limits.MAX_RULES)],
        model=encode_model("f" * 64, "champion", [0.123456] * 3),
        digests=encode_digests(*["f" * 64] * 5),
        tier=Tier.FULL,
        late_event=False,
        deadline_missed=False,
        decided_ms=MS,
        appended_ms=MS,
        worker="w" * 253,
        generation=2**31 - 1,
        source=source,
    )
    trace = [("traceparent", b"x" * (limits.MAX_HEADER_BYTES - limits.MAX_CORRELATION_BYTES))]
    correlation = ("correlation-id", b"c" * limits.MAX_CORRELATION_BYTES)
    headers = decision_headers(source, correlation, trace, verdict=source.header(), replay=True, conflict=True)
    return value, headers


def test_i1_least_topic_bytes_is_room_for_the_largest_decision() -> None:
    value, headers = largest_decision()
    size = len(value) + sum(len(name) + len(written) + 10 for name, written in headers)
    assert size < limits.LEAST_TOPIC_BYTES / 2


def test_i1_least_topic_bytes_is_room_for_the_state_with_all_that_may_be_open() -> None:
    """As many repeats as may wait, those of a micro-batch beside them, and as many that a former owner left."""
    most = 2 * (limits.MAX_WAITING_REPEATS + limits.MAX_BATCH_TRANSACTIONS)
    state = PartitionState("i" * 22, 1_024, FAR, FAR, {FAR + number: Earlier(FAR, MS) for number in range(most)})
    assert len(state.encode()) + 1_000 < limits.LEAST_TOPIC_BYTES


async def test_i5_changelog_fetches_waiting_one_more_waits_in_the_fetcher() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()
    changelog = SimpleNamespace(changelog_topics={"changelog"}, changelog_queue=queue)
    consumer: Any = SimpleNamespace(app=SimpleNamespace(waiting=None, tables=changelog), flow_active=True)
    for number in range(limits.CHANGELOG_FETCHES_WAITING):
        await asyncio.wait_for(Consumer._wait_for_room(consumer, SimpleNamespace(topic="changelog")), PATIENCE_S)
        queue.put_nowait(number)
    one_more = asyncio.ensure_future(Consumer._wait_for_room(consumer, SimpleNamespace(topic="changelog")))
    await asyncio.sleep(0.005)
    assert not one_more.done()
    queue.get_nowait()
    await asyncio.wait_for(one_more, PATIENCE_S)


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return partitioned_table(build_app(Settings.load(data_dir=tmp_path), ProfileTable), "profiles", 4)


def test_i5_recovery_fetches_are_all_that_is_held_before_a_write(table: Any) -> None:
    assert table.recovery_buffer_size == limits.RECOVERY_FETCHES


def test_i5_standby_fetches_are_all_that_is_held_before_a_write(table: Any) -> None:
    assert table.standby_buffer_size == limits.STANDBY_FETCHES


async def never(*_: Any) -> Any:
    await asyncio.Event().wait()


async def test_i5_connect_timeout_s_later_kafka_is_said_not_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CONNECT_TIMEOUT_S", 0.01)
    with pytest.raises(ServiceError, match="Kafka does not answer at nowhere"):
        await asyncio.wait_for(reading.connect(never(), {"bootstrap_servers": "nowhere"}), PATIENCE_S)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> SourceLog:
    """A source log whose Kafka says nothing, and that is soon tired of it."""
    monkeypatch.setattr(source_log, "ASK_TIMEOUT_S", 0.01)
    log = SourceLog(SimpleNamespace(consumer=SimpleNamespace(position=never)), {}, "transactions", 0.01)
    monkeypatch.setattr(log, "_own", never)
    return log


async def test_i5_ask_timeout_s_later_nothing_is_known(silent: SourceLog) -> None:
    assert await asyncio.wait_for(silent.position(0), PATIENCE_S) == 0
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(silent.seen_by_others({0}), PATIENCE_S)


async def test_i5_nothing_is_skipped_where_kafka_does_not_say_whether_there_was_anything(silent: SourceLog) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(silent.holds_records(0, 3, 7), PATIENCE_S)


def test_i5_max_log_kinds_one_more_begins_anew() -> None:
    seldom = logs._Seldom()
    for number in range(limits.MAX_LOG_KINDS + 1):
        line = logging.LogRecord("aiokafka", logging.WARNING, "", 0, f"kind {number}", (), None)
        assert seldom.filter(line)
        assert not seldom.filter(line), "it was said just now"
    assert len(seldom._last) == 1
