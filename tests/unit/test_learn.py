"""The learner: outcomes counted once whatever fails, in order, nothing lost; nothing that one says stops it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from faust.types import TP
from redis.exceptions import ResponseError

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


# -- outcomes that come before their transaction is kept


async def test_a_young_outcome_waits_for_its_transaction_and_holds_back_what_follows_in_its_partition(stand: Stand) -> None:
    stand.decide(2)
    stand.hear(outcome(1, "fraud", transaction=2), outcome(2, "fraud"), outcome(3, "fraud", transaction=2), age_s=0)
    stand.hear(outcome(4, "disputed", transaction=2), partition=1, age_s=0)
    await stand.turn()
    assert stand.finished == {TP("outcomes", 0): 1, TP("outcomes", 1): 1}
    stand.decide(1)
    await stand.turn()
    assert stand.finished[TP("outcomes", 0)] == 3
    assert [number for number, _ in stand.told.outcomes] == ["o-1", "o-4", "o-2"]
    assert stand.count("assay_outcomes_total", status="unknown") == 0


async def test_i5_outcome_patience_s_over_the_outcome_is_unknown_and_what_it_held_back_goes_on(stand: Stand) -> None:
    stand.decide(2)
    stand.hear(outcome(1, "fraud"), outcome(2, "fraud", transaction=2), age_s=0)
    await stand.turn()
    stand.clock.now += OUTCOME_PATIENCE_S - 0.01
    await stand.turn()
    assert stand.finished == {}
    stand.clock.now += 0.02
    await stand.turn()
    assert stand.finished == {TP("outcomes", 0): 2}
    assert stand.count("assay_outcomes_total", status="unknown") == 1
    assert stand.rows.counted("frauds") == 1


async def test_one_from_the_future_gets_no_more_patience_than_another(stand: Stand) -> None:
    stand.hear(outcome(1, "fraud"), age_s=-3_600)
    await stand.turn()
    stand.clock.now += OUTCOME_PATIENCE_S
    await stand.turn()
    assert stand.count("assay_outcomes_total", status="unknown") == 1


async def test_after_an_outage_of_redis_transactions_have_as_long_to_arrive_as_ever(stand: Stand) -> None:
    await stand.turn()
    stand.clock.now += 3_600
    stand.rows.connected = False
    stand.hear(outcome(1, "fraud"), age_s=3_000)
    await stand.turn()
    assert stand.finished == {}
    stand.decide(1)
    await stand.turn()
    assert stand.rows.counted("frauds") == 1


# -- partitions that change hands


async def test_what_waits_when_partitions_are_given_up_is_left_to_their_next_owner(stand: Stand) -> None:
    stand.hear(outcome(1, "fraud"), age_s=0)
    await stand.turn()
    await stand.learner.drain()
    stand.decide(1)
    stand.hear(outcome(1, "fraud"))  # still of the generation that is over
    await stand.turn()
    assert (stand.finished, stand.rows.counted("frauds")) == ({}, 0)
    stand.generation += 1
    stand.hear(outcome(1, "fraud"))
    await stand.turn()
    assert stand.finished == {TP("outcomes", 0): 1}


async def test_a_batch_on_its_way_when_partitions_are_given_up_finishes_no_offset_of_theirs(stand: Stand) -> None:
    stand.decide(1)
    find = stand.rows.find

    async def given_up_meanwhile(places: object) -> object:
        await stand.learner.drain()
        return await find(places)  # type: ignore[arg-type]

    stand.rows.find = given_up_meanwhile  # type: ignore[assignment,method-assign]
    stand.hear(outcome(1, "fraud"))
    await stand.turn()
    assert stand.finished == {}


async def test_decisions_are_kept_before_partitions_are_given_up(stand: Stand) -> None:
    stand.learner.start()
    stand.decide(1)
    await stand.learner.drain()
    assert len(stand.rows.values) == 1


async def test_outcomes_are_not_applied_while_others_may_own_our_partitions(stand: Stand) -> None:
    stand.decide(1)
    stand.hear(outcome(1, "fraud"))
    stand.member = False
    await stand.turn()
    assert stand.rows.counted("frauds") == 0
    stand.member = True
    await stand.turn()
    assert stand.rows.counted("frauds") == 1


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
    assert samples == []
