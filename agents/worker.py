"""The worker: makes what the core does I/O through, and starts Faust around it."""

import asyncio
import logging
import sys
import time
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

from faust.types import TP

from assay.agents import freshness
from assay.agents.core import Core
from assay.agents.evidence import EvidenceLog
from assay.agents.faust_worker import FaustWorker
from assay.agents.learn import learner_of
from assay.agents.ports import Ports
from assay.agents.progress import Progress
from assay.agents.recovery_log import RecoveryLog
from assay.agents.steer import InForce
from assay.schemas.answer_format import ANSWER_SCHEMAS
from assay.schemas.errors import ServiceError
from assay.schemas.mapping_file import load_mapping
from assay.schemas.reply_topics import ReplyTopics
from assay.streams import partitioning
from assay.streams.app import build_app, partitioned_table, raw_topic
from assay.streams.decision_reader import DecisionReader
from assay.streams.ending import end_process
from assay.streams.http import HttpPort
from assay.streams.kafka import client_options
from assay.streams.key_files import KeyFile, read_signing_key
from assay.streams.metrics import Metrics
from assay.streams.ownership import owned_publishers
from assay.streams.publisher import Publisher
from assay.streams.read_back import LogReader
from assay.streams.registry import SchemaRegistry
from assay.streams.rekeying import Rekeyer, RekeyingThread
from assay.streams.replies import Replies
from assay.streams.settings import Settings
from assay.streams.source_log import SourceLog
from assay.streams.topics import Topics
from assay.streams.tracing import tracing_of
from assay.tables import fold
from assay.tables.batch_rows import BatchRows
from assay.tables.entities import Entities
from assay.tables.profile_table import ProfileTable
from assay.tables.risk_family import RiskFamily

SWITCH_INTERVAL_S = 0.001  # calls that release the GIL win it back from the consumer thread: 5 ms of waiting each by default
LOOKUP_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 2.0
WATCH_INTERVAL_S = 1.0
RENEW_CLAIMS_S = 6 * 3600.0  # brokers forget a quiet producer after a day, and a claim after seven

log = logging.getLogger("assay.worker")


