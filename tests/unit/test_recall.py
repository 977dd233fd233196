"""Which events are transactions that already have a decision."""

import numpy as np

from assay.schemas.limits import DECISIONS_REMEMBERED_PER_USER as HORIZON
from assay.tables.events import EVENT
from assay.tables.features import FEATURE_COUNT
from assay.tables.fold import fold, recall
from assay.tables.profile import Rows, new_rows
from assay.tables.recall import ALREADY_FOLDED, NEW


def fold_ids(rows: Rows, ids: list[int], first_offset: int = 0, slots: list[int] | None = None) -> list[int]:
    """Recall and fold a batch of transactions with these ids; returns what recall said of each."""
    events = np.zeros(len(ids), EVENT)
    events["id"][:, 1] = ids
    events["offset"] = events["appended_ms"] = first_offset + np.arange(len(ids))
    at = np.array(slots or [0] * len(ids), np.int32)
    repeats = np.empty(len(ids), np.int64)
    recall(rows, at, events, repeats)
    fold(rows, at, events, repeats, np.zeros((len(ids), FEATURE_COUNT), np.float32))
    return repeats.tolist()


def test_a_repeat_within_a_batch_names_the_first_and_is_not_folded() -> None:
    rows = new_rows(1)
    assert fold_ids(rows, [5, 6, 5, 5]) == [NEW, NEW, -2, -2]
    assert rows["attempts"][0] == 2


def test_a_repeat_of_an_earlier_batch_names_the_ring_position_and_is_not_folded() -> None:
    rows = new_rows(1)
    fold_ids(rows, [5, 6], first_offset=40)
    before = rows.tobytes()
    assert fold_ids(rows, [6], first_offset=90) == [1]
    assert rows.tobytes() == before
    assert rows["decision_offset"][0, 1] == 41


def test_the_same_id_of_another_user_is_another_transaction() -> None:
    assert fold_ids(new_rows(2), [5, 5], slots=[0, 1]) == [NEW, NEW]


def test_i4_the_horizon_is_the_same_in_one_batch_and_in_many() -> None:
    within = [1, *range(100, 99 + HORIZON), 1]
    beyond = [1, *range(100, 100 + HORIZON), 1]
    for ids, once, singly in ((within, -2, 0), (beyond, NEW, NEW)):
        assert fold_ids(new_rows(1), ids)[-1] == once
        rows = new_rows(1)
        assert [fold_ids(rows, [key], first_offset=offset)[0] for offset, key in enumerate(ids)][-1] == singly


def test_i4_new_events_of_the_batch_push_decisions_out_of_the_ring() -> None:
    rows = new_rows(1)
    fold_ids(rows, [1, 2])
    assert fold_ids(rows, [*range(100, 99 + HORIZON), 1, 2], first_offset=2)[-2:] == [NEW, NEW]
    rows = new_rows(1)
    fold_ids(rows, [1, 2])
    assert fold_ids(rows, [*range(100, 99 + HORIZON), 2, 1], first_offset=2)[-2:] == [1, NEW]


def test_an_event_behind_the_row_whose_decision_left_the_ring_is_never_new() -> None:
    rows = new_rows(1)
    fold_ids(rows, list(range(1, 30)))
    before = rows.tobytes()
    assert fold_ids(rows, list(range(1, 30))) == [ALREADY_FOLDED] * 13 + [*range(13, 16), *range(13)]
    assert rows.tobytes() == before
