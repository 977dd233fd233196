"""Workers that stop and start while payments come in (I1, I2, I3), and one that starts without its disk (I4)."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import pytest_asyncio
from aiokafka.structs import ConsumerRecord

from assay.schemas.source import Source
from assay.schemas.transaction import Transaction
from assay.streams.simulator import simulate
from assay.tables.features import NAMES, PROFILE_FEATURES
from assay.tables.rates import SHIPPED_RATES, Rates
from assay.tables.replay import replay

from .conftest import START_MS
from .topics import PARTITIONS, Topics, source_of, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
AT_ONCE, EVERY_S = 15, 0.05  # 300 a second
SETTLING_S = 1.5  # payments before and after the restart
MOST = 100_000

Sent = dict[Source, dict[str, Any]]


@pytest.fixture(scope="module")
def worker(pair: list[WorkerProcess]) -> WorkerProcess:
    """The one of them that is not restarted."""
    return pair[0]


async def stream(topics: Topics, payments: Iterator[dict[str, Any]], sent: Sent, until: asyncio.Event) -> None:
    """Send at a steady pace until told to stop."""
    while not until.is_set():
        bodies = list(islice(payments, AT_ONCE))
        pause = asyncio.create_task(asyncio.sleep(EVERY_S))
        sent |= zip(await topics.send_all(bodies), bodies, strict=True)
        await pause


@dataclass
class Course:
    """What was sent, what comes next, and who decided before, during and after the restart."""

    payments: Iterator[dict[str, Any]]
    sent: Sent = field(default_factory=dict)
    deciders: list[set[str]] = field(default_factory=list)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def restarted(topics: Topics, pair: list[WorkerProcess]) -> Course:
    """A steady stream of payments, in the middle of which one of two workers was stopped and started again."""
    payments = simulate(seed=8, transactions=MOST, start_ms=START_MS, users=100)
    course = Course(payment.transaction for payment in payments)
    enough, marks = asyncio.Event(), [0]
    streaming = asyncio.create_task(stream(topics, course.payments, course.sent, enough))
    await asyncio.sleep(SETTLING_S)
    marks.append(len(topics.seen["decisions"]))
    assert await asyncio.to_thread(pair[1].stop) == 0
    marks.append(len(topics.seen["decisions"]))
    await asyncio.to_thread(pair[1].start)
    await asyncio.to_thread(pair[1].wait_until_ready)
    marks.append(len(topics.seen["decisions"]))
    await asyncio.sleep(SETTLING_S)
    enough.set()
    await streaming
    await topics.settled()
    decisions = topics.seen["decisions"]
    course.deciders = [set(map(decider, decisions[i:j])) for i, j in pairwise([*marks, len(decisions)])]
    return course


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def moved(
    topics: Topics, pair: list[WorkerProcess], restarted: Course, tmp_path_factory: pytest.TempPathFactory
) -> list[Path]:
    """Both workers were stopped and one started without its disk. Returns where their disks are."""
    disks = [process.data_dir for process in pair]
    for process in pair:
        assert await asyncio.to_thread(process.stop) == 0
    pair[0].data_dir = tmp_path_factory.mktemp("new") / "disk"
    await asyncio.to_thread(pair[0].restart)
    return disks


async def test_both_workers_score_before_and_after_the_restart_and_one_meanwhile(restarted: Course) -> None:
    before, leaving, meanwhile, after = restarted.deciders
    assert before == after == {"one", "other"}
    assert "one" in leaving | meanwhile


async def test_i1_i2_a_restart_loses_nothing_and_contradicts_nothing(topics: Topics, restarted: Course) -> None:
    assert_one_verdict_each(topics, restarted.sent)


async def test_i4_features_do_not_depend_on_how_many_workers_there_were(topics: Topics, restarted: Course) -> None:
    await assert_as_replayed(topics, restarted.sent)


async def test_i4_the_evidence_is_that_of_a_replay_entities_included(
    topics: Topics, restarted: Course, environment: dict[str, str]
) -> None:
    await topics.until(lambda: restarted.sent.keys() <= set(map(source_of, topics.seen["evidence"])), "all evidence")
    command = [sys.executable, "-m", "assay.deploy.cli", "parity", "--order", "--json"]
    ended = await asyncio.to_thread(
        subprocess.run, command, env=os.environ | environment, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["transactions"] == found["with_evidence"] == len(restarted.sent)
    assert found["profile_features_differ"] == found["entity_features_differ"] == found["risk_features_differ"] == 0
    assert found["with_entity_windows"] > 0
    assert found["with_risk_rows"] > 0
    assert found["worst"] is None


async def test_i4_a_worker_without_its_disk_goes_on_from_the_changelog(
    topics: Topics, restarted: Course, moved: list[Path]
) -> None:
    bodies = list(islice(restarted.payments, 100))
    restarted.sent |= zip(await topics.send_all(bodies), bodies, strict=True)
    await topics.settled()
    assert_one_verdict_each(topics, restarted.sent)
    await assert_as_replayed(topics, restarted.sent)


async def test_i2_a_worker_without_its_disk_repeats_what_was_decided_before(
    topics: Topics, restarted: Course, moved: list[Path]
) -> None:
    last = {body["user_id"]: (source, body) for source, body in restarted.sent.items()}
    for source, body in islice(last.values(), 10):
        again = await topics.first(await topics.send(body), "decisions")
        assert dict(again.headers)["assay-replay"] == b"1"
        assert again.value == (await topics.first(source, "decisions")).value


async def test_i4_a_disk_that_is_behind_the_changelog_catches_up(
    topics: Topics, pair: list[WorkerProcess], moved: list[Path]
) -> None:
    for number in range(5):  # remembered on the new disk
        await topics.send(transaction(number, "steady"))
    await topics.settled()
    assert await asyncio.to_thread(pair[0].stop) == 0
    pair[0].data_dir = moved[0]
    await asyncio.to_thread(pair[0].restart)
    evidence = (await topics.first(await topics.send(transaction(5, "steady")), "evidence")).value
    assert orjson.loads(evidence)["features"][NAMES.index("user_count")] == 5


def decider(decision: ConsumerRecord) -> str:
    """Which worker decided."""
    return str(orjson.loads(decision.value)["decided_by"]["worker"])


def assert_one_verdict_each(topics: Topics, sent: Sent) -> None:
    """Every transaction has one decision, made from its own record, and no dead letter."""
    made = Counter(map(source_of, topics.seen["decisions"]))
    wrong = {source: made[source] for source in sent if made[source] != 1}
    assert not wrong, f"{len(wrong)} of {len(sent)} transactions do not have one decision: {dict(islice(wrong.items(), 5))}"
    for record in topics.seen["decisions"]:
        if (body := sent.get(source_of(record))) is not None:
            assert orjson.loads(record.value)["transaction_id"] == body["transaction_id"]
    assert not topics.seen["dead-letters"]


async def assert_as_replayed(topics: Topics, sent: Sent) -> None:
    """The profile features in the evidence are, bit for bit, those of a replay of each partition in its order."""
    await topics.until(lambda: sent.keys() <= set(map(source_of, topics.seen["evidence"])), "evidence of all transactions")
    logged = {source_of(record): record for record in topics.seen["evidence"]}
    for partition in range(PARTITIONS):
        sources = sorted(source for source in sent if source.partition == partition)
        assert sources
        expected = replay([Transaction.model_validate(sent[source]) for source in sources], Rates.load(SHIPPED_RATES))
        values = [orjson.loads(logged[source].value)["features"][:PROFILE_FEATURES] for source in sources]
        np.testing.assert_array_equal(np.array(values, np.float32), expected[:, :PROFILE_FEATURES])
