"""Decided transactions on their way to the index: what can't be kept stays at the head for a while, and not for ever."""

import pytest
from redis.exceptions import ResponseError

from assay.schemas.limits import MAX_REFUSALS

from .learner_stand import Stand, outcome

pytestmark = pytest.mark.asyncio
STAY = [ValueError("a mistake of ours"), ResponseError("script: assay_keep, on @user_function:1: no")]


@pytest.mark.parametrize("error", STAY, ids=["a mistake", "an error in the function"])
async def test_what_can_never_be_kept_is_dropped_counted_and_logged_and_the_rest_is_kept(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    stand = Stand()
    stand.rows.fails = [("keep", error)] * MAX_REFUSALS
    stand.decide(1)
    stand.decide(2)
    for _ in range(MAX_REFUSALS - 1):
        with pytest.raises(type(error)):
            await stand.turn()
        assert stand.count("assay_unindexed_dropped_total") == 0
    await stand.turn()
    assert stand.count("assay_unindexed_dropped_total") == 1
    assert len(stand.rows.values) == 1
    assert "transactions can't be kept" in caplog.text


async def test_an_outage_drops_nothing_however_long_it_is() -> None:
    stand = Stand()
    stand.rows.fails = [("keep", ConnectionError("gone"))] * (2 * MAX_REFUSALS)
    stand.decide(1)
    for _ in range(2 * MAX_REFUSALS):
        with pytest.raises(ConnectionError):
            await stand.turn()
    await stand.turn()
    assert stand.count("assay_unindexed_dropped_total") == 0
    assert len(stand.rows.values) == 1


async def test_outcomes_are_learnt_behind_transactions_that_can_never_be_kept() -> None:
    stand = Stand()
    stand.decide(1)
    await stand.turn()
    stand.rows.fails = [("keep", STAY[0])] * MAX_REFUSALS
    stand.decide(2)
    stand.hear(outcome(1, "fraud"))
    stand.learner.start()
    await stand.until_finished(1)
    assert stand.rows.counted("frauds") == 1
    await stand.learner.close()


async def test_evidence_that_fails_leaves_nothing_at_the_head() -> None:
    stand = Stand()

    def fails(*_: object) -> None:
        raise ValueError("a mistake of ours")

    stand.learner._decided._kept = fails
    stand.decide(1)
    with pytest.raises(ValueError, match="mistake"):
        await stand.turn()
    await stand.turn()
    assert len(stand.rows.values) == 1
    assert stand.count("assay_unindexed_dropped_total") == 0