class Worker:
    """One member of the consumer group. Call `run`."""

    def __init__(self, settings: Settings, in_force: InForce, topics: Topics) -> None:
        self.settings, self.in_force = settings, in_force
        self.name = settings.decided_by
        self.metrics = metrics = Metrics()
        metrics.build.labels(version("assay"), in_force.version, in_force.rules_digest).set(1)
        freshness.declare_allowed(metrics)
        self.progress, self.recovery_log = Progress(time.monotonic), RecoveryLog(time.monotonic)
        options = client_options(settings)
        self.app = build_app(settings, ProfileTable)
        self.table: ProfileTable = partitioned_table(self.app, "profiles", topics.transactions.partitions)
        publisher = partial(Publisher, options, deadline=settings.publish_timeout_s, max_bytes=topics.max_bytes)
        self.ownership, self.log_publisher, self.changelog_publisher = owned_publishers(settings, topics.max_bytes)
        keys, signing = settings.signature_keys_file, settings.signing_key_file
        self.producer_keys = None if keys is None else KeyFile(keys)
        signing_key = None if signing is None else read_signing_key(signing)
        registry = settings.schema_registry_url
        self.registry = SchemaRegistry(None if registry is None else registry.get_secret_value(), ANSWER_SCHEMAS)
        allowed = ReplyTopics(settings.reply_topics)
        self.replies = Replies(options, allowed, metrics, signing_key, self.registry.ids)
        self.evidence = EvidenceLog(settings.evidence, publisher, in_force, metrics, self._waiting_s)
        self.reader = DecisionReader(options, settings.decisions, LOOKUP_TIMEOUT_S)
        self.entities = Entities(
            settings.redis_url.get_secret_value(),
            prefix=settings.entity_prefix,
            shards=settings.redis_shards,
            deadline=settings.redis_timeout_s,
            source=topics.transactions.id,
            fingerprint=settings.digests().fingerprint,
            families=(BatchRows(), RiskFamily()),
            may_write=lambda: self.app.consumer.is_member(),
        )
        self.learner = learner_of(
            settings, topics, self.evidence, metrics,
            generation=lambda: self.generation, finished=self._finished, may_write=lambda: self.app.consumer.is_member(),
        )  # fmt: skip
        self.tracing = tracing_of(settings, metrics)
        self.source = SourceLog(self.app, options, settings.transactions, settings.publish_timeout_s)
        mapped, partitions = load_mapping(settings.mapping), topics.transactions.partitions
        rekeyer = partial(Rekeyer, settings, partitions, topics.max_bytes, metrics, mapped)
        self.rekeying = RekeyingThread(rekeyer) if settings.rekey else None
        self.core = Core(
            settings, in_force, self._ports(options), metrics,
            name=self.name, changelog=settings.changelog, partitions=topics.transactions.partitions,
            waiting=self.app.waiting, dead_letter_bytes=topics.max_bytes[settings.dead_letters],
            producer_keys=self.producer_keys, signing_key=signing_key, mapped=mapped, tracing=self.tracing,
        )  # fmt: skip
        self.http = HttpPort(
            settings.http_host, settings.http_port, metrics.registry,
            live=self.progress.live, ready=self.progress.ready, refresh=self.refresh,
        )  # fmt: skip
        self._wire()

    def _ports(self, options: dict[str, Any]) -> Ports:
        settings = self.settings
        return Ports(
            membership=self,
            ownership=self.ownership,
            log=self.log_publisher,
            changelog=self.changelog_publisher,
            source=self.source,
            decisions=self.reader,
            reader=LogReader(
                options, settings.transactions, settings.decisions, settings.dead_letters, settings.publish_timeout_s
            ),
            rows=self.table.rows,
            entities=self.entities,
            replies=self.replies,
            evidence=self.evidence,
            learner=self.learner,
        )

    @property
    def generation(self) -> int:
        """The consumer group's generation that this worker belongs to."""
        return int(self.app.consumer_generation_id)

    def assigned(self) -> set[int]:
        """The source partitions that the group has given us."""
        return {tp.partition for tp in self.app.assignor.assigned_actives() if tp.topic == self.settings.transactions}

    def committed(self, partition: int) -> int:
        """The source offset that the group has committed for a partition of ours."""
        return int(self.app.consumer.acknowledged[TP(self.settings.transactions, partition)])

    def commit(self, partition: int, next_offset: int) -> None:
        """Everything before it has its verdict: commit it, some time soon."""
        self.app.consumer.finished[TP(self.settings.transactions, partition)] = next_offset
        self.progress.advanced(partition, next_offset)

    def _finished(self, tp: TP, next_offset: int) -> None:
        """All outcomes before it are done with."""
        self.app.consumer.finished[tp] = next_offset

    def run(self) -> None:
        """Until SIGTERM or Ctrl-C, then drain and commit. Does not return."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        FaustWorker(self).execute_from_commandline()

    async def start(self) -> None:
        """Everything that Faust does not start. Raises ServiceError or PublishError."""
        fold.warm()
        partitioning.warm()
        self.in_force.warm()
        port = await self.http.start()
        await asyncio.gather(
            self.log_publisher.start(), self.changelog_publisher.start(), self.ownership.start(),
            self.replies.start(), self._start_entities(),
        )  # fmt: skip
        self.registry.start()
        self.evidence.start()
        self.core.start()
        self.learner.start()
        if self.rekeying is not None:
            self.rekeying.start()
        self._watching = [asyncio.ensure_future(self._watch()), asyncio.ensure_future(self._renew_claims())]
        log.info("worker %s: metrics and health on port %d", self.name, port)

    async def _start_entities(self) -> None:
        try:
            await self.entities.start()
        except ServiceError as error:  # a dependency that fails lowers the tier (invariant I6)
            log.error("starting without entity windows: %s", error)

    async def close(self) -> None:
        """After the last commit."""
        for task in self._watching:
            task.cancel()
        if self.rekeying is not None:
            await self.rekeying.close(CLOSE_TIMEOUT_S)
        self.core.close()
        await self.learner.close()  # its last evidence is still to leave
        await asyncio.gather(self.replies.close(CLOSE_TIMEOUT_S), self.evidence.close(CLOSE_TIMEOUT_S))
        parts = (
            self.log_publisher, self.changelog_publisher, self.ownership, self.entities, self.reader, self.source, self.http,
            self.registry,
        )  # fmt: skip
        await asyncio.gather(*(part.close() for part in parts))
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close, CLOSE_TIMEOUT_S)

    def refresh(self) -> None:
        """Bring the gauges up to date."""
        self.metrics.waiting.set(self.app.waiting.count)
        self.metrics.entity_observations_dropped.set(self.entities.dropped)
        self.metrics.entity_windows_lost.set(self.entities.lost)
        self.metrics.entities_under_other_key.set(self.entities.under_other_key)
        self.metrics.assigned.set(len(self.assigned()))
        self.metrics.outcomes_age.set(self.learner.age_s())
        freshness.watch(self.metrics, self.entities, self._waiting_s(), time.time() * 1000)

    def _waiting_s(self) -> Mapping[str, float]:
        return {"entity": self.entities.behind_s, "risk": self.learner.age_s()}

    def _wire(self) -> None:
        """Hang the parts into Faust: two agents, the take-over, the drain, the watch over progress, the end."""
        self.table.on_failure = end_process
        self.table.topic_id = self.ownership.topic_id
        self.table.take_over = self._take_over
        self.app.agent(raw_topic(self.app, self.settings.transactions), name="score")(self.core.run)
        self.app.agent(raw_topic(self.app, self.settings.outcomes), name="learn")(self.learner.run)
        self.app.full[self.settings.outcomes] = lambda: self.learner.full
        self.app.on_before_shutdown.connect(self._closing)

    async def _take_over(self, generation: int, active: set[TP], standby: set[TP]) -> bool:
        return await self.core.take_over(generation, {tp.partition for tp in active})

    def begun(self, starts: Mapping[int, int]) -> None:
        """Partitions are ours, and go on at these source offsets, which are committed."""
        for partition, start in starts.items():
            self.app.consumer.acknowledged[TP(self.settings.transactions, partition)] = start
        self.progress.taken_over(starts)

    async def drain(self) -> None:
        """Before partitions are given up."""
        self.progress.given_up("partitions were given up")
        await self.core.drain()
        await self.learner.drain()

    async def _renew_claims(self) -> None:
        """Long before brokers forget claims and fences."""
        while True:
            await asyncio.sleep(RENEW_CLAIMS_S)
            try:
                await self.ownership.renew()
            except Exception as error:
                end_process("claims could not be renewed", error)

    async def _watch(self) -> None:
        """Keep lag and progress known, every second. It must not end: liveness is judged by what it notes."""
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            try:
                if self.producer_keys is not None:
                    await asyncio.to_thread(self.producer_keys.refresh)
                if self.progress.scoring:
                    await self._watch_partitions()
                else:
                    self._watch_recovery()
                if (silent_s := self.progress.known()) is not None:
                    log.info("Kafka says again how far we are, after %.0f s", silent_s)
            except Exception as error:  # Kafka does not answer, or partitions have just moved
                if self.progress.unknown():
                    log.warning("Kafka does not say how far we are; asked again every second: %r", error)

    def _watch_recovery(self) -> None:
        remaining = self.app.tables.recovery.active_remaining_total()
        self.metrics.recovery_remaining.set(remaining)
        self.recovery_log.remaining(remaining)
        self.progress.recovering(remaining)

    async def _watch_partitions(self) -> None:
        self.metrics.recovery_remaining.set(0)
        self.recovery_log.remaining(0)
        for partition, end in (await self.source.seen_by_others(self.assigned())).items():
            lag = max(0, end - self.progress.next_offset(partition))
            if lag and self.core.flow.idle and await self.source.position(partition) >= end:
                lag = 0  # what is left are the ends of upstream transactions, which are no records
            self.metrics.lag.labels(partition).set(lag)
            if not lag:
                self.progress.idle(partition)

    async def _closing(self, app: Any, **_: Any) -> None:
        await self.close()
