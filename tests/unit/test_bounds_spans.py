"""One more than what may be on its way to a collector of spans (invariant I5)."""

import socket
import threading
import time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from assay.schemas import limits
from assay.streams.metrics import Metrics
from assay.streams.span_export import bounded


class Stalled(SpanExporter):
    """Takes nothing before it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go, self.sizes = threading.Event(), threading.Event(), []

    def export(self, spans: list) -> SpanExportResult:
        self.begun.set()
        self.let_go.wait(30)
        self.sizes.append(len(spans))
        return SpanExportResult.SUCCESS


def counted(metrics: Metrics, result: str) -> float:
    return metrics.registry.get_sample_value("assay_spans_total", {"result": result}) or 0.0


def through(exporter: SpanExporter, metrics: Metrics) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    most, at_once = limits.MAX_WAITING_SPANS, limits.MAX_SPANS_AT_ONCE
    provider.add_span_processor(bounded(exporter, metrics, most, at_once=at_once, linger_ms=10))
    return provider


def test_i5_max_waiting_spans_one_more_is_dropped_and_counted() -> None:
    exporter, metrics = Stalled(), Metrics()
    provider = through(exporter, metrics)
    tracer = provider.get_tracer("test")
    for _ in range(limits.MAX_WAITING_SPANS):
        tracer.start_span("x").end()
    assert counted(metrics, "dropped") == 0
    tracer.start_span("one more").end()
    assert counted(metrics, "dropped") == 1
    exporter.let_go.set()
    provider.shutdown()
    assert counted(metrics, "exported") == limits.MAX_WAITING_SPANS


def test_i5_max_spans_at_once_one_more_leaves_with_the_next() -> None:
    exporter, metrics = Stalled(), Metrics()
    provider = through(exporter, metrics)
    tracer = provider.get_tracer("test")
    tracer.start_span("in flight").end()
    assert exporter.begun.wait(10)
    for _ in range(limits.MAX_SPANS_AT_ONCE + 1):
        tracer.start_span("x").end()
    exporter.let_go.set()
    provider.shutdown()
    assert exporter.sizes == [1, limits.MAX_SPANS_AT_ONCE, 1]


def test_i5_span_export_timeout_s_later_it_has_failed() -> None:
    metrics = Metrics()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces"
        provider = through(OTLPSpanExporter(url, timeout=limits.SPAN_EXPORT_TIMEOUT_S), metrics)
        began = time.monotonic()
        provider.get_tracer("test").start_span("x").end()
        provider.shutdown()
    assert counted(metrics, "failed") == 1
    assert time.monotonic() - began < 3 * limits.SPAN_EXPORT_TIMEOUT_S
