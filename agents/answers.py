"""Step 6: verdicts, repeats and refusals become records; decisions first and acknowledged, then the replies to callers."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any, NamedTuple

from assay.agents.placement import Placement
from assay.agents.ports import Publishes, Sends
from assay.agents.profiles import Recalled
from assay.agents.recent import RecentDecisions, Remembered
from assay.agents.said import SaidBefore
from assay.agents.steer import InForce
from assay.models.judge import Verdicts
from assay.schemas.decision import SCORE_DECIMALS, Action, Tier, decided_for, encode_decision, encode_model
from assay.schemas.decode import Decoded, Request
from assay.schemas.headers import decision_headers, reply_headers
from assay.schemas.limits import MAX_PUBLISHED_BATCH_BYTES
from assay.schemas.refusal import Refusal, dead_letter, error_reply
from assay.schemas.signature import SigningKey
from assay.schemas.source import OutRecord, Source
from assay.streams.metrics import Metrics
from assay.streams.read_back import Said
from assay.streams.replies import Reply
from assay.streams.settings import Settings
from assay.streams.tracing import BatchSpans, Tracing
from assay.tables.partition_state import Earlier

log = logging.getLogger("assay.score")

ByPartition = dict[int, list[OutRecord]]


class Repeat(NamedTuple):
    """A request that has a verdict already, and the transaction that it repeats."""

    request: Request
    earlier: Earlier


@dataclass(slots=True)
class Prepared:
    """What leaves for one micro-batch, and what is left to be looked up."""

    decisions: ByPartition = field(default_factory=dict)
    dead_letters: ByPartition = field(default_factory=dict)
    replies: list[Reply] = field(default_factory=list)
    appended_ms: list[int] = field(default_factory=list)  # of the transactions that were judged
    unknown: list[Repeat] = field(default_factory=list)  # their decision is not in memory
    spans: BatchSpans | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """How a decision that is given again differs from the first time: only in its headers.

    Attributes:
        first: the source of the transaction that it was made for; None for a first decision.
        published: it stands in the decisions topic under this very source: only the reply is given again.
    """

    first: Source | None = None
    published: bool = False
    conflict: bool = False
    beyond_horizon: bool = False

    @property
    def kind(self) -> str:
        """What it is counted as."""
        if self.beyond_horizon:
            return "beyond_horizon"
        return "replay" if self.published else "conflict" if self.conflict else "repeat"

    @property
    def marks(self) -> dict[str, Any]:
        """As `schemas.headers` takes them."""
        return {
            "verdict": self.first.header() if self.first else None,
            "replay": self.first is not None,
            "conflict": self.conflict,
            "beyond_horizon": self.beyond_horizon,
        }


FIRST = Again()


class Answers:
    """Makes answers and publishes them.

    Args:
        decided_by: (worker, generation), asked for each micro-batch.
        dead_letter_bytes: what their topic takes; a larger one is cut.
        signing_key: signs decisions; replies are signed where they leave, in the form in which they do.
    """

    def __init__(
        self,
        settings: Settings,
        in_force: InForce,
        said: SaidBefore,
        recent: RecentDecisions,
        publisher: Publishes,
        replies: Sends,
        metrics: Metrics,
        placement: Placement,
        *,
        decided_by: Callable[[], tuple[str, int]],
        dead_letter_bytes: int = MAX_PUBLISHED_BATCH_BYTES,
        signing_key: SigningKey | None = None,
        tracing: Tracing | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._decisions_topic, self._dead_letters_topic = settings.decisions, settings.dead_letters
        self._in_force, self._said, self._recent = in_force, said, recent
        self._publisher, self._replies, self._placement = publisher, replies, placement
        self._rekeyed = settings.rekey
        self._hash_key = settings.hash_key.get_secret_value().encode()
        self._metrics, self._decided_by, self._clock = metrics, decided_by, clock
        self._signing_key, self._tracing = signing_key, tracing
        self._type_id = None if settings.reply_type_id is None else settings.reply_type_id.encode()
        self._dead_letter_bytes = min(dead_letter_bytes, MAX_PUBLISHED_BATCH_BYTES)

    def prepare(self, decoded: Decoded, recalled: Recalled, verdicts: Verdicts, began_ns: int) -> Prepared:
        """Records for every request and refusal of a micro-batch that began then (epoch), in the order of their sources."""
        prepared = Prepared()
        if self._tracing is not None:
            prepared.spans = self._tracing.begin(recalled.requests, verdicts.tier, began_ns)
        decisions = iter(self.encode(recalled.judged_requests, verdicts))
        limited = self._limited(recalled)
        for position, (request, judged) in enumerate(zip(recalled.requests, recalled.judged.tolist(), strict=True)):
            if judged:
                self._first(prepared, request, next(decisions))
            elif position in limited:
                self._first(prepared, request, limited[position])
            elif (said := recalled.said.get(position)) is not None:
                self._say_again(prepared, request, said)
            else:
                self._repeat(prepared, request, recalled.earlier[position])
        for refusal in decoded.refusals:
            self._refuse(prepared, refusal)
        self._count(decoded, verdicts)
        self._log(recalled.judged_requests, verdicts)
        return prepared

    async def publish(self, prepared: Prepared) -> None:
        """Return once decisions and dead letters are acknowledged; replies leave after that. Raises PublishError."""
        await self._publisher.publish(
            {(self._decisions_topic, partition): records for partition, records in prepared.decisions.items()}
            | {(self._dead_letters_topic, partition): records for partition, records in prepared.dead_letters.items()}
        )
        now_ms = self._clock() * 1000
        self._metrics.latency.observe([(now_ms - appended) / 1000 for appended in prepared.appended_ms])
        self._replies.send(prepared.replies)
        if prepared.spans is not None:
            prepared.spans.end()

    def encode(self, requests: Sequence[Request], verdicts: Verdicts) -> list[bytes]:
        """The decisions of requests just judged, as bytes."""
        now_ms = int(self._clock() * 1000)
        digests, version, (worker, generation) = self._in_force.digests, self._in_force.version, self._decided_by()
        scores, members = verdicts.score.tolist(), verdicts.members.tolist()
        missed = sum(now_ms > request.deadline_ms for request in requests)
        self._metrics.deadline_missed.inc(missed)
        return [
            encode_decision(
                transaction_id=request.transaction.transaction_id,
                user_id=request.transaction.user_id,
                fraud_score=score,
                action=verdicts.action[i],
                reasons=verdicts.reasons[i],
                rules=verdicts.rules[i],
                model=encode_model(version, "champion", members[i]) if verdicts.tier > Tier.RULES_ONLY else None,
                digests=digests,
                tier=verdicts.tier,
                late_event=request.late_event,
                deadline_missed=now_ms > request.deadline_ms,
                decided_ms=now_ms,
                appended_ms=request.appended_ms,
                worker=worker,
                generation=generation,
                source=request.source,
                control_share=verdicts.control.get(i),
            )
            for i, (request, score) in enumerate(zip(requests, scores, strict=True))
        ]

    def remember(self, request: Request, value: bytes) -> None:
        """Keep a decision in memory, for repeats."""
        transaction = request.transaction
        self._recent.add(
            request.source.partition,
            transaction.user_id,
            transaction.transaction_id,
            Remembered(value, request.source, request.payload),
        )

    def known(self, request: Request) -> Remembered | None:
        """The decision of its transaction, where it is in memory."""
        transaction = request.transaction
        return self._recent.get(request.source.partition, transaction.user_id, transaction.transaction_id)

    def answer(self, prepared: Prepared, request: Request, value: bytes, again: Again = FIRST) -> None:
        """Add the records that answer one request with a decision."""
        if again is not FIRST:
            self._metrics.repeats.labels(again.kind).inc()
        if not again.published:
            headers = decision_headers(request.source, request.correlation, request.trace, **again.marks, type_id=self._type_id)
            if self._signing_key is not None:
                headers.append(self._signing_key.header(value))
            prepared.decisions.setdefault(request.source.partition, []).append((request.user, value, headers))
        if request.address is not None:
            headers = reply_headers(request.address, request.source, request.trace, **again.marks, type_id=self._type_id)
            prepared.replies.append((request.address, (request.key or request.user, value, headers)))

    def _limited(self, recalled: Recalled) -> dict[int, bytes]:
        """The decisions of those over a rate limit, by position."""
        if recalled.limited is None:
            return {}
        positions, verdicts = recalled.limited
        self._metrics.decisions.labels(verdicts.action[0], verdicts.tier).inc(len(positions))
        return dict(zip(positions, self.encode([recalled.requests[i] for i in positions], verdicts), strict=True))

    def _first(self, prepared: Prepared, request: Request, value: bytes) -> None:
        known = self.known(request)
        self.remember(request, value)
        prepared.appended_ms.append(request.appended_ms)
        # Known in memory and no longer to the profile: judged anew, as by a worker that has just started.
        self.answer(prepared, request, value, FIRST if known is None else Again(beyond_horizon=True))

    def _say_again(self, prepared: Prepared, request: Request, said: Said) -> None:
        """What a former owner published for this very record stands; only its reply may not have left."""
        first = decided_for(said.value)
        if first == request.source:
            self.remember(request, said.value)
        again = Again(first, published=True, conflict=said.conflict, beyond_horizon=said.beyond_horizon)
        self.answer(prepared, request, said.value, again)

    def _repeat(self, prepared: Prepared, request: Request, earlier: Earlier) -> None:
        known = self.known(request)
        if known is None:
            prepared.unknown.append(Repeat(request, earlier))
        else:
            conflict = known.payload != request.payload
            if conflict:
                extra = {"transaction_id": request.transaction.transaction_id, "source": request.source.header().decode()}
                log.warning("the same transaction id came with another payload: its decision is repeated", extra=extra)
            self.answer(prepared, request, known.value, Again(known.source, request.source == known.source, conflict))

    def _refuse(self, prepared: Prepared, refusal: Refusal) -> None:
        if self._said.decision(refusal.source) is not None:
            return  # by another version of us: what has a decision gets no dead letter (invariant I1)
        if not self._said.refused(refusal.source):
            letter = dead_letter(refusal, self._dead_letter_bytes, self._hash_key, rekeyed=self._rekeyed)
            prepared.dead_letters.setdefault(refusal.source.partition, []).append(letter)
        if refusal.address is not None and (reply := error_reply(refusal, self._type_id, rekeyed=self._rekeyed)) is not None:
            prepared.replies.append((refusal.address, reply))
        self._metrics.dead_letters.labels(refusal.code).inc()
        log.warning("refused", extra={"code": refusal.code, "field": refusal.field, "source": refusal.source.header().decode()})

    def _log(self, requests: Sequence[Request], verdicts: Verdicts) -> None:
        """A line for each transaction that was not simply approved; written by a thread of its own (`streams.logs`)."""
        for i, (request, action) in enumerate(zip(requests, verdicts.action, strict=True)):
            if action is not Action.APPROVE or i in verdicts.control:
                log.info(
                    "decision",
                    extra={
                        "transaction_id": request.transaction.transaction_id,
                        "action": action,
                        "score": None if isnan(verdicts.score[i]) else round(float(verdicts.score[i]), SCORE_DECIMALS),
                        "reasons": [reason.code for reason in verdicts.reasons[i]],
                        "rules": verdicts.rules[i],
                        "tier": verdicts.tier,
                        "source": request.source.header().decode(),
                    },
                )

    def _count(self, decoded: Decoded, verdicts: Verdicts) -> None:
        self._metrics.transactions.inc(len(decoded.requests) + len(decoded.refusals) + decoded.tombstones)
        self._metrics.tombstones.inc(decoded.tombstones)
        for action, number in Counter(verdicts.action).items():
            self._metrics.decisions.labels(action, verdicts.tier).inc(number)
        self._metrics.control_group.inc(len(verdicts.control))
        for failure in verdicts.failures:
            self._metrics.rule_failures.labels(failure.rule).inc()
        self._placement.note(decoded.requests)
