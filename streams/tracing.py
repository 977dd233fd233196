"""Spans of what is scored, by OpenTelemetry's messaging conventions (semantic conventions 1.44, in development there).

Each transaction that is traced has a `process` span under the context that its request came with; its decision and reply bear
that span's `traceparent`. Each micro-batch has a span of its own, linked with theirs both ways. Whether a transaction is traced
is its caller's decision (the flag of its `traceparent`, https://www.w3.org/TR/trace-context/#sampled-flag); where it has none,
chance decides.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.schemas.decode import Request
from assay.schemas.errors import SettingError
from assay.schemas.headers import TRACE_HEADERS, Header
from assay.schemas.limits import MAX_SPANS_AT_ONCE, MAX_WAITING_SPANS, SPAN_EXPORT_TIMEOUT_S
from assay.streams.metrics import Metrics
from assay.streams.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

_LINGER_MS = 1_000  # until spans are exported, unless many wait
_FLAGS_AT = 53  # of a traceparent: VERSION-TRACE-PARENT-FLAGS, in hexadecimal, 2-32-16-2


@dataclass(frozen=True, slots=True)
class BatchSpans:
    """Those of one micro-batch, and of its transactions that are traced."""

    whole: "Span"
    traced: Sequence[tuple[Request, "Span"]]
    metrics: Metrics

    def end(self) -> None:
        """Its decisions are published, and their replies on their way."""
        now_ns = time.time_ns()
        for request, span in self.traced:
            trace_id = f"{span.get_span_context().trace_id:032x}"
            self.metrics.latency.exemplify(now_ns / 1e9 - request.appended_ms / 1e3, trace_id, now_ns / 1e9)
            span.end(now_ns)
        self.whole.end(now_ns)


class Tracing:
    """Makes spans where `tracing_endpoint` is set. Nothing here waits: what can't be exported in time is dropped, and counted.

    Args:
        exporter: of the SDK.
        chance: in [0, 1), for those that nobody has decided on.
    """

    def __init__(
        self, settings: Settings, metrics: Metrics, exporter: "SpanExporter", chance: Callable[[], float] = random.random
    ) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import SpanLimits, TracerProvider
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        from assay.streams.span_export import bounded

        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # who is not sampled gets no span at all
            resource=Resource.create({"service.name": settings.group_id, "service.instance.id": settings.decided_by}),
            span_limits=SpanLimits(max_links=settings.batch_transactions),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            bounded(exporter, metrics, MAX_WAITING_SPANS, at_once=MAX_SPANS_AT_ONCE, linger_ms=_LINGER_MS)
        )
        self._tracer = self._provider.get_tracer("assay", schema_url="https://opentelemetry.io/schemas/1.44.0")
        self._propagator, self._ratio, self._chance = TraceContextTextMapPropagator(), settings.tracing_ratio, chance
        self._metrics, self._topic = metrics, settings.transactions
        self._attributes: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.operation.name": "process",
            "messaging.destination.name": settings.transactions,
            "messaging.consumer.group.name": settings.group_id,
        }

    def begin(self, requests: Sequence[Request], tier: str, began_ns: int) -> BatchSpans | None:
        """Give those that are traced a span, whose context their answers will bear; None where none is.

        `began_ns` (epoch) is when their micro-batch was released.
        """
        asked = [(request, context) for request in requests if (context := self._context_of(request)) is not None]
        if not asked:
            return None
        from opentelemetry.context import Context
        from opentelemetry.trace import Link, SpanKind, get_current_span

        parents = (get_current_span(context).get_span_context() for _, context in asked)
        whole = self._tracer.start_span(
            f"micro-batch {self._topic}",
            Context(),
            SpanKind.INTERNAL,
            {**self._attributes, "messaging.batch.message_count": len(requests), "assay.tier": tier},
            [Link(parent) for parent in parents if parent.is_valid],
            began_ns,
        )
        beside = [Link(whole.get_span_context())]
        traced = []
        for request, context in asked:
            source = request.source
            where: dict[str, str | int] = {
                "messaging.destination.partition.id": str(source.partition),
                "messaging.kafka.offset": source.offset,
            }
            attributes = {**self._attributes, **where, "assay.transaction_id": request.transaction.transaction_id}
            name = f"process {self._topic}"
            span = self._tracer.start_span(name, context, SpanKind.CONSUMER, attributes, beside, began_ns)
            request.trace = [
                *self._headers_of(span, context),
                *(kept for kept in request.trace if kept[0] not in TRACE_HEADERS),
            ]
            traced.append((request, span))
        return BatchSpans(whole, traced, self._metrics)

    def close(self, within_s: float) -> None:
        """Export what waits, for so long at most: a collector that is away must not keep a worker."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(within_s)

    def _context_of(self, request: Request) -> "Context | None":
        """What its span is under; None where it is not traced."""
        parent = next((value for name, value in request.trace if name == "traceparent"), None)
        if parent is not None and not _is_sampled(parent):
            return None
        if parent is not None:
            carrier = {name: value.decode("ascii", "replace") for name, value in request.trace}
            context = self._propagator.extract(carrier)
            if context:  # it is one, not only something of that name
                return context
        if self._chance() >= self._ratio:
            return None
        from opentelemetry.context import Context

        return Context()

    def _headers_of(self, span: "Span", context: "Context") -> list[Header]:
        from opentelemetry.trace import set_span_in_context

        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, set_span_in_context(span, context))
        return [(name, value.encode()) for name, value in carrier.items()]


def _is_sampled(traceparent: bytes) -> bool:
    try:
        return bool(int(traceparent[_FLAGS_AT : _FLAGS_AT + 2], 16) & 1)
    except ValueError:
        return True  # no traceparent at all: treated as if there were none


def tracing_of(settings: Settings, metrics: Metrics) -> Tracing | None:
    """Where the settings want it. Raises SettingError where OpenTelemetry is not installed."""
    if settings.tracing_endpoint is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise SettingError(
            "ASSAY_TRACING_ENDPOINT is set, and OpenTelemetry is not installed",
            expected="its SDK, and its exporter of OTLP over HTTP",
            mend="pip install 'assay[tracing]', or unset it",
        ) from None
    return Tracing(settings, metrics, OTLPSpanExporter(settings.tracing_endpoint, timeout=SPAN_EXPORT_TIMEOUT_S))
