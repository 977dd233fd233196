"""`assay decision` on a real Kafka: what was said of a transaction, and what it was made from."""

import asyncio
from functools import partial
from pathlib import Path

import orjson
import pytest

from assay.deploy import log_search
from assay.deploy.explained import explained
from assay.deploy.rebuild_log import Log
from assay.streams.settings import Settings
from assay.tables.features import FEATURE_COUNT

from .conftest import Run
from .topics import PARTITIONS, Topics, transaction

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture
def run(assay: Run) -> Run:
    return partial(assay, "decision")


async def test_decision_and_evidence_are_those_that_were_published(topics: Topics, run: Run) -> None:
    wanted = await topics.send(transaction("wanted", "user-a"))
    await topics.send_all([transaction(f"other-{number}", "user-a") for number in range(5)])
    await topics.settled()
    evidence = await topics.first(wanted, "evidence")
    done = await asyncio.to_thread(run, "user-a", "t-wanted", "--json")
    assert done.returncode == 0, done.stderr
    found = orjson.loads(done.stdout)
    [decision] = topics.made_from(wanted, "decisions")
    assert found["decision"] == orjson.loads(decision.value)
    assert found["evidence"] == orjson.loads(evidence.value)
    assert found["at"] == {
        "topic": decision.topic, "partition": decision.partition, "offset": decision.offset, "appended_ms": decision.timestamp,
    }  # fmt: skip


@pytest.mark.parametrize("partition", range(PARTITIONS))
async def test_it_is_found_wherever_its_producer_put_it(topics: Topics, run: Run, partition: int) -> None:
    source = await topics.send(transaction(f"at-{partition}", "user-b"), partition=partition)
    await topics.first(source, "decisions")
    done = await asyncio.to_thread(run, "user-b", f"t-at-{partition}", "--json")
    assert done.returncode == 0, done.stderr
    assert orjson.loads(done.stdout)["at"]["partition"] == partition


async def test_a_page_tells_every_feature_where_it_is_asked_for(topics: Topics, run: Run) -> None:
    source = await topics.send(transaction("shown", "user-c"))
    await topics.first(source, "evidence")
    shown = await asyncio.to_thread(run, "user-c", "t-shown", "--features")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert any(line.split() == ["source", f"{source.topic}/{source.partition}", "offset", str(source.offset)] for line in lines)
    without = (await asyncio.to_thread(run, "user-c", "t-shown")).stdout.splitlines()
    assert len(lines) - len(without) == FEATURE_COUNT


async def test_a_decision_is_explained_afterwards_from_its_evidence_as_it_was_on_demand(
    topics: Topics, run: Run, environment: dict[str, str]
) -> None:
    source = await topics.send(transaction("asked", "user-d"), headers=[("assay-explain", b"1")])
    await topics.first(source, "evidence")
    found = orjson.loads((await asyncio.to_thread(run, "user-d", "t-asked", "--explain", "--json")).stdout)
    assert found["decision"]["explanation"]
    reasons = explained(found["decision"], found["evidence"], Settings(bundle=Path(environment["ASSAY_BUNDLE"])))
    assert [reason._asdict() for reason in reasons] == found["decision"]["explanation"]


async def test_without_a_decision_it_exits_with_1_and_says_what_to_look_at(topics: Topics, run: Run) -> None:
    done = await asyncio.to_thread(run, "user-a", "t-never-sent")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no decision on t-never-sent of user-a" in done.stderr
    assert "dead letters" in done.stderr


@pytest.mark.parametrize(("wanted", "slices"), [(6, 1), (0, 4)])
async def test_the_search_goes_back_slice_by_slice(
    topics: Topics, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, wanted: int, slices: int
) -> None:
    monkeypatch.setattr(log_search, "AT_ONCE", 2)
    settings = Settings.load(
        bootstrap_servers=environment["ASSAY_BOOTSTRAP_SERVERS"], topic_prefix=environment["ASSAY_TOPIC_PREFIX"]
    )
    user = f"user-d{wanted}"
    sources = await topics.send_all([transaction(f"{user}-{number}", user) for number in range(7)])
    await topics.settled()
    [decision] = topics.made_from(sources[wanted], "decisions")
    looks: list[str] = []
    async with Log.of(settings) as log:
        found = await log_search.newest(
            log, settings.decisions, user.encode(), PARTITIONS,
            lambda record: record.offset == decision.offset, lambda stage, done, total: looks.append(stage),
        )  # fmt: skip
    assert found is not None
    assert found.value == decision.value
    assert len(looks) >= slices
