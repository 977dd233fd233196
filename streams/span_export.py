"""Spans on their way out: bounded, counted, and never waited for. Only imported where spans are made."""

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from assay.streams.metrics import Metrics


class _Counted(SpanExporter):
    """Says what became of spans."""

    def __init__(self, exporter: SpanExporter, metrics: Metrics) -> None:
        self._exporter, self._metrics = exporter, metrics
        self.done = 0  # written by the thread that exports, and by no other

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception:  # whatever it was: these spans are gone
            result = SpanExportResult.FAILURE
        exported = result is SpanExportResult.SUCCESS
        self._metrics.spans.labels("exported" if exported else "failed").inc(len(spans))
        self.done += len(spans)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Bounded(BatchSpanProcessor):
    """Drops and counts what would make more spans wait than may: the SDK's own would drop without a count."""

    def __init__(self, exporter: _Counted, metrics: Metrics, most: int, at_once: int, linger_ms: float) -> None:
        super().__init__(exporter, max_queue_size=most, schedule_delay_millis=linger_ms, max_export_batch_size=at_once)
        self._counted, self._metrics, self._most = exporter, metrics, most
        self._taken = 0

    def on_end(self, span: ReadableSpan) -> None:
        if self._taken - self._counted.done >= self._most:
            self._metrics.spans.labels("dropped").inc()
            return
        self._taken += 1
        super().on_end(span)


def bounded(exporter: SpanExporter, metrics: Metrics, most: int, *, at_once: int, linger_ms: float) -> BatchSpanProcessor:
    """Exports in a thread of its own, `at_once` together, every `linger_ms`; of more than `most` that wait, none is kept."""
    return _Bounded(_Counted(exporter, metrics), metrics, most, at_once, linger_ms)
