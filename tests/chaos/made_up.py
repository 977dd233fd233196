"""Records as a faultless worker would have written them, for tests of the checker to spoil."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
from aiokafka.structs import ConsumerRecord

from assay.schemas.decision import Action, Tier, encode_decision, encode_digests
from assay.schemas.decode import Request, decode
from assay.schemas.limits import DECISIONS_REMEMBERED_PER_USER
from assay.schemas.refusal import dead_letter
from assay.schemas.source import FENCE_HEADER, SOURCE_HEADER, OutRecord
from assay.tables.encode import encode_events
from assay.tables.features import FEATURE_COUNT, PROFILE_FEATURES
from assay.tables.fold import fold
from assay.tables.profile import new_rows
from assay.tables.rates import SHIPPED_RATES, Rates
from assay.tables.recall import NEW, recall
from tests.integration.topics import transaction

from .checker import Checker
from .replayed import DIGESTS

APPENDED_MS = 1_767_225_700_000
TOPICS = ("transactions", "decisions", "dead-letters", "evidence", "changelog", "checkout.reply")
REPLY_TO = [("reply-to", b"checkout.reply")]


def record(topic: str, offset: int, out: OutRecord, timestamp: int, partition: int = 0) -> ConsumerRecord:
    """As a consumer reads it."""
    key, value, headers = out
    return ConsumerRecord(topic, partition, offset, timestamp, 1, key, value, None, 0, 0, tuple(headers))


@dataclass
class MadeUp:
    """One partition of a deployment, and what a checker says of it."""

    records: dict[str, list[ConsumerRecord]] = field(default_factory=lambda: {topic: [] for topic in TOPICS})

    def add(self, topic: str, out: OutRecord, partition: int = 0) -> None:
        """Append one record."""
        held = self.records[topic]
        held.append(record(topic, len(held), out, APPENDED_MS + 5 * len(held), partition))

    def again(self, topic: str, index: int, **changes: Any) -> None:
        """Append a record of the topic once more, changed."""
        held = self.records[topic]
        held.append(replace(held[index], offset=len(held), **changes))

    def change(self, topic: str, index: int, **changes: Any) -> None:
        """Change a record where it lies."""
        self.records[topic][index] = replace(self.records[topic][index], **changes)

    def check(self) -> Checker:
        """A checker that has been told everything."""
        checker = Checker(Rates.load(SHIPPED_RATES))
        tell = (
            checker.transactions, checker.decisions, checker.dead_letters, checker.evidence, checker.changelog, checker.replies,
        )  # fmt: skip
        for topic, told in zip(TOPICS, tell, strict=True):
            told(self.records[topic])
        return checker


def faultless() -> MadeUp:
    """Payments of two users, a repeat, one with another payload, a record that is refused, a tombstone, fences."""
    bodies = [transaction(number, f"user-{number % 2}") for number in range(2 * DECISIONS_REMEMBERED_PER_USER)]
    made = deployment([*bodies, bodies[-1], bodies[-2] | {"amount": "99.00"}])
    made.add("transactions", (b"user-0", b"{", REPLY_TO))
    made.add("transactions", (b"user-0", None, []))
    for topic in ("decisions", "dead-letters", "evidence", "changelog"):
        made.add(topic, (b"\0fence", None, [(FENCE_HEADER, b"1")]))
    answer(made)
    return made


def deployment(bodies: Iterable[dict[str, Any]]) -> MadeUp:
    """These transactions, and nothing that was made of them."""
    made = MadeUp()
    for body in bodies:
        made.add("transactions", (body["user_id"].encode(), orjson.dumps(body), REPLY_TO))
    return made


def decision(request: Request, first: int, action: Action = Action.APPROVE) -> OutRecord:
    """The decision of the transaction at source offset `first`, as the record that this request gets."""
    value = encode_decision(
        transaction_id=request.transaction.transaction_id, user_id=request.transaction.user_id,
        fraud_score=0.25, action=action, reasons=[("amount", "the amount", 0.5)], rules=[], model=None,
        digests=encode_digests(None, None, None, None, None), tier=Tier.FULL, late_event=False, deadline_missed=False,
        decided_ms=APPENDED_MS, appended_ms=APPENDED_MS, worker="w", generation=1, source=request.source._replace(offset=first),
    )  # fmt: skip
    return request.user, value, [(SOURCE_HEADER, request.source.header())]


def answer(made: MadeUp) -> None:
    """All that a worker writes, in one micro-batch, by the code that workers run."""
    decoded = decode(made.records["transactions"])
    firsts: dict[str, int] = {}
    for request in decoded.requests:
        first = firsts.setdefault(request.transaction.transaction_id, request.source.offset)
        made.add("decisions", decision(request, first))
        made.add("checkout.reply", decision(request, first))
    for refusal in decoded.refusals:
        made.add("dead-letters", dead_letter(refusal, 1_000_000))
        headers = [(SOURCE_HEADER, refusal.source.header()), ("assay-error", b"malformed")]
        made.add("checkout.reply", (None, b"{}", headers))
    for request, row, features in _folded(decoded.requests):
        made.add("changelog", (request.user, row, [(SOURCE_HEADER, request.source.header())]))
        value = orjson.dumps({"features": features}, option=orjson.OPT_SERIALIZE_NUMPY)
        made.add("evidence", (request.user, value, [(SOURCE_HEADER, request.source.header())]))


def _folded(requests: Iterable[Request]) -> Iterable[tuple[Request, bytes, np.ndarray[Any, Any]]]:
    rows: dict[bytes, Any] = {}
    for request in requests:
        row = rows.setdefault(request.user, new_rows(1))
        rates = Rates.load(SHIPPED_RATES)
        events = encode_events([request.transaction], [request.source.offset], [request.appended_ms], rates, DIGESTS)
        slots, repeats = np.zeros(1, np.int32), np.empty(1, np.int64)
        features = np.full((1, FEATURE_COUNT), np.nan, np.float32)
        recall(row, slots, events, repeats)
        fold(row, slots, events, repeats, features)
        if repeats[0] == NEW:
            yield request, row[0].tobytes(), np.ascontiguousarray(features[0, :PROFILE_FEATURES])
