"""The same id again (I2): at once, later, after a restart, after a rebalance, with another payload, beyond the horizon.

The same bytes come back, marked, and nothing is counted twice: neither by the profile nor by the entities.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from aiokafka.structs import ConsumerRecord

from assay.schemas.limits import DECISIONS_REMEMBERED_PER_USER as HORIZON
from assay.schemas.source import BEYOND_HORIZON_HEADER, CONFLICT_HEADER, REPLAY_HEADER

from .conftest import START_MS
from .logged import feature, made_from_each
from .topics import PARTITIONS, Topics, source_of, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
HOUR_MS = 3_600_000
MARKS = (REPLAY_HEADER, CONFLICT_HEADER, BEYOND_HORIZON_HEADER)
REPLAY, CONFLICT, BEYOND = (dict.fromkeys(names, b"1") for names in (MARKS[:1], MARKS[:2], MARKS[2:]))
USERS = [f"known-{number}" for number in range(4 * PARTITIONS)]  # on every partition


@pytest.fixture(scope="module")
def environment(environment: dict[str, str]) -> dict[str, str]:
    """Of workers that commit only when partitions are given up."""
    return environment | {"ASSAY_COMMIT_INTERVAL_S": "60"}


@dataclass(frozen=True)
class Answer:
    """What came for one record: the decision's bytes and marks, and those of its reply."""

    value: bytes
    marks: dict[str, bytes]

    @classmethod
    def of(cls, record: ConsumerRecord) -> "Answer":
        return cls(record.value, {name: value for name, value in record.headers if name in MARKS})


async def answers(topics: Topics, *bodies: dict[str, Any]) -> list[Answer]:
    """Send these, one right after another, and get what came for each: decision and reply, which say the same."""
    headers = [("reply-to", topics.name("checkout.reply").encode()), ("reply-partition", b"0")]
    sources = await topics.send_all(bodies, headers=headers)
    decisions, replies = [
        [Answer.of(record) for record in await made_from_each(topics, sources, topic)]
        for topic in ("decisions", "checkout.reply")
    ]
    assert decisions == replies
    return decisions


async def counted(topics: Topics, body: dict[str, Any]) -> list[float]:
    """How often the profile and the entities have seen what a further transaction shows, this one included."""
    source = await topics.send(body)
    before, *windows = await feature(
        topics, source, "user_count", "merchant_count", "instrument_count_24h", "merchant_count_24h", "merchant_users_24h"
    )
    return [before, *windows]


def payment(user: str, number: object, hours: float = 0.0, **changes: Any) -> dict[str, Any]:
    """With instrument and merchant of this user's own."""
    own = {"merchant": {"id": f"m-{user}"}, "timestamp": START_MS + int(hours * HOUR_MS)}
    return transaction(number, user, **own | changes)


async def test_i2_the_same_id_in_one_micro_batch_gets_the_same_bytes_whatever_the_payload(topics: Topics) -> None:
    body = payment("hurried", 1)
    first, same, other, same_again = await answers(topics, body, body, body | {"amount": "9999"}, body)
    assert first.marks == {}
    assert [same, other, same_again] == [Answer(first.value, marks) for marks in (REPLAY, CONFLICT, REPLAY)]
    assert await counted(topics, payment("hurried", 2)) == [1, 1, 2, 2, 1]


async def test_i2_the_same_id_an_hour_later_gets_the_same_bytes_and_is_counted_once(topics: Topics) -> None:
    body = payment("patient", 1)
    [first] = await answers(topics, body)
    await answers(topics, *(payment("patient", number, hours=number / 4) for number in range(2, 6)))
    late, renewed = await answers(topics, body, body | {"timestamp": START_MS + HOUR_MS})
    assert [late, renewed] == [Answer(first.value, REPLAY), Answer(first.value, CONFLICT)]
    assert await counted(topics, payment("patient", 6, hours=1.5)) == [5, 5, 6, 6, 1]


