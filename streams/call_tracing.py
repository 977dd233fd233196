"""The caller's side of a trace: spans of a `DecisionClient`, where its process has a tracer provider."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from assay.schemas.headers import TRACE_HEADERS, Header
from assay.schemas.source import SourceRecord

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


class CallTracing:
    """Spans by the messaging conventions, as in `streams.tracing`.

    Args:
        topic: of the transactions.
    """

    def __init__(self, tracer: "Tracer", topic: str) -> None:
        self._tracer, self._topic = tracer, topic

    @contextmanager
    def call(self, headers: Sequence[Header]) -> Iterator[Sequence[Header]]:
        """The span of a call, from its send to its answer; yields the headers with its context. A caller's own stays."""
        if any(name == "traceparent" for name, _ in headers):
            yield headers
            return
        from opentelemetry.propagate import inject
        from opentelemetry.trace import SpanKind

        carrier: dict[str, str] = {}
        with self._tracer.start_as_current_span(
            f"send {self._topic}", kind=SpanKind.PRODUCER, attributes=_messaging("send", self._topic)
        ):
            inject(carrier)
            yield [*headers, *((name, value.encode()) for name, value in carrier.items() if name in TRACE_HEADERS)]

    def answered(self, record: SourceRecord) -> None:
        """A reply came: a span of its own under the worker's."""
        carrier = {name: value.decode("ascii", "replace") for name, value in record.headers if name in TRACE_HEADERS and value}
        if not carrier:
            return
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        attributes = _messaging("process", record.topic)
        self._tracer.start_span(f"process {record.topic}", extract(carrier), SpanKind.CONSUMER, attributes).end()


def _messaging(operation: str, topic: str) -> Mapping[str, str]:
    return {
        "messaging.system": "kafka",
        "messaging.operation.type": operation,
        "messaging.operation.name": operation,
        "messaging.destination.name": topic,
    }


def call_tracing(topic: str) -> CallTracing | None:
    """None where this process has no tracer provider: spans would go nowhere."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    provider: Any = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return CallTracing(provider.get_tracer("assay"), topic)
