"""What is kept of decided transactions: those judged now, and those that a former owner judged, in their order."""

from collections.abc import Mapping

import numpy as np
import orjson
from aiokafka.structs import ConsumerRecord

from assay.agents.decided import decided_batches
from assay.agents.profiles import Recalled
from assay.models.judge import Verdicts
from assay.schemas.decision import Action, Tier, encode_decision, encode_digests
from assay.schemas.decode import Request, decode
from assay.schemas.limits import MAX_CHANGES_A_CALL
from assay.schemas.source import Source
from assay.streams.read_back import Said
from assay.tables.digests import OFFLINE
from assay.tables.encode import encode_events
from assay.tables.rates import SHIPPED_RATES, Rates
from assay.tables.transaction_index import Kept
from assay.tables.working_rows import Gathered

APPENDED_MS = 1_772_362_800_000


def requests(count: int) -> list[Request]:
    bodies = [
        {
            "transaction_id": f"t-{number}",
            "user_id": "u",
            "amount": "10.50",
            "currency": "EUR",
            "timestamp": APPENDED_MS - 5,
            "merchant": {"id": "m"},
            "device": {"id": "d"},
        }
        for number in range(count)
    ]
    values = [orjson.dumps(body) for body in bodies]
    records = [
        ConsumerRecord("transactions", 2, offset, APPENDED_MS, 1, b"u", value, None, 1, len(value), ())
        for offset, value in enumerate(values)
    ]
    return decode(records).requests


def recalled(of: list[Request], said: Mapping[int, bytes] = {}, repeated: int | None = None) -> Recalled:
    """All of them new, but for what was said of some."""
    events = encode_events(
        [request.transaction for request in of],
        [request.source.offset for request in of],
        [request.appended_ms for request in of],
        Rates.load(SHIPPED_RATES),
        OFFLINE,
    )
    fresh = np.ones(len(of), bool)
    judged = fresh.copy()
    judged[list(said)] = False
    if repeated is not None:
        fresh[repeated] = judged[repeated] = False
    found = {position: Said(value, conflict=False, beyond_horizon=False) for position, value in said.items()}
    nothing = Gathered.__new__(Gathered)
    kept = [of[i] for i in np.flatnonzero(judged)]
    return Recalled(of, events, nothing, np.zeros(len(of), np.int64), fresh, found, judged, kept, {})


def verdicts(*actions: Action, tier: Tier = Tier.FULL) -> Verdicts:
    count = len(actions)
    scores = np.arange(count) / 10
    return Verdicts(tier, scores, np.zeros((count, 3)), list(actions), [[] for _ in actions], [()] * count)


def decision(request: Request, action: Action, tier: Tier = Tier.FULL, source: Source | None = None) -> bytes:
    return encode_decision(
        transaction_id=request.transaction.transaction_id, user_id="u", fraud_score=None, action=action, reasons=[], rules=[],
        model=None, digests=encode_digests(None, None, None, None, None), tier=tier, late_event=False, deadline_missed=False,
        decided_ms=1, appended_ms=1, worker="w", generation=1, source=source or request.source,
    )  # fmt: skip


def test_a_judged_transaction_is_kept_with_its_verdict_and_amounts() -> None:
    [one] = requests(1)
    [batch] = decided_batches(recalled([one]), verdicts(Action.REVIEW, tier=Tier.NO_ENTITIES))
    [row] = batch.rows
    kept = Kept.decode(row["entry"].tobytes())
    assert (row["partition"], row["offset"], kept.action) == (2, 0, Action.REVIEW)
    assert (kept.entry.tier, kept.entry.time_ms, kept.paid) == (Tier.NO_ENTITIES.rank, APPENDED_MS - 5, (10_500, 10_500))
    assert kept.entry.device != 0
    assert kept.entry.address == 0
    assert batch.declined == []


def test_what_a_former_owner_decided_is_kept_with_its_verdict_in_the_order_of_the_records() -> None:
    of = requests(4)
    said = {2: decision(of[2], Action.DECLINE), 0: decision(of[0], Action.DECLINE, Tier.NO_ENTITIES)}
    [batch] = decided_batches(recalled(of, said), verdicts(Action.APPROVE, Action.DECLINE))
    kept = [Kept.decode(row["entry"].tobytes()) for row in batch.rows]
    assert batch.rows["offset"].tolist() == [0, 1, 2, 3]
    assert [each.action for each in kept] == [Action.DECLINE, Action.APPROVE, Action.DECLINE, Action.DECLINE]
    assert np.isnan(kept[0].entry.score)
    assert [request.source.offset for request in batch.declined] == [2, 3]


def test_a_repeat_is_not_kept_again() -> None:
    of = requests(3)
    repeat = {1: decision(of[1], Action.DECLINE, source=of[0].source)}
    [batch] = decided_batches(recalled(of, repeat, repeated=2), verdicts(Action.APPROVE))
    assert batch.rows["offset"].tolist() == [0]


def test_no_batch_has_more_than_one_call_takes() -> None:
    of = requests(1) * (MAX_CHANGES_A_CALL + 1)
    batches = decided_batches(recalled(of), verdicts(*[Action.DECLINE] * len(of)))
    assert [(len(batch), len(batch.declined)) for batch in batches] == [(MAX_CHANGES_A_CALL,) * 2, (1, 1)]


def test_no_transactions_are_no_batch() -> None:
    assert decided_batches(recalled([]), verdicts()) == []