async def test_i2_within_the_horizon_it_is_repeated_and_beyond_it_judged_anew_and_marked(topics: Topics) -> None:
    bodies = [payment("busy", number) for number in range(HORIZON)]
    first, second, *_ = await answers(topics, *bodies)
    assert await answers(topics, bodies[0]) == [Answer(first.value, REPLAY)]
    await answers(topics, payment("busy", HORIZON))
    assert await answers(topics, bodies[1]) == [Answer(second.value, REPLAY)]
    [anew] = await answers(topics, bodies[0])
    assert anew.marks == BEYOND
    assert anew.value != first.value
    assert await answers(topics, bodies[0]) == [Answer(anew.value, REPLAY)]
    assert await counted(topics, payment("busy", "last")) == [HORIZON + 2, HORIZON + 2, HORIZON + 3, HORIZON + 3, 1]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def known(topics: Topics) -> dict[str, tuple[dict[str, Any], bytes]]:
    """By user: a transaction that was decided by the first worker, and its decision."""
    bodies = {user: payment(user, 1) for user in USERS}
    decided = await answers(topics, *bodies.values())
    return {user: (body, answer.value) for (user, body), answer in zip(bodies.items(), decided, strict=True)}


async def assert_repeated(topics: Topics, known: dict[str, tuple[dict[str, Any], bytes]]) -> None:
    """Sent again twice, the second time with another payload: the same bytes, and nothing was counted.

    Payloads are not kept, so the worker that did not decide can't tell a conflict.
    """
    for change in ({}, {"amount": "9999"}):
        again = await answers(topics, *(body | change for body, _ in known.values()))
        assert [answer.value for answer in again] == [value for _, value in known.values()]
        assert all(answer.marks == REPLAY for answer in again)


async def test_i2_after_a_restart_the_same_bytes_come_back(
    topics: Topics, worker: WorkerProcess, known: dict[str, tuple[dict[str, Any], bytes]]
) -> None:
    await asyncio.to_thread(worker.restart)
    await assert_repeated(topics, known)


async def test_i1_what_was_said_before_a_kill_is_not_said_again(topics: Topics, worker: WorkerProcess) -> None:
    good = [transaction(number, f"replayed-{number % 30}", timestamp=START_MS + number) for number in range(300)]
    sources = await topics.send_all(good)
    repeats = await topics.send_all(good[:30])
    bad = [await topics.send(b"{", key=b"k%d" % number) for number in range(30)]
    decisions = await made_from_each(topics, [*sources, *repeats], "decisions")
    letters = await made_from_each(topics, bad, "dead-letters")
    await asyncio.to_thread(kill, worker)
    worker.start()
    await asyncio.to_thread(worker.wait_until_ready)
    after = await topics.send_all([transaction(f"after-{number}", f"replayed-{number}") for number in range(30)])
    await made_from_each(topics, after, "decisions")
    assert await made_from_each(topics, [*sources, *repeats], "decisions") == decisions
    assert await made_from_each(topics, bad, "dead-letters") == letters
    made = Counter(source_of(record) for topic in ("decisions", "dead-letters") for record in topics.seen[topic])
    assert set(made.values()) == {1}
    assert worker.metric("assay_repeats_total", kind="replay") >= len(sources) + len(repeats), "all was read again"


def kill(worker: WorkerProcess) -> None:
    assert worker._process is not None
    os.kill(worker._process.pid, signal.SIGKILL)
    worker._process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def joined(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WorkerProcess]:
    """A second worker, which gets a part of the partitions."""
    second = WorkerProcess("second", tmp_path_factory.mktemp("second"), environment)
    second.start()
    await asyncio.to_thread(second.wait_until_ready)
    yield second
    await asyncio.to_thread(second.stop)


async def test_i2_after_a_rebalance_the_same_bytes_come_back_whoever_owns_the_partition(
    topics: Topics, worker: WorkerProcess, known: dict[str, tuple[dict[str, Any], bytes]], joined: WorkerProcess
) -> None:
    await asyncio.to_thread(worker.wait_until_ready)
    await assert_repeated(topics, known)
    repeats = [
        sum(value for (name, _), value in each.metrics().items() if name == "assay_repeats_total") for each in (worker, joined)
    ]
    assert all(repeats), "both were asked"
    for user in USERS[:PARTITIONS]:
        assert await counted(topics, payment(user, 2)) == [1, 1, 2, 2, 1]
