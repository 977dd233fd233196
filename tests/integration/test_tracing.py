"""Tracing on a real Kafka: one trace from the client's call to its reply, for those that are sampled, and for no others."""

import asyncio
import http.client
from collections.abc import Iterator

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from assay.streams.call_tracing import CallTracing
from assay.streams.client import DecisionClient

from .collector import Collector, collector
from .topics import Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]
TRACE = "0af7651916cd43dd8448eb211c80319c"
UNSAMPLED = f"00-{TRACE}-b7ad6b7169203331-00".encode()


@pytest.fixture(scope="module")
def collected() -> Iterator[Collector]:
    with collector() as running:
        yield running


@pytest.fixture(scope="module")
def environment(environment: dict[str, str], collected: Collector) -> dict[str, str]:
    """A deployment that sends its spans there."""
    return environment | {"ASSAY_TRACING_ENDPOINT": collected.url}


@pytest.fixture(scope="module")
def provider(collected: Collector) -> Iterator[TracerProvider]:
    """Of the caller's process, which is this one."""
    provider = TracerProvider(resource=Resource.create({"service.name": "checkout"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(collected.url)))
    yield provider
    provider.shutdown()


@pytest.fixture
async def traced_reply(topics: Topics, environment: dict[str, str], provider: TracerProvider) -> str:
    """A transaction asked for by a client that traces; its id in spans."""
    client = DecisionClient(
        environment["ASSAY_BOOTSTRAP_SERVERS"],
        transactions_topic=topics.name("transactions"),
        reply_topic=topics.name("checkout.reply"),
    )
    client._tracing = CallTracing(provider.get_tracer("test"), topics.name("transactions"))
    async with client:
        await client.decide(transaction("traced", "user-a"), timeout=30)
    return "t-traced"


async def until(condition) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.05)


async def test_the_spans_of_one_request_form_one_trace_from_the_client_to_its_reply(
    topics: Topics, collected: Collector, traced_reply: str
) -> None:
    transactions, replies = topics.name("transactions"), topics.name("checkout.reply")
    names = [f"send {transactions}", f"process {transactions}", f"process {replies}"]
    await until(lambda: all(collected.named(name) for name in names) and collected.named(f"micro-batch {transactions}"))
    sent, processed, replied = (collected.named(name)[-1] for name in names)
    assert sent.trace_id == processed.trace_id == replied.trace_id
    assert (processed.parent_span_id, replied.parent_span_id) == (sent.span_id, processed.span_id)
    whole = collected.named(f"micro-batch {transactions}")[-1]
    assert [link.span_id for link in whole.links] == [sent.span_id]
    assert [link.span_id for link in processed.links] == [whole.span_id]
    context = b"00-%b-%b-" % (processed.trace_id.hex().encode(), processed.span_id.hex().encode())
    for topic in ("decisions", "checkout.reply"):
        [record] = [each for each in topics.seen[topic] if each.value and b'"t-traced"' in each.value][:1]
        assert dict(record.headers)["traceparent"].startswith(context)


async def test_an_unsampled_request_leaves_no_span_and_its_context_passes_as_it_came(
    topics: Topics, collected: Collector, traced_reply: str
) -> None:
    source = await topics.send(transaction("unsampled", "user-b"), headers=[("traceparent", UNSAMPLED)])
    decision = await topics.first(source, "decisions")
    assert dict(decision.headers)["traceparent"] == UNSAMPLED
    plain = await topics.first(await topics.send(transaction("untraced", "user-b")), "decisions")
    assert "traceparent" not in dict(plain.headers)
    assert bytes.fromhex(TRACE) not in {span.trace_id for _, span in collected.spans}


async def test_the_latency_names_a_trace_where_openmetrics_is_asked_for(worker: WorkerProcess, traced_reply: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=10)
    connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    families = text_string_to_metric_families(connection.getresponse().read().decode())
    exemplars = [
        sample.exemplar
        for family in families
        if family.name == "assay_decision_latency_seconds"
        for sample in family.samples
        if sample.exemplar
    ]
    connection.close()
    assert exemplars
    assert all(len(exemplar.labels["trace_id"]) == 32 for exemplar in exemplars)
