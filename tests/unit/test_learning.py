"""From outcomes and what is kept of their transactions to what changes (`tables.learning`)."""

from collections.abc import Sequence

import numpy as np

from assay.schemas.decision import Action, Tier
from assay.schemas.outcome import Outcome
from assay.tables.changes import COUNTED
from assay.tables.digests import OFFLINE
from assay.tables.learning import Arrived, Labelled, Learnt, learn, own_verdicts, places_of
from assay.tables.transaction_index import DECIDED, VERSION, Entry, Kept

from .rows_in_memory import KEYSPACE

KEPT = Kept(Entry(VERSION, 2, Tier.FULL.rank, 0.75, 5_000, 100_000, 80_000, 11, 12, 13, 14, 15), ())


def arrived(*statuses: str, user: str = "u-1", first: int = 0, **changes: object) -> list[Arrived]:
    plain = {"user_id": user, "transaction_id": "t-1", "known_at": 1_000}
    return [
        Arrived(
            3,
            offset,
            Outcome.model_validate(plain | {"outcome_id": f"o-{offset}", "status": status, "known_at": offset} | changes),
        )
        for offset, status in enumerate(statuses, first)
    ]


def learnt(outcomes: Sequence[Arrived], value: bytes = KEPT.encode()) -> Learnt:
    places = places_of(outcomes, KEYSPACE, OFFLINE)
    return learn(outcomes, places, dict.fromkeys(places, value), OFFLINE)


def test_a_change_has_the_time_and_entities_of_the_transaction_and_the_place_of_the_outcome() -> None:
    [change] = learnt(arrived("fraud", first=41, amount="50")).changes
    assert change["offset"], change["partition"] == (41, 3)
    assert change["time_ms"] == 5_000
    assert [change[kind] for kind in ("instrument", "bin", "merchant", "device", "address")] == [11, 12, 13, 14, 15]
    assert [change[name] for name in (*COUNTED, "thousandths")] == [0, 0, 0, 1, 40_000]


def test_outcomes_of_one_transaction_are_applied_one_after_another() -> None:
    found = learnt(arrived("issuer_declined", "authorised", "disputed", "fraud", "genuine"))
    assert [[change[name] for name in COUNTED] for change in found.changes] == [
        [1, 0, 0, 0], [-1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, -1],
    ]  # fmt: skip
    assert found.causes == [0, 1, 2, 3, 4]
    [(before, after)] = found.kept.values()
    assert before == KEPT.encode()
    assert len(Kept.decode(after).known) == 5


def test_one_that_changes_nothing_is_remembered_and_makes_no_change() -> None:
    found = learnt(arrived("authorised"))
    assert len(found.changes) == 0
    assert len(found.kept) == 1


def test_one_that_was_heard_already_changes_nothing_at_all() -> None:
    [(_, after)] = learnt(arrived("fraud")).kept.values()
    again = learnt(arrived("fraud"), after)
    assert (len(again.changes), again.kept, again.labels) == (0, {}, [])


def test_of_a_transaction_that_is_not_kept_or_cannot_be_read_nothing_is_learnt() -> None:
    outcomes = arrived("fraud")
    for found in (learn(outcomes, places_of(outcomes, KEYSPACE, OFFLINE), {}, OFFLINE), learnt(outcomes, b"\x99")):
        assert (len(found.changes), found.kept, found.unknown) == (0, {}, [0])


def test_a_label_is_told_with_our_action_and_the_amount_once_for_all_outcomes_that_came_together() -> None:
    assert learnt(arrived("disputed", "fraud", amount="25")).labels == [
        (Action.DECLINE, Labelled("", 0), Labelled("fraud", 20_000))
    ]
    assert learnt(arrived("genuine")).labels == [(Action.DECLINE, Labelled("", 0), Labelled("genuine", 80_000))]
    assert learnt(arrived("authorised")).labels == []


def test_our_own_declines_are_changes_at_the_place_of_their_transaction() -> None:
    rows = np.zeros(3, DECIDED)
    rows["offset"], rows["partition"], rows["user"] = [7, 8, 9], 2, 5
    rows["entry"]["action"], rows["entry"]["tier"] = [0, 2, 2], [Tier.FULL.rank, Tier.FULL.rank, Tier.NO_ENTITIES.rank]
    rows["entry"]["merchant"], rows["entry"]["time_ms"] = 6, 123
    [change] = own_verdicts(rows)
    assert [change[name] for name in ("offset", "partition", "user", "merchant", "time_ms")] == [8, 2, 5, 6, 123]
    assert [change[name] for name in (*COUNTED, "thousandths")] == [0, 1, 0, 0, 0]
