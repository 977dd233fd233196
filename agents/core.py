"""The core of a worker: everything but Faust, Kafka, RocksDB and Redis, which are its ports. Made whole in one place."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from assay.agents.answers import Answers
from assay.agents.flow import Acknowledgements, Continuity, Flow
from assay.agents.limits import limits_of
from assay.agents.memory import Memory
from assay.agents.placement import Placement
from assay.agents.ports import Ports
from assay.agents.profiles import Profiles
from assay.agents.recent import RecentDecisions
from assay.agents.repeats import Repeats
from assay.agents.said import SaidBefore
from assay.agents.score import Scorer
from assay.agents.signed import Keys, Signed
from assay.agents.steer import InForce
from assay.agents.take_over import TakeOver
from assay.schemas.decision import Tier
from assay.schemas.decode import Request
from assay.schemas.limits import MAX_PUBLISHED_BATCH_BYTES
from assay.schemas.mapping import Mapped
from assay.schemas.signature import SigningKey
from assay.schemas.source import SourceTopic
from assay.streams.metrics import Metrics
from assay.streams.micro_batches import MicroBatch, WaitingRecords
from assay.streams.read_back import ReadBack
from assay.streams.settings import Settings
from assay.streams.tracing import Tracing


class Core:
    """Takes partitions over, scores what fetches bring, drains before they are given up.

    Args:
        changelog: name of the changelog topic.
        partitions: of the transactions topic.
        waiting: what was fetched and not yet taken.
        dead_letter_bytes: what the topic of dead letters takes.
        producer_keys: of whose transactions signatures are verified; None where nobody's are.
        signing_key: signs decisions; None where nothing does.
        mapped: makes transactions of what comes in another shape.
        tracing: makes spans; None where nobody does.
    """

    def __init__(
        self,
        settings: Settings,
        in_force: InForce,
        ports: Ports,
        metrics: Metrics,
        *,
        name: str,
        changelog: str,
        partitions: int,
        waiting: WaitingRecords,
        dead_letter_bytes: int = MAX_PUBLISHED_BATCH_BYTES,
        producer_keys: Keys | None = None,
        signing_key: SigningKey | None = None,
        mapped: Mapped | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._ports, self._in_force, self.waiting = ports, in_force, waiting
        self._membership = ports.membership
        self._said, self._recent, self._acknowledgements = SaidBefore(), RecentDecisions(), Acknowledgements()
        self.profiles = Profiles(
            ports.rows, ports.changelog, self._said, in_force.rates, settings.digests(), changelog,
            membership=self._membership, open_repeats=self._acknowledgements.still_open,
        )  # fmt: skip
        self.answers = Answers(
            settings, in_force, self._said, self._recent, ports.log, ports.replies, metrics,
            Placement(partitions, metrics, time.monotonic),
            decided_by=lambda: (name, self._membership.generation), dead_letter_bytes=dead_letter_bytes,
            signing_key=signing_key, tracing=tracing,
        )  # fmt: skip
        self._repeats = Repeats(
            ports.decisions, self.answers, self._acknowledgements, self._membership.commit, self._judge_anew
        )
        self.memory = Memory(self.profiles, self._acknowledge, metrics)
        self._limits = limits_of(settings, metrics)
        signed = None
        if producer_keys is not None:
            required = settings.signatures == "required"
            signed = Signed(producer_keys, settings.incoming, required=required, said=self._said)
        scorer = Scorer(
            self._said,
            self.profiles,
            ports.entities,
            in_force,
            self.answers,
            ports.evidence,
            ports.learner,
            self.memory,
            self._repeats,
            self._limits,
            metrics,
            signed,
            mapped,
            rekeyed=settings.rekey,
        )
        self._continuity = Continuity(ports.source.holds_records)
        self.flow = Flow(scorer.score, waiting, self._continuity, settings, metrics)
        self._first_states: asyncio.Future[None] | None = None
        self.take_over = TakeOver(ports, settings, metrics, partitions, self._begin)

    def start(self) -> None:
        self.memory.start()

    def close(self) -> None:
        """After the last commit."""
        self.memory.close()

    async def run(self, stream: Any) -> None:
        """Score what a Faust stream of record batches brings, for ever."""
        await self.flow.run(stream, lambda: self._membership.generation)

    async def drain(self) -> None:
        """Return once everything that began has its verdict and its rows are durable; look-ups are left to the next owner."""
        self.waiting.close()
        await self._repeats.abandon()
        await self.flow.drain()
        await self.memory.join()
        if self._first_states is not None:
            await self._first_states
        await self._ports.ownership.release()

    async def _begin(self, topic: SourceTopic, starts: Mapping[int, int], found: Mapping[int, ReadBack]) -> None:
        self._membership.begun(starts)
        self._said.begin(found)
        self._recent.clear()
        self._acknowledgements.begin(starts)
        self._repeats.begin()
        if self._limits is not None:
            self._limits.begin()
        self._continuity.begin(starts)
        new = {partition: starts[partition] for partition in sorted(self.profiles.begin(topic, starts))}
        # Not to be cancelled: a publisher whose call was cancelled can publish no more.
        self._first_states = asyncio.ensure_future(self.profiles.remember([], new))
        await asyncio.shield(self._first_states)
        self.waiting.open()

    def _acknowledge(self, batch: MicroBatch) -> None:
        """Step 8: every record of the micro-batch has its verdict."""
        for partition, records in batch.parts.items():
            self._membership.commit(partition, self._acknowledgements.reached(partition, records[-1].offset + 1))

    def _judge_anew(self, request: Request) -> bytes:
        features = self.profiles.peek(request)
        asked = np.array([request.explain])
        verdicts = self._in_force.judge.judge([request.transaction], features, Tier.NO_ENTITIES, asked)
        [value] = self.answers.encode([request], verdicts)
        return value
