"""Outcomes that are unknown stay it: the risk rows have what is known of transactions that are kept, whatever fails."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from faust.types import TP

from assay.schemas.limits import OUTCOME_PATIENCE_S
from assay.tables.outcomes import effect
from assay.tables.transaction_index import Kept

from .learner_stand import Stand, outcome

pytestmark = pytest.mark.asyncio
BATCH = [outcome(1, "fraud"), outcome(2, "fraud", transaction=2)]  # the first one's transaction is not kept in time


@pytest_asyncio.fixture
async def stand() -> AsyncIterator[Stand]:
    """Connected for longer than anything is waited for; `t-2` is kept."""
    stand = Stand()
    stand.decide(2)
    await stand.turn()
    stand.clock.now += OUTCOME_PATIENCE_S
    yield stand
    await stand.learner.close()


def known_frauds(stand: Stand) -> int:
    """By what is written with the transactions."""
    return sum(effect(kept.known, kept.paid).fraud for kept in map(Kept.decode, stand.rows.values.values()))


async def fail(stand: Stand, step: str, *, late: bool) -> None:
    """The batch, once, up to a step that fails."""
    stand.rows.fails, stand.rows.late = [(step, TimeoutError())], late
    stand.hear(*BATCH)
    with pytest.raises(TimeoutError):
        await stand.turn()
    assert not stand.rows.fails


@pytest.mark.parametrize("crash", [False, True], ids=["its answer is late", "the worker dies"])
@pytest.mark.parametrize("late", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize("step", ["mark", "count", "remember"])
async def test_a_transaction_kept_between_two_tries_is_known_as_the_rows_have_it(
    stand: Stand, step: str, late: bool, crash: bool
) -> None:
    await fail(stand, step, late=late)
    if crash:
        stand = stand.restarted()
        stand.hear(*BATCH)
    stand.decide(1)
    await stand.turn()
    assert stand.finished == {TP("outcomes", 0): 2}
    assert stand.rows.counted("frauds") == known_frauds(stand)
    stand.hear(outcome(3, "genuine"), first=2)
    await stand.turn()
    assert stand.rows.counted("frauds") == known_frauds(stand) == 1  # that of t-2


async def test_one_that_was_unknown_is_not_waited_for_again_after_a_crash(stand: Stand) -> None:
    await fail(stand, "count", late=True)
    successor = stand.restarted()
    successor.hear(*BATCH, age_s=0)
    await successor.turn()
    assert successor.finished == {TP("outcomes", 0): 2}
    assert successor.count("assay_outcomes_total", status="unknown") == 1


async def test_one_that_was_unknown_and_is_sent_again_counts(stand: Stand) -> None:
    stand.hear(*BATCH)
    await stand.turn()
    stand.decide(1)
    stand.hear(outcome(1, "fraud"), first=2)
    await stand.turn()
    assert stand.rows.counted("frauds") == known_frauds(stand) == 2


async def test_one_that_is_held_back_is_not_marked(stand: Stand) -> None:
    stand.hear(outcome(1, "fraud"), age_s=0)
    await stand.turn()
    assert stand.rows.marks == set()


async def test_where_all_are_found_nothing_is_marked(stand: Stand) -> None:
    stand.hear(BATCH[1])
    await stand.turn()
    assert "mark" not in stand.rows.steps
