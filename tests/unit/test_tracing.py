"""Spans of what is scored: one trace from a caller's context on, as its flag says; bounded, and counted on the way out."""

import builtins
import threading
import time
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from assay.schemas.decode import Request
from assay.schemas.errors import SettingError
from assay.schemas.source import Source
from assay.schemas.transaction import Transaction
from assay.streams.metrics import Metrics
from assay.streams.settings import Settings
from assay.streams.tracing import Tracing, tracing_of

TRACE, PARENT, NOW_NS = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", 1_772_362_800_000_000_000
SAMPLED, UNSAMPLED = (f"00-{TRACE}-{PARENT}-{flags}".encode() for flags in ("01", "00"))
TRANSACTION = Transaction.model_validate(
    {"transaction_id": "t-1", "user_id": "u", "amount": "1", "currency": "EUR", "timestamp": 0, "merchant": {"id": "m"}}
)


def request(*trace: tuple[str, bytes]) -> Request:
    source = Source("transactions", 3, 41)
    return Request(source, b"u", NOW_NS // 10**6 - 50, TRANSACTION, False, None, None, 0, list(trace), 0)


class Stand:
    """A tracing whose spans are kept here."""

    def __init__(self, *, ratio: float = 0.0, chance: float = 0.5) -> None:
        self.exporter, self.metrics = InMemorySpanExporter(), Metrics()
        self.tracing = Tracing(Settings(tracing_ratio=ratio), self.metrics, self.exporter, lambda: chance)

    def spans(self, *requests: Request) -> dict[str, list]:
        """Of one micro-batch, by their first word."""
        found: dict[str, list] = {"process": [], "micro-batch": []}
        if (begun := self.tracing.begin(requests, "full", NOW_NS)) is not None:
            begun.end()
        self.tracing._provider.force_flush()
        for span in self.exporter.get_finished_spans():
            found[span.name.split()[0]].append(span)
        return found


@pytest.fixture
def stand() -> Iterator[Stand]:
    stand = Stand()
    yield stand
    stand.tracing.close(10)


def test_a_sampled_request_gets_a_span_under_its_own_context_and_its_answers_bear_that_spans(stand: Stand) -> None:
    asked = request(("traceparent", SAMPLED), ("tracestate", b"shop=1"), ("assay-origin", b"x"))
    [span] = stand.spans(asked)["process"]
    assert (span.name, span.kind, span.start_time) == ("process transactions", SpanKind.CONSUMER, NOW_NS)
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert asked.trace == [
        ("traceparent", f"00-{TRACE}-{span.context.span_id:016x}-01".encode()),
        ("tracestate", b"shop=1"),
        ("assay-origin", b"x"),
    ]


def test_names_are_those_of_the_messaging_conventions(stand: Stand) -> None:
    found = stand.spans(request(("traceparent", SAMPLED)), request())
    whole = {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": "transactions",
        "messaging.consumer.group.name": "assay",
    }
    one = {"messaging.destination.partition.id": "3", "messaging.kafka.offset": 41, "assay.transaction_id": "t-1"}
    assert [dict(span.attributes) for span in found["process"]] == [whole | one]
    assert [dict(span.attributes) for span in found["micro-batch"]] == [
        whole | {"messaging.batch.message_count": 2, "assay.tier": "full"}
    ]


def test_a_micro_batch_links_to_each_requests_context_and_they_link_to_it(stand: Stand) -> None:
    requests = [request(("traceparent", f"00-{n:032x}-{n:016x}-01".encode())) for n in range(1, 300)]
    found = stand.spans(*requests)
    [whole] = found["micro-batch"]
    assert whole.parent is None
    assert [link.context.trace_id for link in whole.links] == list(range(44, 300))  # as many as a micro-batch has at most
    assert all(span.links[0].context == whole.context for span in found["process"])


@pytest.mark.parametrize(
    ("trace", "ratio", "spans"),
    [
        ([("traceparent", UNSAMPLED)], 1.0, 0),
        ([("traceparent", SAMPLED)], 0.0, 1),
        ([], 0.4, 0),
        ([], 0.6, 1),
        ([("traceparent", b"")], 0.6, 1),
        ([("traceparent", b"00-not-a-trace-01")], 0.6, 1),
        ([("traceparent", b"\xff" * 55)], 0.4, 0),
        ([("traceparent", f"00-{'0' * 32}-{PARENT}-01".encode())], 0.4, 0),
        ([("tracestate", b"shop=1")], 0.4, 0),
    ],
)
def test_the_callers_flag_decides_and_chance_where_there_is_none(trace: list, ratio: float, spans: int) -> None:
    stand, asked = Stand(ratio=ratio), request(*trace)
    assert len(stand.spans(asked)["process"]) == spans
    assert spans or asked.trace == trace  # what is not ours to trace passes as it came
    stand.tracing.close(10)


def test_the_latency_histogram_names_a_trace(stand: Stand) -> None:
    stand.spans(request(("traceparent", SAMPLED)))
    [family] = stand.metrics.latency.collect()
    [exemplar] = [sample.exemplar for sample in family.samples if sample.exemplar]
    assert exemplar.labels == {"trace_id": TRACE}


class Failing(SpanExporter):
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def export(self, spans: object) -> SpanExportResult:
        if self.error:
            raise self.error
        return SpanExportResult.FAILURE


class Hanging(SpanExporter):
    def __init__(self, go_on: threading.Event) -> None:
        self.go_on = go_on

    def export(self, spans: object) -> SpanExportResult:
        self.go_on.wait(30)
        return SpanExportResult.FAILURE


@pytest.mark.parametrize("error", [None, OSError("refused")])
def test_spans_that_nobody_takes_are_counted(error: Exception | None) -> None:
    metrics = Metrics()
    tracing = Tracing(Settings(), metrics, Failing(error))
    begun = tracing.begin([request(("traceparent", SAMPLED))], "full", NOW_NS)
    assert begun is not None
    begun.end()
    tracing.close(10)
    assert metrics.registry.get_sample_value("assay_spans_total", {"result": "failed"}) == 2


def test_a_collector_that_hangs_keeps_nobody() -> None:
    go_on = threading.Event()
    tracing = Tracing(Settings(), Metrics(), Hanging(go_on))
    begun = tracing.begin([request(("traceparent", SAMPLED))], "full", NOW_NS)
    assert begun is not None
    began = time.monotonic()
    begun.end()
    tracing.close(0.1)
    assert time.monotonic() - began < 5
    go_on.set()


def test_without_an_endpoint_nothing_is_traced() -> None:
    assert tracing_of(Settings(), Metrics()) is None


def test_a_missing_extra_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: object, **more: object) -> object:
        if name.startswith("opentelemetry.exporter"):
            raise ImportError(name)
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SettingError, match=r"pip install 'assay\[tracing\]'"):
        tracing_of(Settings(tracing_endpoint="http://127.0.0.1:4318/v1/traces"), Metrics())
