"""Evidence of changes: what was changed and by what, beside the evidence of decisions."""

import numpy as np
import orjson

from assay.agents.change_evidence import ChangeEvidence
from assay.agents.decided import DecidedBatch, decided_batches
from assay.schemas.decision import Action
from assay.schemas.evidence import ChangeEvidence as Read
from assay.schemas.evidence import is_change
from assay.schemas.source import SOURCE_HEADER, OutRecord
from assay.streams.outbox import Make
from assay.tables.digests import OFFLINE
from assay.tables.learning import learn, places_of

from .rows_in_memory import KEYSPACE
from .test_decided import recalled, requests, verdicts
from .test_learning import KEPT, arrived

SEQUENCES = np.arange(12).reshape(2, 6)


class Queue:
    """Where evidence leaves from."""

    def __init__(self) -> None:
        self.makes: list[Make] = []
        self.changes = ChangeEvidence(self, "evidence", "outcomes", partitions=2)

    def offer_records(self, make: Make) -> None:
        self.makes.append(make)

    async def records(self) -> dict[tuple[str, int], list[OutRecord]]:
        [make] = self.makes
        return {where: list(records) for where, records in (await make()).items()}


async def test_each_change_says_which_outcome_made_it_and_which_change_of_its_rows_it_was() -> None:
    outcomes = arrived("disputed", "authorised", "fraud", amount="50")
    places = places_of(outcomes, KEYSPACE, OFFLINE)
    queue = Queue()
    queue.changes.offer_outcomes(outcomes, learn(outcomes, places, dict.fromkeys(places, KEPT.encode()), OFFLINE), SEQUENCES)
    [(where, records)] = (await queue.records()).items()
    assert where == ("evidence", 1)  # of the third partition of outcomes, and there are two
    assert [dict(headers)[SOURCE_HEADER] for _, _, headers in records] == [b"outcomes:3:0", b"outcomes:3:2"]
    assert all(is_change(headers) for _, _, headers in records)
    read = Read.model_validate_json(records[1][1] or b"")
    assert (read.outcome_id, read.user_id, read.transaction_id, read.time_ms) == ("o-2", "u-1", "t-1", 5_000)
    assert (read.change.frauds, read.change.thousandths, read.risk_sequences) == (1, 40_000, [6, 7, 8, 9, 10, 11])


async def test_each_of_our_own_declines_says_which_transaction_it_was() -> None:
    [batch] = decided_batches(recalled(requests(3)), verdicts(Action.DECLINE, Action.APPROVE, Action.DECLINE))
    queue = Queue()
    queue.changes.offer_verdicts(batch, SEQUENCES)
    [(where, records)] = (await queue.records()).items()
    assert where == ("evidence", 2)
    read = [Read.model_validate_json(value or b"") for _, value, _ in records]
    assert [(each.outcome_id, each.source.offset, each.change.verdicts) for each in read] == [(None, 0, 1), (None, 2, 1)]
    assert orjson.loads(records[0][1] or b"")["change"]["thousandths"] == 0


def test_where_nothing_has_changed_nothing_is_offered() -> None:
    queue = Queue()
    [batch] = decided_batches(recalled(requests(1)), verdicts(Action.APPROVE))
    queue.changes.offer_verdicts(DecidedBatch(batch.rows), SEQUENCES[:0])
    assert queue.makes == []
