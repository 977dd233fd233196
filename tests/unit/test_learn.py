"""The learner: outcomes counted once whatever fails, in order, nothing lost; nothing that one says stops it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from faust.types import TP
from redis.exceptions import ResponseError

from assay.agents.refused_outcomes import LOG_AGAIN_S
from assay.schemas.decision import Tier
from assay.schemas.limits import MAX_REFUSALS, MAX_VALUE_BYTES, OUTCOME_PATIENCE_S
from assay.tables.transaction_index import Kept

from .learner_stand import Stand, outcome

pytestmark = pytest.mark.asyncio
STEPS = ("find", "count", "remember")
COURSE = [
    outcome(1, "issuer_declined"),
    outcome(2, "disputed"),
    outcome(3, "fraud", amount="30"),
    outcome(4, "fraud", amount="20"),
    outcome(5, "fraud", amount="50", supersedes="o-4"),
    outcome(6, "dispute_reversed", supersedes="o-2"),
]
COUNTED = {"issuer_declines": 1, "disputes": 0, "frauds": 1, "thousandths": 64_000}


@pytest_asyncio.fixture
async def stand() -> AsyncIterator[Stand]:
    """Its learner does nothing by itself: call `turn`, or start it."""
    stand = Stand()
    yield stand
    await stand.learner.close()


def counted(stand: Stand) -> dict[str, int]:
    return {name: stand.rows.counted(name) for name in COUNTED}


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (outcome(1, "fraud"), "fraud"),
        (outcome(1, "fraud", transaction=2), "unknown"),
        (b"", "invalid"),
        (outcome(1, "fraud") + b" " * MAX_VALUE_BYTES, "invalid"),
        (b"{", "invalid"),
        (b"\xff\xfe", "invalid"),
        (b"[]", "invalid"),
        (b'{"status":"cheerful"}', "invalid"),
    ],
)
async def test_each_outcome_is_counted_by_its_status_or_by_what_is_wrong_with_it(
    stand: Stand, value: bytes, status: str
) -> None:
    stand.decide(1)
    await stand.turn()
    stand.clock.now += OUTCOME_PATIENCE_S
    stand.hear(value)
    await stand.turn()
    assert stand.count("assay_outcomes_total", status=status) == 1
    assert stand.finished == {TP("outcomes", 0): 1}


async def test_i7_an_outcome_with_a_card_number_is_invalid_and_leaves_no_trace(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    stand.decide(1)
    stand.hear(
        outcome(1, "fraud", outcome_id="o-4111111111111111"), outcome(2, "fraud", detail={"issuer_code": "4111 1111 1111 1111"})
    )
    await stand.turn()
    assert stand.count("assay_outcomes_total", status="invalid") == 2
    assert stand.rows.counted("frauds") == 0
    assert "4111" not in caplog.text
    assert stand.told.outcomes == []


async def test_a_tombstone_is_skipped(stand: Stand) -> None:
    stand.hear(None)
    await stand.turn()
    assert stand.finished == {TP("outcomes", 0): 1}
    assert stand.count("assay_outcomes_total", status="invalid") == 0


async def test_outcomes_change_the_rows_of_their_transaction(stand: Stand) -> None:
    stand.decide(1)
    stand.hear(*COURSE)
    await stand.turn()
    assert counted(stand) == COUNTED
    assert stand.rows.counts["merchant", 7, "frauds"] == 1


async def test_our_own_decline_is_counted_from_the_tier_full_alone(stand: Stand) -> None:
    stand.decide(1, action="decline")
    stand.decide(2, action="decline", tier=Tier.NO_ENTITIES)
    stand.decide(3, action="review")
    await stand.turn()
    assert stand.rows.counted("verdicts") == stand.told.verdicts == 1


# -- whatever fails


@pytest.mark.parametrize("late", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize("step", ["keep", *STEPS])
async def test_a_step_that_fails_is_done_again_and_counts_nothing_twice(stand: Stand, step: str, late: bool) -> None:
    stand.rows.fails, stand.rows.late = [(step, ConnectionError("gone"))], late and step in ("count", "remember")
    stand.decide(1, action="decline")
    stand.hear(*COURSE)
    stand.learner.start()
    await stand.until_finished(len(COURSE))
    assert counted(stand) == COUNTED
    assert stand.rows.counted("verdicts") == 1
    assert {number for number, _ in stand.told.outcomes} == {f"o-{number}" for number in range(1, 7)}
    assert not stand.rows.fails


@pytest.mark.parametrize("late", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("committed", range(len(COURSE)))
async def test_after_a_crash_in_any_step_another_one_counts_the_rest_and_nothing_twice(
    stand: Stand, step: str, late: bool, committed: int
) -> None:
    stand.decide(1)
    stand.hear(*COURSE[:committed])
    await stand.turn()
    stand.rows.fails, stand.rows.late = [(step, ConnectionError("killed"))], late and step != "find"
    stand.hear(*COURSE[committed : committed + 2], first=committed)
    with pytest.raises(ConnectionError):
        await stand.turn()
    successor = stand.restarted()
    for first in range(committed, len(COURSE)):  # one by one: as other fetches
        successor.hear(COURSE[first], first=first)
        await successor.turn()
    assert counted(successor) == COUNTED
    assert successor.finished == {TP("outcomes", 0): len(COURSE)}


async def test_while_redis_is_away_nothing_is_finished_and_nothing_lost(stand: Stand) -> None:
    stand.rows.fails = [("connect", ConnectionError("gone"))] * 3
    stand.decide(1)
    stand.hear(*COURSE)
    for _ in range(3):
        with pytest.raises(ConnectionError):
            await stand.turn()
        assert stand.finished == {}
        assert stand.learner.age_s() == 60.0
    await stand.turn()
    assert counted(stand) == COUNTED
    assert stand.learner.age_s() == 0.0


async def test_who_was_overtaken_reads_again(stand: Stand) -> None:
    stand.decide(1)
    await stand.turn()
    other = stand.restarted()
    other.hear(*COURSE[:2])
    remember = stand.rows.remember

    async def overtaken(changed: object) -> bool:
        stand.rows.remember = remember  # type: ignore[method-assign]
        await other.turn()
        return await remember(changed)  # type: ignore[arg-type]

    stand.rows.remember = overtaken  # type: ignore[method-assign]
    stand.hear(*COURSE)
    await stand.turn()
    assert counted(stand) == COUNTED
    [value] = stand.rows.values.values()
    assert len(Kept.decode(value).known) == len(COURSE)


async def test_an_outcome_that_redis_refuses_each_time_is_left_out_and_the_others_are_not(stand: Stand) -> None:
    stand.decide(1)
    stand.decide(2)
    count = stand.rows.count_outcomes

    async def refuses(changes: object) -> object:
        if any(change["offset"] == 1 for change in changes):  # type: ignore[attr-defined]
            raise ResponseError("script: assay_learn, on @user_function:1: no")
        return await count(changes)  # type: ignore[arg-type]

    stand.rows.count_outcomes = refuses  # type: ignore[assignment,method-assign]
    stand.hear(outcome(1, "disputed"), outcome(2, "fraud"), outcome(3, "fraud", transaction=2))
    stand.learner.start()
    await stand.until_finished(3)
    assert stand.count("assay_outcomes_total", status="failed") == 1
    assert {name: stand.rows.counted(name) for name in ("disputes", "frauds")} == {"disputes": 1, "frauds": 1}
    assert stand.rows.steps.count("find") >= MAX_REFUSALS


# -- live quality


async def test_labels_are_counted_by_our_action_and_withdrawn_where_they_change(stand: Stand) -> None:
    stand.decide(1, action="decline")
    stand.decide(2)
    for number, status in enumerate(("disputed", "fraud", "genuine")):
        stand.hear(outcome(number, status), first=number)
        await stand.turn()
    stand.hear(outcome(9, "fraud", transaction=2, amount="25"), first=9)
    await stand.turn()
    labelled = {
        label: stand.count("assay_labelled_total", action="decline", label=label) for label in ("disputed", "fraud", "genuine")
    }
    withdrawn = {
        label: stand.count("assay_labels_withdrawn_total", action="decline", label=label)
        for label in ("disputed", "fraud", "genuine")
    }
    assert labelled == {"disputed": 1, "fraud": 1, "genuine": 1}
    assert withdrawn == {"disputed": 1, "fraud": 1, "genuine": 0}
    assert stand.count("assay_labelled_amount_total", action="approve", label="fraud") == 20.0


async def test_a_transaction_of_which_nobody_has_said_what_it_is_has_no_label(stand: Stand) -> None:
    stand.decide(1)
    stand.hear(outcome(1, "authorised"))
    await stand.turn()
    samples = [sample for family in stand.metrics.labelled.collect() for sample in family.samples]
    assert not any(sample.value for sample in samples if sample.name.endswith("_total"))


async def test_unknown_transactions_are_logged_once_in_a_while_with_how_many_there_were(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    await stand.turn()
    stand.clock.now += OUTCOME_PATIENCE_S
    for offset in range(5):
        stand.clock.now += LOG_AGAIN_S / 4
        stand.hear(outcome(offset, "fraud", transaction=99), first=offset)
        await stand.turn()
    assert [record.args for record in caplog.records if "not kept" in record.message] == [(1,), (4,)]
