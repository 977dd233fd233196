"""What is no transaction, on a real Kafka: a dead letter that says why, and the records around it are scored as ever."""

import asyncio
import struct
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson
import pytest
from aiokafka.structs import ConsumerRecord
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from assay.schemas.limits import MAX_HEADER_BYTES, MAX_VALUE_BYTES
from assay.schemas.source import Source

from .topics import Topics, source_of, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]
CARD, GROUPED_CARD = "4111111111111111", "5500 0055 5555 5559"
GOOD = orjson.dumps(transaction("good", "somebody"))
NOISE = Random(1).randbytes(1_000_000)


@dataclass(frozen=True)
class Bad:
    """A record that is to be refused, and what its dead letter says."""

    value: bytes
    code: str
    where: str
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    key: bytes = b"somebody"
    replied: bool = True
    kept: bool = True  # the dead letter has key and value as they came


def changed(**changes: Any) -> bytes:
    return orjson.dumps(transaction("bad", "somebody", **changes))


def without(name: str) -> bytes:
    body = transaction("bad", "somebody")
    del body[name]
    return orjson.dumps(body)


BAD = {
    "empty body": Bad(b"", "malformed", "value"),
    "not JSON": Bad(GOOD[:-1], "malformed", "value"),
    "no object": Bad(b"[1, 2]", "malformed", "value"),
    "a name twice": Bad(GOOD[:-1] + b', "amount": "1"}', "malformed", "value"),
    "not UTF-8": Bad(GOOD.replace(b"somebody", b"\xff\xfe"), "malformed", "value"),
    "no amount": Bad(without("amount"), "missing", "amount"),
    "no merchant id": Bad(changed(merchant={}), "missing", "merchant.id"),
    "an amount that is a list": Bad(changed(amount=["12.50"]), "invalid", "amount"),
    "more digits than the currency": Bad(changed(amount="12.505"), "invalid", "amount"),
    "a user that is a number": Bad(changed(user_id=7), "invalid", "user_id"),
    "no such currency": Bad(changed(currency="XYZ"), "invalid", "currency"),
    "a time without an offset": Bad(changed(timestamp="2026-01-01T12:00:00"), "invalid", "timestamp"),
    "a time to come": Bad(changed(timestamp="2096-01-01T12:00:00Z"), "timestamp_ahead", "timestamp"),
    "another content type": Bad(GOOD, "content_type", "content-type", [("content-type", b"text/xml")]),
    "a deadline in words": Bad(GOOD, "deadline", "assay-timeout-ms", [("assay-timeout-ms", b"soon")]),
    "a value over the limit": Bad(b" " * (MAX_VALUE_BYTES + 1), "too_large", "value"),
    "1 MB of noise": Bad(NOISE, "too_large", "value", kept=False),
    "headers over the limit": Bad(GOOD, "too_large", "headers", [("x", b"." * MAX_HEADER_BYTES)], replied=False),
    "a card number in an id": Bad(changed(merchant={"id": CARD}), "card_number", "merchant.id", kept=False),
    "a card number in a note": Bad(changed(attributes={"note": GROUPED_CARD}), "card_number", "attributes", kept=False),
    "a card number that nobody reads": Bad(changed(extra=[{"deep": CARD}]), "card_number", "value", kept=False),
    "a card number in broken JSON": Bad(b'{"pan": "' + CARD.encode(), "card_number", "value", kept=False),
    "a card number as the key": Bad(GOOD, "card_number", "key", key=CARD.encode(), kept=False),
    "a card number in a header": Bad(GOOD, "card_number", "headers", [("x", CARD.encode())], replied=False, kept=False),
}


async def scored(topics: Topics, source: Source) -> bool:
    await topics.first(source, "decisions")
    return not topics.made_from(source, "dead-letters")


@pytest.mark.parametrize("name", BAD)
async def test_a_record_is_refused_with_code_field_and_expectation_and_its_neighbours_are_scored(
    topics: Topics, name: str
) -> None:
    bad = BAD[name]
    address = [("reply-to", topics.name("checkout.reply").encode()), ("correlation-id", b"c-" + name.encode())]
    before = await topics.send(transaction(f"before {name}", "neighbour"), partition=0)
    source = await topics.send(bad.value, key=bad.key, headers=[*address, *bad.headers], partition=0)
    after = await topics.send(transaction(f"after {name}", "neighbour"), partition=0)
    letter = await topics.first(source, "dead-letters")
    assert await scored(topics, before)
    assert await scored(topics, after)
    said = dict(letter.headers)
    assert (letter.partition, said["assay-error"]) == (0, bad.code.encode())
    where, _, expected = said["assay-error-detail"].decode().partition(": expected ")
    assert where == bad.where
    assert expected
    assert struct.unpack(">q", said["kafka_dlt-original-offset"]) == (source.offset,)
    if bad.kept:
        assert (letter.key, letter.value) == (bad.key, bad.value)
    assert not topics.made_from(source, "decisions")
    if bad.replied:
        assert_error_reply(await topics.first(source, "checkout.reply"), bad, dict(address)["correlation-id"])


