"""Every metric of a worker, once. Names follow Prometheus: base units (seconds, bytes), `_total` for counters."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

STAGES = ("decode", "recall", "profiles", "entities", "models", "answer", "publish", "remember")
STAGE_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5, 30)
LATENCY_BUCKETS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.25, 0.5, 1, 2.5, 5, 10, 60)
SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 512, 1024)
TAKE_OVER_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class BatchHistogram(Collector):
    """A histogram that takes a whole micro-batch in one call: prometheus_client's own costs 1-2 us an observation.

    >>> histogram = BatchHistogram("x_seconds", "An example.", (0.1, 1.0))
    >>> histogram.observe([0.05, 0.5, 7.0])
    >>> [sample.value for family in histogram.collect() for sample in family.samples if sample.name == "x_seconds_bucket"]
    [1.0, 2.0, 3.0]
    """

    def __init__(self, name: str, documentation: str, buckets: Sequence[float]) -> None:
        self._name, self._documentation, self._bounds = name, documentation, np.array(buckets)
        self._counts = np.zeros(len(buckets) + 1, np.int64)
        self._sum = 0.0
        self._exemplars: dict[int, Exemplar] = {}  # the latest of each bucket

    def observe(self, values: Sequence[float] | npt.NDArray[np.float64]) -> None:
        observed = np.asarray(values, np.float64)
        self._counts += np.bincount(np.searchsorted(self._bounds, observed), minlength=len(self._counts))
        self._sum += float(observed.sum())

    def exemplify(self, value: float, trace_id: str, now_s: float) -> None:
        """Name a trace that shows what an observation of that size was made of, at `now_s` (epoch)."""
        self._exemplars[int(np.searchsorted(self._bounds, value))] = Exemplar({"trace_id": trace_id}, value, now_s)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        upper = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        cumulated: Iterable[float] = np.cumsum(self._counts).astype(float)
        shown = (self._exemplars.get(place) for place in range(len(upper)))
        buckets = [
            (bound, count) if exemplar is None else (bound, count, exemplar)
            for bound, count, exemplar in zip(upper, cumulated, shown, strict=True)
        ]
        yield HistogramMetricFamily(self._name, self._documentation, buckets=buckets, sum_value=self._sum)


class Metrics:
    """The worker's metrics in a registry of their own, so that two workers in one process (tests) don't mix."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.transactions = Counter("assay_transactions", "Records read from the transactions topic.", registry=registry)
        self.decisions = Counter("assay_decisions", "Decisions published.", ("action", "tier"), registry=registry)
        self.control_group = Counter(
            "assay_control_group", "Would-be declines that were let through to learn what they are.", registry=registry
        )
        self.repeats = Counter("assay_repeats", "Transactions that had a verdict already.", ("kind",), registry=registry)
        self.dead_letters = Counter("assay_dead_letters", "Records refused.", ("code",), registry=registry)
        self.tombstones = Counter("assay_tombstones", "Records without a value, skipped.", registry=registry)
        self.misplaced = Counter(
            "assay_misplaced",
            "Transactions on another partition than their user's: without a key, with another one, by another partitioner.",
            ("kind",),
            registry=registry,
        )
        self.rekeyed = Counter(
            "assay_rekeyed",
            "Transactions copied to the topic keyed by user, by where they lay; unreadable where no user could be told.",
            ("kind",),
            registry=registry,
        )
        self.rekeying_lag = Gauge(
            "assay_rekeying_lag_records", "Records appended and not yet copied.", ("partition",), registry=registry
        )
        self.limited = Counter("assay_limited", "Transactions over a rate limit, by whose it is.", ("kind",), registry=registry)
        self.replies = Counter("assay_replies", "Replies by what became of them.", ("result",), registry=registry)
        self.explanations_left_out = Counter(
            "assay_explanations_left_out",
            "Approvals that asked why (`assay-explain`) and are not told, since many asked at once.",
            registry=registry,
        )
        self.evidence_dropped = Counter(
            "assay_evidence_dropped", "Evidence records that could not be published.", registry=registry
        )
        self.evidence_batches_dropped = Counter(
            "assay_evidence_batches_dropped", "Micro-batches whose evidence found its queue full.", registry=registry
        )
        self.entities_unavailable = Counter(
            "assay_entities_unavailable", "Micro-batches scored without entity windows.", ("reason",), registry=registry
        )
        self.entity_windows_lost = Gauge(
            "assay_entity_windows_lost",
            "Times that Redis turned out to have less than it had taken: `assay rebuild entities`.",
            registry=registry,
        )
        self.entities_under_other_key = Gauge(
            "assay_entities_under_other_key",
            "1 where what is in Redis was written under another ASSAY_HASH_KEY, and is not used.",
            registry=registry,
        )
        self.entity_observations_dropped = Gauge(
            "assay_entity_observations_dropped", "Observations that no longer fit the queue.", registry=registry
        )
        self.feature_age = Gauge(
            "assay_feature_age_seconds", "How far behind what features are read from is.", ("source",), registry=registry
        )
        self.feature_allowed_age = Gauge(
            "assay_feature_allowed_age_seconds", "What features of a source allow: the least.", ("source",), registry=registry
        )
        self.batch_age = Gauge(
            "assay_batch_feature_age_seconds", "Since the newest as-of time that was read.", ("feature",), registry=registry
        )
        self.batch_allowed_age = Gauge(
            "assay_batch_feature_allowed_age_seconds", "What a batch feature allows.", ("feature",), registry=registry
        )
        self.batch_reads = Counter(
            "assay_batch_feature_reads", "What decisions found of a batch feature.", ("feature", "result"), registry=registry
        )
        self.unreadable_rows = Gauge(
            "assay_unreadable_rows", "Rows beside the entity windows that could not be read.", registry=registry
        )
        self.rule_failures = Counter("assay_rule_failures", "Rules that could not be evaluated.", ("rule",), registry=registry)
        self.outcomes = Counter(
            "assay_outcomes",
            "Outcomes by status; those that could not be read are invalid, those of no transaction that is kept unknown.",
            ("status",),
            registry=registry,
        )
        self.outcomes_age = Gauge(
            "assay_outcomes_age_seconds", "Age of the oldest outcome that was read and not yet applied.", registry=registry
        )
        self.unindexed_dropped = Counter(
            "assay_unindexed_dropped", "Transactions that their outcomes will not find.", registry=registry
        )
        of_label = ("action", "label")
        self.labelled = Counter(
            "assay_labelled", "Transactions that became known to be fraud, disputed or genuine.", of_label, registry=registry
        )
        self.labelled_amount = Counter(
            "assay_labelled_amount", "Their amount, in the base currency.", of_label, registry=registry
        )
        self.withdrawn = Counter(
            "assay_labels_withdrawn", "Transactions that are no longer what they were known to be.", of_label, registry=registry
        )
        self.withdrawn_amount = Counter(
            "assay_labels_withdrawn_amount", "Their amount, in the base currency.", of_label, registry=registry
        )
        self.deadline_missed = Counter("assay_deadline_missed", "Decisions made after their deadline.", registry=registry)
        self.stage = Histogram(
            "assay_stage_seconds",
            "Time of one micro-batch in a stage.",
            ("stage",),
            buckets=STAGE_BUCKETS,
            registry=registry,
        )
        self.stage_cpu = Counter(
            "assay_stage_cpu_seconds",
            "CPU time of the worker's main thread while a stage ran; where a stage waits, that of others is in it.",
            ("stage",),
            registry=registry,
        )
        self.batch_size = Histogram(
            "assay_micro_batch_transactions", "Transactions in a micro-batch.", buckets=SIZE_BUCKETS, registry=registry
        )
        self.batches = Counter("assay_micro_batches", "Micro-batches by what released them.", ("release",), registry=registry)
        self.in_flight = Gauge("assay_micro_batches_in_flight", "Micro-batches that are being scored.", registry=registry)
        self.waiting = Gauge("assay_waiting_records", "Records fetched and not yet taken.", registry=registry)
        self.latency = BatchHistogram(
            "assay_decision_latency_seconds",
            "From the append of a transaction to its published decision.",
            LATENCY_BUCKETS,
        )
        registry.register(self.latency)
        self.spans = Counter("assay_spans", "Spans by what became of them.", ("result",), registry=registry)
        self.lag = Gauge("assay_lag_records", "Records appended and not yet committed.", ("partition",), registry=registry)
        self.recovery_remaining = Gauge(
            "assay_recovery_remaining_records", "Changelog records still to be read before scoring.", registry=registry
        )
        self.take_overs = Histogram(
            "assay_take_over_seconds",
            "From the end of recovery until partitions were taken over: claim, fence, read-back.",
            buckets=TAKE_OVER_BUCKETS,
            registry=registry,
        )
        self.read_back = Counter(
            "assay_verdicts_read_back", "Verdicts of former owners, found at take-overs.", registry=registry
        )
        self.assigned = Gauge("assay_assigned_partitions", "Partitions of this worker.", registry=registry)
        self.build = Gauge("assay_build_info", "What is served: always 1.", ("version", "bundle", "rules"), registry=registry)
        self._stages = {stage: (self.stage.labels(stage), self.stage_cpu.labels(stage)) for stage in STAGES}

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Time one micro-batch in a stage: by the clock, and the CPU of this thread."""
        elapsed, computed = self._stages[stage]
        began, began_computing = time.perf_counter(), time.thread_time()
        yield
        elapsed.observe(time.perf_counter() - began)
        computed.inc(time.thread_time() - began_computing)
