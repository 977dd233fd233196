"""A client's spans: where the caller's process traces, the call and its reply are of one trace; elsewhere nothing is added."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from assay.streams import client as client_module
from assay.streams.call_tracing import CallTracing, call_tracing
from assay.streams.client import DecisionClient

from .test_client import TRANSACTION, FakeExchange, Record, answer

OTHERS = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What a process with a tracer provider exports."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(client_module, "call_tracing", lambda topic: CallTracing(provider.get_tracer("test"), topic))
    return exporter


def echoing(key: bytes, value: bytes, headers: dict[str, bytes]) -> list[Record]:
    """Answers under the context of the request itself."""
    [record] = answer(key, value, headers)
    return [Record(record.value, [*record.headers, ("traceparent", headers["traceparent"])])]


async def test_a_call_and_its_reply_are_of_one_trace(exporter: InMemorySpanExporter) -> None:
    exchange = FakeExchange(echoing)
    async with DecisionClient(exchange=exchange) as client:
        await client.decide(TRANSACTION, timeout=5)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    sent, replied = spans["send transactions"], spans["process assay.reply"]
    assert (sent.kind, replied.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert exchange.sent[0][2]["traceparent"].startswith(b"00-%032x-%016x-" % (sent.context.trace_id, sent.context.span_id))
    assert (replied.context.trace_id, replied.parent.span_id) == (sent.context.trace_id, sent.context.span_id)


async def test_a_context_that_the_caller_gives_stays_as_it_is(exporter: InMemorySpanExporter) -> None:
    exchange = FakeExchange(answer)
    async with DecisionClient(exchange=exchange) as client:
        await client.decide(TRANSACTION, timeout=5, headers=[("traceparent", OTHERS)])
    assert exchange.sent[0][2]["traceparent"] == OTHERS
    assert exporter.get_finished_spans() == ()


def test_without_a_tracer_provider_nothing_is_traced() -> None:
    assert call_tracing("transactions") is None
