"""From a micro-batch of transactions to published decisions: the eight steps of the design, in order.

What a step computes lives in schemas, tables and models; what it moves, in streams. Micro-batches overlap: while one waits for
Redis or an acknowledgement, the next is decoded and folded. Steps 6 to 8 keep the order in which micro-batches began; 7 and 8
follow the answer and are taken by `agents.memory` for several micro-batches at once.
"""

import asyncio
import time

import numpy as np
import numpy.typing as npt

from assay.agents.answers import Answers
from assay.agents.flow import Turns
from assay.agents.freshness import BatchReads
from assay.agents.limits import Limits
from assay.agents.memory import Memory
from assay.agents.outage_log import OutageLog
from assay.agents.ports import Learns, Observes, Offers
from assay.agents.profiles import Profiles, Recalled
from assay.agents.repeats import Repeats
from assay.agents.said import SaidBefore
from assay.agents.steer import InForce
from assay.models.judge import Verdicts
from assay.schemas.decision import Tier
from assay.schemas.decode import Signed, decode
from assay.schemas.limits import MAX_EXPLAINED_ON_DEMAND
from assay.schemas.mapping import Mapped
from assay.streams.metrics import Metrics
from assay.streams.micro_batches import MicroBatch
from assay.tables.entity_answer import EntityAnswer
from assay.tables.features import PROFILE_FEATURES


class Scorer:
    """Scores micro-batches. Its parts are made and wired by `agents.worker`."""

    def __init__(
        self,
        said: SaidBefore,
        profiles: Profiles,
        entities: Observes,
        in_force: InForce,
        answers: Answers,
        evidence: Offers,
        learner: Learns,
        memory: Memory,
        repeats: Repeats,
        limits: Limits | None,
        metrics: Metrics,
        signed: Signed | None = None,
        mapped: Mapped | None = None,
        *,
        rekeyed: bool = False,
    ) -> None:
        self._signed, self._mapped, self._rekeyed = signed, mapped, rekeyed
        self._said, self._profiles, self._entities, self._in_force = said, profiles, entities, in_force
        self._answers, self._evidence, self._memory, self._metrics = answers, evidence, memory, metrics
        self._limits = limits
        self._learner, self._repeats, self._publishing = learner, repeats, Turns()
        self._outage_log, self._batch_reads = OutageLog(time.monotonic), BatchReads(metrics)

    async def score(self, batch: MicroBatch) -> None:
        """One micro-batch, from records to acknowledged decisions. Raises PublishError: then the process must end."""
        began_ns = time.time_ns()
        self._metrics.batch_size.observe(len(batch.records))
        with self._metrics.timed("decode"):
            decoded = decode(batch.records, signed=self._signed, mapped=self._mapped, rekeyed=self._rekeyed)  # 1
            if self._said:
                decoded = self._said.without_refused(decoded)
        with self._metrics.timed("recall"):
            recalled = self._profiles.recall(decoded.requests)  # 2
            if self._limits is not None:
                self._limits.mark(recalled, batch.records)
        entities = asyncio.ensure_future(self._ask_entities(recalled))  # 3
        with self._metrics.timed("profiles"):
            features = self._profiles.fold(recalled)  # 4
        with self._metrics.timed("entities"):
            windows = await entities
            features[:, PROFILE_FEATURES:] = windows.values
            if recalled.said or recalled.limited:  # folded and observed with the others, but not to be judged
                judged = recalled.judged[recalled.fresh]
                features, windows = features[judged], windows.of(judged)
        with self._metrics.timed("models"):
            verdicts = self._judge(recalled, features, windows)  # 5
        async with self._publishing.turn(batch.number):
            with self._metrics.timed("answer"):
                answers = self._answers.prepare(decoded, recalled, verdicts, began_ns)
            with self._metrics.timed("publish"):
                await self._answers.publish(answers)  # 6
            self._learner.decided(recalled, verdicts)
            await self._repeats.look_up(answers.unknown)
            await self._memory.put(batch, recalled.folded)  # 7, 8
        self._evidence.offer(recalled.judged_requests, features, windows, verdicts.tier)

    async def _ask_entities(self, recalled: Recalled) -> EntityAnswer:
        partitions = np.array([request.source.partition for request in recalled.requests], np.int64)
        return await self._entities.observe(recalled.events[recalled.fresh], partitions[recalled.fresh])

    def _judge(self, recalled: Recalled, features: npt.NDArray[np.float32], windows: EntityAnswer) -> Verdicts:
        tier = Tier.FULL if windows.available else Tier.NO_ENTITIES
        self._outage_log.note(len(features), windows.reason)
        self._batch_reads.count(windows)
        if not windows.available:
            self._metrics.entities_unavailable.labels(windows.reason).inc()
        requests = recalled.judged_requests
        asked = np.array([request.explain for request in requests], np.bool_)
        told = on_demand(asked)
        self._metrics.explanations_left_out.inc(int((asked & ~told).sum()))
        return self._in_force.judge.judge([request.transaction for request in requests], features, tier, told)


def on_demand(asked: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Of those that ask why even of an approval, bool (n,), the ones that are told: a checkout that always asks costs no other
    its answer."""
    told: npt.NDArray[np.bool_] = asked & (np.cumsum(asked) <= MAX_EXPLAINED_ON_DEMAND)
    return told
