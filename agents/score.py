"""From a micro-batch of transactions to published decisions: the eight steps of the design, in order.

What a step computes lives in schemas, tables and models; what it moves, in streams. Micro-batches overlap: while one waits for
Redis or an acknowledgement, the next is decoded and folded. Steps 6 to 8 keep the order in which micro-batches began.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from assay.agents.answers import Answers
from assay.agents.evidence import EvidenceLog
from assay.agents.flow import Turns
from assay.agents.profiles import Profiles, Recalled
from assay.agents.steer import InForce
from assay.models.judge import Verdicts
from assay.schemas.decision import Tier
from assay.schemas.decode import decode
from assay.streams.metrics import Metrics
from assay.streams.micro_batches import MicroBatch
from assay.tables.entities import Entities, EntityAnswer
from assay.tables.features import PROFILE_FEATURES


class Scorer:
    """Scores micro-batches. Its parts are made and wired by `agents.worker`."""

    def __init__(
        self,
        profiles: Profiles,
        entities: Entities,
        in_force: InForce,
        answers: Answers,
        evidence: EvidenceLog,
        acknowledge: Callable[[MicroBatch], None],
        metrics: Metrics,
    ) -> None:
        self._profiles, self._entities, self._in_force = profiles, entities, in_force
        self._answers, self._evidence, self._acknowledge, self._metrics = answers, evidence, acknowledge, metrics
        self._publishing, self._remembering = Turns(), Turns()

    async def score(self, batch: MicroBatch) -> None:
        """One micro-batch, from records to acknowledged source. Raises PublishError: then the process must end."""
        with self._stage("decode"):
            decoded = decode(batch.records)  # 1
        with self._stage("recall"):
            recalled = self._profiles.recall(decoded.requests)  # 2
        entities = asyncio.ensure_future(self._ask_entities(recalled))  # 3
        with self._stage("profiles"):
            features = self._profiles.fold(recalled)  # 4
        with self._stage("entities"):
            windows = await entities
            features[:, PROFILE_FEATURES:] = windows.values
        with self._stage("models"):
            verdicts = self._judge(recalled, features, windows)  # 5
        async with self._publishing.turn(batch.number):
            with self._stage("answer"):
                answers = self._answers.prepare(decoded, recalled, verdicts)
            with self._stage("publish"):
                await self._answers.publish(answers)  # 6
        async with self._remembering.turn(batch.number):
            with self._stage("remember"):
                await self._profiles.remember(recalled)  # 7
            self._acknowledge(batch)  # 8
        await self._evidence.publish(recalled.fresh_requests, features, windows, verdicts.tier)

    async def _ask_entities(self, recalled: Recalled) -> EntityAnswer:
        partitions = np.array([request.source.partition for request in recalled.fresh_requests], np.int64)
        return await self._entities.observe(recalled.events[recalled.fresh], partitions)

    def _judge(self, recalled: Recalled, features: npt.NDArray[np.float32], windows: EntityAnswer) -> Verdicts:
        tier = Tier.FULL if windows.available else Tier.NO_ENTITIES
        if not windows.available:
            self._metrics.entities_unavailable.labels(windows.reason).inc()
        return self._in_force.judge.judge([request.transaction for request in recalled.fresh_requests], features, tier)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        began, computed = time.perf_counter(), time.thread_time()
        yield
        self._metrics.stage.labels(name).observe(time.perf_counter() - began)
        self._metrics.stage_cpu.labels(name).inc(time.thread_time() - computed)
