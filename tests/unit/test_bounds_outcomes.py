"""One more than each limit of what is learnt from outcomes (invariant I5)."""

from typing import Any

import pytest

from assay.schemas import limits
from assay.schemas.limits import MAX_OUTCOMES_AT_ONCE, MAX_OUTCOMES_PER_TRANSACTION, MAX_WAITING_OUTCOMES, OUTCOME_PATIENCE_S
from assay.tables.outcomes import Heard, Known, with_heard

from .learner_stand import Stand, outcome


def test_i5_max_outcomes_per_transaction_are_kept_the_latest_known() -> None:
    many = [Heard(number, number + 1, 0, -1, 0) for number in range(MAX_OUTCOMES_PER_TRANSACTION + 1)]
    for course in (many, many[::-1]):
        known: Known = ()
        for each in course:
            known = with_heard(known, each)
        assert known == tuple(many[1:])


async def test_i5_max_outcomes_at_once_are_applied_together() -> None:
    stand = Stand()
    stand.decide(1)
    await stand.turn()
    stand.hear(*(outcome(number, "fraud") for number in range(MAX_OUTCOMES_AT_ONCE + 1)))
    asked: list[int] = []
    find = stand.rows.find

    async def counted(places: Any) -> Any:
        asked.append(len(places) // 2)  # each has its mark beside it
        return await find(places)

    stand.rows.find = counted  # type: ignore[method-assign]
    await stand.turn()
    assert asked == [MAX_OUTCOMES_AT_ONCE, 1]


async def test_i5_max_waiting_outcomes_wait_and_no_more_are_fetched_until_there_is_room() -> None:
    stand = Stand()
    stand.hear(*[None] * (MAX_WAITING_OUTCOMES - 1))
    assert not stand.learner.full
    stand.hear(None, first=MAX_WAITING_OUTCOMES - 1)
    assert stand.learner.full
    stand.hear(None, first=MAX_WAITING_OUTCOMES)  # a fetch that was on its way
    await stand.turn()
    assert not stand.learner.full
    assert list(stand.finished.values()) == [MAX_WAITING_OUTCOMES + 1]


async def test_i5_max_unindexed_decisions_wait_for_redis_and_the_oldest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand()
    monkeypatch.setattr("assay.agents.decided_queue.MAX_UNINDEXED_DECISIONS", 3)
    assert limits.MAX_UNINDEXED_DECISIONS > 3
    for number in range(4):
        stand.decide(number)
    await stand.turn()
    assert stand.count("assay_unindexed_dropped_total") == 1
    assert len(stand.rows.values) == 3


async def test_i5_outcome_patience_s_is_how_long_an_outcome_waits_for_its_transaction() -> None:
    stand = Stand()
    stand.hear(outcome(1, "fraud"), age_s=0)
    await stand.turn()
    assert stand.finished == {}
    stand.clock.now += OUTCOME_PATIENCE_S
    await stand.turn()
    assert list(stand.finished.values()) == [1]
