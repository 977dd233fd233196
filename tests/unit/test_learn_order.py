"""The learner and the order of outcomes: those that come before their transaction, and partitions that change hands."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from faust.types import TP

from assay.schemas.limits import OUTCOME_PATIENCE_S

from .learner_stand import Stand, outcome

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def stand() -> AsyncIterator[Stand]:
    """Its learner does nothing by itself: call `turn`, or start it."""
    stand = Stand()
    yield stand
    await stand.learner.close()


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
