"""Outcomes: what became of transactions reaches the risk windows of their entities, and the evaluation of live quality.

For each batch of outcomes: find their transactions, mark those outcomes that found none, apply to the risk rows what the others
change, write what is known now, and only then finish their offsets. A crash between any two of these counts nothing twice and
loses nothing: what is known is written last, and risk rows take no offset twice. So the order within a partition of outcomes is
never left: an outcome whose transaction is not kept yet holds back what comes after it in its partition, for at most
`ASSAY_OUTCOME_PATIENCE_S`. Then it is unknown, and by its mark it stays so when it is read again: risk rows are past its
offset, so were its transaction kept meanwhile, it would be written as known and not be in the rows.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from faust.types import TP

from assay.agents.change_evidence import ChangeEvidence, OffersRecords
from assay.agents.decided import DecidedBatch, decided_batches
from assay.agents.decided_queue import DecidedQueue
from assay.agents.live_quality import LiveQuality
from assay.agents.profiles import Recalled
from assay.agents.refused_outcomes import RefusedOutcomes, SeldomLog
from assay.agents.waiting_outcomes import Waiting, WaitingOutcomes
from assay.models.judge import Verdicts
from assay.schemas.limits import MAX_OUTCOMES_AT_ONCE, MAX_REFUSALS, OUTCOME_PATIENCE_S, REDIS_CATCH_UP_S, REDIS_REST_S
from assay.schemas.outcome import Outcome
from assay.schemas.refusal import Refusal
from assay.streams.kafka import client_options
from assay.streams.metrics import Metrics
from assay.streams.publisher import Publisher
from assay.streams.settings import Settings
from assay.streams.topics import Topics
from assay.tables.key_marks import KeyedLink, KeyMarks
from assay.tables.keyspace import Part
from assay.tables.learned_rows import LearnedRows, Sequences
from assay.tables.learning import Arrived, Learnt, learn, marks_of, places_of
from assay.tables.redis_link import OUTAGES
from assay.tables.risk_call import risk_library
from assay.tables.transaction_index import Place, index_library

HOLD_PAUSE_S = 0.1  # until it is looked for again, where it is not this worker that keeps it

log = logging.getLogger("assay.learn")


class OffersChanges(Protocol):
    """`agents.evidence.EvidenceLog`"""

    def offer_outcomes(self, arrived: list[Arrived], learnt: Learnt, sequences: Sequences) -> None: ...
    def offer_verdicts(self, batch: DecidedBatch, sequences: Sequences) -> None: ...


class KeepsRefused(Protocol):
    """`agents.refused_outcomes.RefusedOutcomes`"""

    async def keep(self, refusals: Sequence[Refusal]) -> set[int]: ...
    def forget(self) -> None: ...
    async def close(self) -> None: ...


class Learner:
    """Keeps decided transactions in Redis, and applies outcomes to them: one task, one thing at a time.

    Args:
        generation: of the consumer group; records of an older one are dropped, their new owner reads them again.
        finished: called with a partition of outcomes and its next offset: everything before it is done with.
        may_write: whether our partitions are still ours.
        patience: seconds that an outcome waits for its transaction to be kept.
        rest: seconds that Redis is left alone after it has failed.
        clock: epoch, seconds. monotonic: seconds that never go back.
    """

    def __init__(
        self,
        rows: LearnedRows,
        evidence: OffersChanges,
        refused: KeepsRefused,
        metrics: Metrics,
        *,
        generation: Callable[[], int],
        finished: Callable[[TP, int], None],
        may_write: Callable[[], bool] = lambda: True,
        patience: float = OUTCOME_PATIENCE_S,
        rest: float = REDIS_REST_S,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows, self._evidence, self._metrics, self._quality = rows, evidence, metrics, LiveQuality(metrics)
        self._refused = refused
        self._generation, self._finished, self._may_write = generation, finished, may_write
        self._rest, self._clock, self._monotonic = rest, clock, monotonic
        self._waiting = WaitingOutcomes(clock, monotonic, patience)
        self._decided = DecidedQueue(rows, evidence.offer_verdicts, metrics.unindexed_dropped.inc)
        self._closed_generation = -1  # whose partitions have been given up
        self._heard_generation = -1  # of the last fetch
        self._at_once, self._refusals = MAX_OUTCOMES_AT_ONCE, 0
        self._unknown = SeldomLog("%d outcomes are of transactions that are not kept: unknown, or too old", monotonic)
        self._failing = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # -- what comes in

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def run(self, stream: Any) -> None:
        """Read a Faust stream of record batches of the outcomes topic, for ever."""
        async for event in stream.events():
            self.take(event.message)

    def take(self, message: Any) -> None:
        """One fetch. Nothing that an outcome says can stop us: one that is not valid becomes a dead letter."""
        if message.generation_id == self._generation() != self._closed_generation:
            if message.generation_id != self._heard_generation:
                self._heard_generation = message.generation_id
                self._waiting.renewed()
            self._waiting.add(message.tp, message.value)
            self._wake.set()

    @property
    def full(self) -> bool:
        """Whether so many outcomes wait that no more are to be fetched; those fetched already are taken."""
        return self._waiting.full

    def decided(self, recalled: Recalled, verdicts: Verdicts) -> None:
        """The decisions of a micro-batch are acknowledged, in the order of micro-batches: keep its transactions, soon."""
        try:
            batches = decided_batches(recalled, verdicts)
        except Exception:  # the decisions stand, whatever a former owner's look like
            log.exception("transactions can't be kept")
            self._metrics.unindexed_dropped.inc(len(recalled.judged_requests))
            return
        self.keep(batches)

    def keep(self, batches: Sequence[DecidedBatch]) -> None:
        """Keep these, some time soon, in their order; the oldest of very many are dropped."""
        self._decided.add(batches)
        self._wake.set()

    # -- ends

    async def drain(self) -> None:
        """Before partitions are given up: outcomes that wait are left to the next owner, decisions kept if Redis answers."""
        self._closed_generation = self._generation()
        self._waiting.clear()
        self._refused.forget()
        if not self._failing:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._decided.empty.wait(), REDIS_CATCH_UP_S)

    async def close(self) -> None:
        """What is not kept by then is lost to the outcomes, and counted."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await asyncio.gather(self._rows.close(), self._refused.close())
        self._decided.drop()

    def age_s(self) -> float:
        """Of the oldest outcome that waits: seconds since it was appended; 0 where none does."""
        return self._waiting.age_s()

    # -- one thing at a time

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._turn()
            except OUTAGES as error:
                if not self._failing:
                    log.warning("outcomes wait until Redis answers, and decisions to be kept for theirs: %r", error)
                self._failing = True
            except Exception:  # a mistake of ours must not end the learning of all that follows
                log.exception("a turn of the learner failed")
            else:
                if self._failing:
                    log.info("outcomes are learnt again")
                self._failing = False
                continue
            await asyncio.sleep(self._rest)
            self._wake.set()

    async def _turn(self) -> None:
        """All that waits. Raises one of OUTAGES."""
        if not self._rows.connected:
            await self._rows.connect()
            self._waiting.renewed()
        await self._decided.keep()
        held: set[TP] = set()
        while (batch := self._waiting.next(self._at_once, held)) and self._may_write():
            held |= await self._guarded(batch)
            await self._decided.keep()
        if batch or held:  # what is left: nobody else wakes us for it
            asyncio.get_running_loop().call_later(HOLD_PAUSE_S, self._wake.set)

    async def _guarded(self, batch: list[Waiting]) -> set[TP]:
        """Apply outcomes; what can't be applied again and again is found one by one, counted and left out."""
        try:
            held = await self._apply(batch)
        except OUTAGES as error:
            self._refusals += "script:" in str(error)
            if self._refusals < MAX_REFUSALS:
                raise
            log.error("outcomes can't be applied: %r", error, extra=_which(batch[0]))
        except Exception:
            log.exception("outcomes can't be applied", extra=_which(batch[0]))
        else:
            self._at_once, self._refusals = MAX_OUTCOMES_AT_ONCE, 0
            return held
        self._refusals = 0
        if len(batch) == 1:
            self._finish(batch, {batch[0]: "failed"})
        self._at_once = 1
        return set()

    async def _apply(self, batch: list[Waiting]) -> set[TP]:
        """Apply outcomes and finish them, in each partition up to the first to be waited for. Returns those partitions."""
        asked, arrived = _valid(batch)
        places, found = await self._find(arrived)
        where = dict(zip(asked, places, strict=True))
        ready, held = self._waiting.ready(batch, {each for each, place in where.items() if place not in found})
        valid, arrived = _valid(ready)
        learnt = learn(arrived, [where[each] for each in valid], found, self._rows.digests)
        await self._mark([arrived[i] for i in learnt.unknown])
        sequences = await self._rows.count_outcomes(learnt.changes)
        self._evidence.offer_outcomes(arrived, learnt, sequences)  # again, if what follows fails: the first one counts
        if learnt.kept and not await self._rows.remember(learnt.kept):
            return held  # another was quicker, a former owner or a sender on a foreign partition: read again
        self._quality.count(learnt.labels)  # now: what is known already gives none, when it is applied again
        refused = await self._refused.keep([said for each in ready if isinstance(said := each.said, Refusal)])
        kept = [each for each in ready if each.tp.partition not in refused]
        self._finish(kept, {valid[i]: "unknown" for i in learnt.unknown if valid[i].tp.partition not in refused})
        return held | {each.tp for each in ready if each.tp.partition in refused}

    async def _find(self, arrived: Sequence[Arrived]) -> tuple[list[Place], dict[Place, bytes]]:
        """The place of each outcome's transaction, or of the outcome's mark where that is set; and what is in those places."""
        places = places_of(arrived, self._rows.keyspace, self._rows.digests)
        marks = marks_of(arrived, places, self._rows.outcomes)
        found = await self._rows.find([*places, *marks])
        return [mark if mark in found else place for place, mark in zip(places, marks, strict=True)], found

    async def _mark(self, unknown: Sequence[Arrived]) -> None:
        """Before anything behind them is applied."""
        if unknown:
            places = places_of(unknown, self._rows.keyspace, self._rows.digests)
            await self._rows.mark(marks_of(unknown, places, self._rows.outcomes))

    def _finish(self, ready: list[Waiting], instead: dict[Waiting, str]) -> None:
        """They are done with: count them by status, or by what is to be counted instead."""
        for waiting in ready:
            if status := instead.get(waiting, waiting.status):
                self._metrics.outcomes.labels(status).inc()
        for tp, offset in self._waiting.done(ready).items():
            self._finished(tp, offset)
        unknown = [each for each, status in instead.items() if status == "unknown"]
        self._unknown.add(len(unknown), _which(unknown[-1]) if unknown else {})