def assert_error_reply(reply: ConsumerRecord, bad: Bad, correlation: bytes) -> None:
    headers, body = dict(reply.headers), orjson.loads(reply.value)
    assert (headers["assay-error"], headers["correlation-id"]) == (bad.code.encode(), correlation)
    assert (body["action"], body["tier"], body["error"]["code"], body["error"]["field"]) == (
        *("review", "refused"),
        *(bad.code, bad.where),
    )
    assert orjson.loads(headers["kafka_nest-err"]) == body["error"]


async def test_unknown_fields_are_ignored_and_kept_nowhere(topics: Topics) -> None:
    source = await topics.send(transaction("unknown", "somebody", loyalty="gold-card-holder", merchant={"id": "m", "x": {}}))
    assert await scored(topics, source)
    await topics.settled()
    assert b"gold-card-holder" not in everything_in(topics)


async def test_a_tombstone_is_skipped_and_counted(topics: Topics, worker: WorkerProcess) -> None:
    before = worker.metric("assay_tombstones_total")
    source = await topics.send(None, key=b"somebody")
    await topics.settled()
    assert worker.metric("assay_tombstones_total") == before + 1
    assert not topics.made_from(source, "decisions") + topics.made_from(source, "dead-letters")


async def test_a_noise_record_leaves_a_cut_letter_with_its_digest_and_size(topics: Topics) -> None:
    letter = await topics.first(await topics.send(NOISE, key=b"noise"), "dead-letters")
    said = dict(letter.headers)
    assert int(said["assay-cut"]) == len(NOISE)
    assert len(said["assay-digest"]) == 64
    assert NOISE.startswith(letter.value)


async def test_nothing_of_a_card_number_is_written_anywhere(topics: Topics, worker: WorkerProcess) -> None:
    for bad in (bad for bad in BAD.values() if bad.code == "card_number"):
        reply = ("reply-to", topics.name("checkout.reply").encode())
        source = await topics.send(bad.value, key=bad.key, headers=[reply, *bad.headers])
        letter = await topics.first(source, "dead-letters")
        assert (letter.key, letter.value) == (None, None)
        assert len(dict(letter.headers)["assay-digest"]) == 64  # keyed: tells two of them apart, and not what they were
    await topics.settled()
    files = b"".join(path.read_bytes() for path in worker.data_dir.rglob("*") if path.is_file())
    written = everything_in(topics) + worker.log.encode() + worker.get("/metrics")[1].encode() + files
    for number in (CARD, GROUPED_CARD):
        assert number[:12].encode() not in written
        assert number[-8:].encode() not in written


def everything_in(topics: Topics) -> bytes:
    """All that the worker has written to its topics."""
    parts = []
    for records in topics.seen.values():
        for record in records:
            parts += [record.key or b"", record.value or b"", *(name.encode() + value for name, value in record.headers)]
    return b"\n".join(parts)


# -- garbage

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["EUR", "12.50", "m-1", 0, ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
field_names = st.sampled_from(sorted(transaction(0, "")))
almost = st.dictionaries(field_names, values).map(lambda some: orjson_or_text(transaction("almost", "somebody") | some))
mangled = st.tuples(st.integers(0, len(GOOD) - 1), st.binary(max_size=4)).map(
    lambda cut: GOOD[: cut[0]] + cut[1] + GOOD[cut[0] + 1 :]
)
header_names = (
    st.sampled_from(["reply-to", "kafka_replyPartition", "content-type", "assay-deadline", "traceparent"]) | st.text()
)
garbage_headers = st.lists(st.tuples(header_names, st.binary(max_size=40)), max_size=3)
garbage = st.tuples(
    st.binary() | mangled | almost | values.map(lambda value: orjson_or_text(value)) | st.none(),
    st.binary(max_size=8) | st.none(),
    garbage_headers | st.just([]),
).filter(lambda record: record[:2] != (None, None))  # aiokafka's producer sends none without key and value


def orjson_or_text(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits, a lone surrogate
        return repr(value).encode(errors="surrogatepass")


def made_up(count: int) -> list[Any]:
    """So many records that hypothesis thinks of, other ones each time."""
    found: list[Any] = []

    @settings(
        max_examples=count, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(garbage)
    def collect(record: Any) -> None:
        found.append(record)

    collect()
    return found


async def test_i1_whatever_comes_every_record_has_exactly_one_fate(topics: Topics, worker: WorkerProcess) -> None:
    records = made_up(200)
    for number in range(50):
        value = orjson.dumps(transaction(f"among-{number}", f"user-{number % 7}"))
        records.insert(5 * number, (value, b"good", []))
    sources = await asyncio.gather(*(topics.send(value, key=key, headers=headers) for value, key, headers in records))
    await topics.settled()
    decisions, letters = (Counter(map(source_of, topics.seen[topic])) for topic in ("decisions", "dead-letters"))
    for source, record in zip(sources, records, strict=True):
        value, key, _ = record
        fate = decisions[source], letters[source]
        assert sum(fate) == (0 if value is None else 1), f"{record!r} ended as (decisions, dead letters) = {fate}"
        assert key != b"good" or fate == (1, 0)
    assert worker.running
    assert worker.get("/readyz")[0] == 200
    assert await scored(topics, await topics.send(transaction("after all that", "somebody")))
