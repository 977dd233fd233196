"""One more than what may wait off the answer path, or for an answer (invariant I5): counted, refused, never waited for."""

import asyncio
import logging
import logging.handlers
import queue
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from assay.agents.evidence import EvidenceLog
from assay.schemas import limits
from assay.schemas.decision import Tier
from assay.schemas.errors import ServiceError
from assay.schemas.headers import Dialect, ReplyAddress
from assay.schemas.reply_topics import ReplyTopics
from assay.streams import logs
from assay.streams import replies as replies_module
from assay.streams.metrics import Metrics
from assay.streams.replies import Replies
from assay.streams.waiters import Waiters


class Cluster:
    """A cluster that has every topic that is looked for, or does not answer."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.client = self

    async def fetch_all_metadata(self) -> "Cluster":
        await self.answers.wait()
        return self

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {0}

    def create_batch(self) -> Any:
        return SimpleNamespace(append=lambda **_: object(), close=lambda: None)

    async def send_batch(self, *_: Any, **__: Any) -> "asyncio.Future[None]":
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


class Desk:
    """Replies over such a cluster, and what was counted."""

    def __init__(self) -> None:
        self.metrics, self.cluster = Metrics(), Cluster()
        self.replies = Replies({}, ReplyTopics(), self.metrics)
        self.replies._producer = self.cluster  # type: ignore[assignment]

    def ask(self, *topics: str) -> None:
        reply = (b"u-1", b"{}", [])
        self.replies.send([(ReplyAddress(topic, 0, None, Dialect.ASSAY), reply) for topic in topics])

    def counted(self, **labels: str) -> float:
        return self.metrics.registry.get_sample_value("assay_replies_total", labels) or 0.0

    async def until(self, number: int, **labels: str) -> None:
        async with asyncio.timeout(10):
            while self.counted(**labels) < number:
                await asyncio.sleep(0.001)


@pytest.fixture
async def desk(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    monkeypatch.setattr(replies_module, "LEAST_LOOK_PAUSE_S", 0.0)
    monkeypatch.setattr(replies_module, "REPLY_DEADLINE_S", 10.0)
    desk = Desk()
    yield desk
    if desk.replies._looking is not None:
        desk.replies._looking.cancel()
    await desk.replies._outbox.close(0)


async def test_i5_max_waiting_reply_batches_one_more_is_lost_and_counted(desk: Desk) -> None:
    for _ in range(limits.MAX_WAITING_REPLY_BATCHES):
        desk.ask("shop.reply")
    assert desk.counted(result="queue_full") == 0
    desk.ask("shop.reply")
    assert desk.counted(result="queue_full") == 1


async def test_i5_max_waiting_unknown_replies_one_more_is_lost_and_counted(desk: Desk) -> None:
    desk.replies._outbox.start()
    desk.ask("first.reply")
    async with asyncio.timeout(10):
        while desk.replies._looking is None or desk.replies._unknown:  # the first is being looked for
            await asyncio.sleep(0.001)
    desk.ask(*["other.reply"] * limits.MAX_WAITING_UNKNOWN_REPLIES)
    desk.ask("one.more.reply")
    await desk.until(1, result="no_topic")
    desk.cluster.answers.set()
    await desk.until(limits.MAX_WAITING_UNKNOWN_REPLIES + 1, result="sent")
    assert desk.counted(result="no_topic") == 1


async def test_i5_max_reply_topics_one_more_gets_no_replies_and_others_go_on(desk: Desk) -> None:
    desk.cluster.answers.set()
    desk.replies._outbox.start()
    desk.ask(*(f"{number}.reply" for number in range(limits.MAX_REPLY_TOPICS)))
    await desk.until(limits.MAX_REPLY_TOPICS, result="sent")
    desk.ask("one.more.reply", "0.reply")
    await desk.until(1, result="no_topic")
    await desk.until(limits.MAX_REPLY_TOPICS + 1, result="sent")
    assert len(desk.replies._partitions) == limits.MAX_REPLY_TOPICS


async def test_i5_reply_deadline_s_later_it_is_lost_and_counted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies_module, "REPLY_DEADLINE_S", 0.01)
    desk.replies._outbox.start()
    desk.ask("shop.reply")  # the look for its topic is not answered
    await desk.until(1, result="failed")


async def test_i5_max_waiting_evidence_batches_one_more_is_lost_and_counted() -> None:
    metrics, nothing = Metrics(), SimpleNamespace()
    evidence = EvidenceLog("evidence", lambda: nothing, nothing, metrics)  # type: ignore[arg-type,return-value]
    requests: list[Any] = [nothing]
    for lost in [0] * limits.MAX_WAITING_EVIDENCE_BATCHES + [1]:
        evidence.offer(requests, np.zeros((1, 1), np.float32), nothing, Tier.FULL)  # type: ignore[arg-type]
        assert metrics.registry.get_sample_value("assay_evidence_batches_dropped_total") == lost


def test_i5_max_waiting_log_lines_one_more_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: queue.Queue[Any] = queue.Queue(limits.MAX_WAITING_LOG_LINES)
    monkeypatch.setattr(logs._BoundedQueueHandler, "dropped", 0)
    handler = logs._BoundedQueueHandler(lines)
    record = logging.LogRecord("assay", logging.INFO, "", 0, "line", (), None)
    for _ in range(limits.MAX_WAITING_LOG_LINES):
        handler.emit(record)
    assert (lines.qsize(), handler.dropped) == (limits.MAX_WAITING_LOG_LINES, 0)
    handler.emit(record)
    assert (lines.qsize(), handler.dropped) == (limits.MAX_WAITING_LOG_LINES, 1)


async def test_i5_max_waiting_calls_one_more_is_refused_at_once() -> None:
    waiters: Waiters[str] = Waiters(b"a-client")
    correlations = [waiters.register()[0] for _ in range(limits.MAX_WAITING_CALLS)]
    with pytest.raises(ServiceError, match="too many calls"):
        waiters.register()
    waiters.give_up(correlations[0])
    assert waiters.register()[0] not in correlations