def learner_of(
    settings: Settings,
    topics: Topics,
    evidence: OffersRecords,
    metrics: Metrics,
    *,
    generation: Callable[[], int],
    finished: Callable[[TP, int], None],
    may_write: Callable[[], bool],
) -> Learner:
    """The learner of a worker, over a connection to Redis of its own."""
    decisions, outcomes = settings.keyspace(topics.transactions.id), settings.keyspace(topics.outcomes_id)
    marks = KeyMarks(decisions, Part.OUTCOMES)
    link = KeyedLink(settings.redis_url.get_secret_value(), marks, (risk_library(), index_library()))
    rows = LearnedRows(link, decisions, outcomes, settings.digests(), expire_s=int(settings.outcome_days * 86_400))
    changes = ChangeEvidence(evidence, settings.evidence, settings.outcomes, topics.transactions.partitions)
    refused = RefusedOutcomes(
        lambda: Publisher(client_options(settings), deadline=settings.publish_timeout_s, max_bytes=topics.max_bytes),
        settings.dead_letters,
        topics.transactions.partitions,
        topics.max_bytes[settings.dead_letters],
        settings.hash_key.get_secret_value().encode(),
        metrics,
    )
    return Learner(
        rows, changes, refused, metrics,
        generation=generation, finished=finished, may_write=may_write, patience=settings.outcome_patience_s,
    )  # fmt: skip


def _valid(batch: Sequence[Waiting]) -> tuple[list[Waiting], list[Arrived]]:
    """Those that are outcomes, twice: as they wait, and as they are learnt."""
    valid = [(each, said) for each in batch if isinstance(said := each.said, Outcome)]
    return [each for each, _ in valid], [Arrived(each.tp.partition, each.offset, said) for each, said in valid]


def _which(waiting: Waiting) -> dict[str, str]:
    """For a log: where it lies, and its ids, which were looked through for card numbers."""
    said, where = waiting.said, f"{waiting.tp.topic}:{waiting.tp.partition}:{waiting.offset}"
    ids = {"outcome_id": said.outcome_id, "transaction_id": said.transaction_id} if isinstance(said, Outcome) else {}
    return {"source": where} | ids
