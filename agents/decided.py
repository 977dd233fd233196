"""What is kept of decided transactions: gathered where decisions leave, written by the learner when its turn comes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson

from assay.agents.profiles import Recalled
from assay.models.judge import Verdicts
from assay.schemas.decision import Action, Tier, decided_for
from assay.schemas.decode import Request
from assay.schemas.limits import MAX_CHANGES_A_CALL
from assay.streams.read_back import Said
from assay.tables.events import Events
from assay.tables.outcomes import thousandths
from assay.tables.risk_layout import whole_thousandths
from assay.tables.transaction_index import ACTIONS, DECIDED, ENTITY_KINDS, VERSION, Decided, declined_in_full

_NUMBERS = {action: number for number, action in enumerate(ACTIONS)}


@dataclass(slots=True)
class DecidedBatch:
    """Those of one micro-batch: DECIDED (n,), and the identity of each that we declined in the tier full."""

    rows: Decided
    declined: list[Request] = field(default_factory=list)
    refusals: int = 0  # how many times it could not be kept for a reason that stays

    def __len__(self) -> int:
        return len(self.rows)


def decided_batches(recalled: Recalled, verdicts: Verdicts) -> list[DecidedBatch]:
    """The transactions that were judged, and those that a former owner judged for the same record, in their order.

    Each batch has as many as one call takes.
    """
    rows = undecided_rows(recalled.judged_requests, recalled.events[recalled.judged])
    requests = list(recalled.judged_requests)
    entry = rows["entry"]
    entry["action"] = [_NUMBERS[action] for action in verdicts.action]
    entry["tier"], entry["score"] = verdicts.tier.rank, verdicts.score
    said = {i: each for i, each in recalled.said.items() if decided_for(each.value) == recalled.requests[i].source}
    limited = recalled.limited.positions if recalled.limited is not None else []
    if said or limited:
        places = np.concatenate([np.flatnonzero(recalled.judged), np.array([*said, *limited], np.int64)])
        others = [_said_rows([recalled.requests[i] for i in said], recalled.events[list(said)], said), _limited_rows(recalled)]
        rows = np.concatenate([rows, *others])
        order = np.argsort(places, kind="stable")
        requests = [recalled.requests[i] for i in places[order].tolist()]
        rows = rows[order]
    return [
        _batch(rows[at : at + MAX_CHANGES_A_CALL], requests[at : at + MAX_CHANGES_A_CALL])
        for at in range(0, len(rows), MAX_CHANGES_A_CALL)
    ]


def _batch(rows: Decided, requests: Sequence[Request]) -> DecidedBatch:
    return DecidedBatch(rows, [requests[i] for i in np.flatnonzero(declined_in_full(rows)).tolist()])


def _said_rows(requests: Sequence[Request], events: Events, said: dict[int, Said]) -> Decided:
    rows = undecided_rows(requests, events)
    for row, each in zip(rows, said.values(), strict=True):
        decision = orjson.loads(each.value)
        entry, score = row["entry"], decision["fraud_score"]
        entry["action"] = _NUMBERS[Action(decision["action"])]
        entry["tier"], entry["score"] = Tier(decision["tier"]).rank, np.nan if score is None else score
    return rows


def _limited_rows(recalled: Recalled) -> Decided:
    if recalled.limited is None:
        return np.zeros(0, DECIDED)
    positions, verdicts = recalled.limited
    rows = undecided_rows([recalled.requests[i] for i in positions], recalled.events[positions])
    rows["entry"]["action"] = [_NUMBERS[action] for action in verdicts.action]
    rows["entry"]["tier"], rows["entry"]["score"] = verdicts.tier.rank, np.nan
    return rows


def undecided_rows(requests: Sequence[Request], events: Events) -> Decided:
    """What is kept of transactions with their events, DECIDED (n,): all but the verdicts."""
    rows = np.zeros(len(events), DECIDED)
    rows["user"], rows["id"], rows["offset"] = events["user"], events["id"], events["offset"]
    rows["partition"] = [request.source.partition for request in requests]
    entry = rows["entry"]
    entry["version"], entry["time_ms"] = VERSION, events["time_ms"]
    entry["whole"] = [thousandths(request.transaction.amount) for request in requests]
    entry["base"] = whole_thousandths(events["amount"] * 1000)
    for kind in ENTITY_KINDS:
        entry[kind] = events[kind]
    return rows
