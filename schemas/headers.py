"""Headers: what a caller asks for with a transaction, read from five dialects; and what we write on answers.

Correlation, reply topic and partition are taken from one dialect, never mixed from two. Values are bytes and stay
bytes, unless a rule here says that they are decoded. The last value of a name wins, as Kafka clients have it.

Dialects: Spring Kafka's `KafkaHeaders` and NestJS's Kafka transport share names and differ in how they write the
partition; SmallRye Reactive Messaging's request-reply; the CloudEvents Kafka binding; Faust's agents.
"""

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import orjson

from assay.schemas.formats import AS_JSON, CONTENT_TYPE_HEADER, Format
from assay.schemas.instant import Instant
from assay.schemas.limits import (
    DEFAULT_DEADLINE_MS,
    MAX_CACHED_HEADER_FORMS,
    MAX_CACHED_TEXTS,
    MAX_CORRELATION_BYTES,
    MAX_HEADER_BYTES,
)
from assay.schemas.refused import TOKEN_EXPECTED, RefusalCode, Refused
from assay.schemas.reply_topics import is_topic_name
from assay.schemas.source import (
    BEYOND_HORIZON_HEADER,
    CONFLICT_HEADER,
    ORIGIN_HEADER,
    REPLAY_HEADER,
    SOURCE_HEADER,
    WITHHELD_HEADER,
    OutRecord,
    Source,
)

Header = tuple[str, bytes]

TIMEOUT_HEADER = "assay-timeout-ms"  # milliseconds from the append
DEADLINE_HEADER = "assay-deadline"  # epoch, milliseconds
EXPIRY_HEADER = "ce_expirytime"  # RFC 3339
EXPLAIN_HEADER = "assay-explain"  # 1: say what weighed on the score, of an approval too
# In order of precedence: the timeout goes first, since it is free of clock skew.
_DEADLINES = {
    TIMEOUT_HEADER: "milliseconds from the append, 1 to 10 digits",
    DEADLINE_HEADER: "epoch milliseconds, 1 to 15 digits",
    EXPIRY_HEADER: "RFC 3339 with an offset",
}
TRACE_HEADERS = ("traceparent", "tracestate")


def passed_on(*, rekeyed: bool) -> tuple[str, ...]:
    """From a transaction to its answers, as they came; an origin only of a copy, since else a caller made it up."""
    return (*TRACE_HEADERS, ORIGIN_HEADER) if rekeyed else TRACE_HEADERS


NEST_DISPOSED: Header = ("kafka_nest-is-disposed", b"\x00")  # NestJS completes a request only with it

_MAX_PARTITION = 2**31 - 1


class Dialect(StrEnum):
    """Whose names a caller uses. In order of precedence."""

    ASSAY = "assay"
    SPRING = "spring"  # and NestJS
    SMALLRYE = "smallrye"
    CLOUDEVENTS = "cloudevents"
    FAUST = "faust"


class _Names(NamedTuple):
    correlation: str
    topic: str | None = None
    partition: str | None = None


_NAMES = {
    Dialect.ASSAY: _Names("correlation-id", "reply-to", "reply-partition"),
    Dialect.SPRING: _Names("kafka_correlationId", "kafka_replyTopic", "kafka_replyPartition"),
    Dialect.SMALLRYE: _Names("REPLY_CORRELATION_ID", "REPLY_TOPIC", "REPLY_PARTITION"),
    Dialect.CLOUDEVENTS: _Names("ce_correlationid"),
    Dialect.FAUST: _Names("Faust-Ag-CorrelationId", "Faust-Ag-ReplyTo"),
}

# What a caller asks for with a record and waits for; of no use when the record is sent again by somebody else.
ASKING = frozenset(_DEADLINES) | {name for names in _NAMES.values() for name in (names.topic, names.partition) if name}
CORRELATING = frozenset(names.correlation for names in _NAMES.values())


class ReplyAddress(NamedTuple):
    """Where an answer goes, and the correlation header that it carries, as it came."""

    topic: str
    partition: int | None
    correlation: Header | None
    dialect: Dialect
    format: Format = AS_JSON  # that of the request


class Envelope(NamedTuple):
    """What the headers of one record say."""

    address: ReplyAddress | None
    correlation: Header | None
    deadline_ms: int  # epoch
    trace: list[Header]
    content_type: bytes
    explain: bool  # an approval too
    text: bytes  # all names and values, one after another: what is searched for card numbers


class _Plan(NamedTuple):
    """Where in a record's headers each thing stands, or -1; the same for all records with the same names in order."""

    names: bytes
    dialect: Dialect
    correlation: int
    topic: int
    partition: int
    content_type: int
    explain: int
    withheld: int
    trace: tuple[int, ...]
    deadlines: tuple[int, ...]  # in order of precedence


@lru_cache(MAX_CACHED_HEADER_FORMS)
def _plan(names: tuple[str, ...], rekeyed: bool) -> _Plan:  # a cached call is dearer with names
    text = "\n".join(names).encode(errors="surrogatepass")
    if len(text) > MAX_HEADER_BYTES:  # and so it is not kept: what is raised is not cached
        raise _too_large()
    last = {name: index for index, name in enumerate(names)}

    def at(name: str | None) -> int:
        return last.get(name, -1) if name else -1

    # A dialect is there when it names a reply topic; where none does, when it names a correlation. A correlation id for
    # tracing in one dialect must not cost a caller the reply that it waits for in another.
    asking = [dialect for dialect, own in _NAMES.items() if at(own.topic) >= 0]
    naming = [dialect for dialect, own in _NAMES.items() if at(own.correlation) >= 0]
    dialect = (asking or naming or [Dialect.ASSAY])[0]
    own = _NAMES[dialect]
    return _Plan(
        text,
        dialect,
        at(own.correlation),
        at(own.topic),
        at(own.partition),
        at(CONTENT_TYPE_HEADER),
        at(EXPLAIN_HEADER),
        at(WITHHELD_HEADER if rekeyed else None),
        tuple(last[name] for name in passed_on(rekeyed=rekeyed) if name in last),
        tuple(last[name] for name in _DEADLINES if name in last),
    )


def read_headers(headers: Sequence[tuple[str, bytes | None]], appended_ms: int, *, rekeyed: bool = False) -> Envelope:
    """What a record's headers say. Raises Refused, with the address if it is usable.

    Args:
        appended_ms: its append time.
        rekeyed: it is a copy: what only the step before may say counts.
    """
    if not headers:
        return Envelope(None, None, appended_ms + DEFAULT_DEADLINE_MS, [], b"", False, b"")
    names, values = zip(*headers)  # noqa: B905  # pairs
    plan = _plan(names, rekeyed)
    (
        name_text, dialect, at_correlation, at_topic, at_partition, at_content_type, at_explain, at_withheld, at_trace,
        at_deadlines,
    ) = plan  # fmt: skip
    try:
        text = b"\n".join((name_text, *values))
    except TypeError:  # a null among them
        text = b"\n".join((name_text, *[value or b"" for value in values]))
    if len(text) - 2 * len(names) >= MAX_HEADER_BYTES:  # two separators a header, less one
        raise _too_large()

    correlation: Header | None = None
    if at_correlation >= 0 and (value := values[at_correlation]) is not None:
        if len(value) > MAX_CORRELATION_BYTES:
            raise Refused(RefusalCode.CORRELATION, names[at_correlation], f"at most {MAX_CORRELATION_BYTES} bytes")
        correlation = (names[at_correlation], value)
    address: ReplyAddress | None = None
    if at_topic >= 0 and (value := values[at_topic]) is not None:
        partition = None
        if at_partition >= 0 and (written := values[at_partition]) is not None:
            partition = _partition(dialect, written)
        address = ReplyAddress(_topic(names[at_topic], value), partition, correlation, dialect)
    if at_withheld >= 0:
        raise Refused(RefusalCode.CARD_NUMBER, _withheld_field(values[at_withheld] or b""), TOKEN_EXPECTED, address)
    deadline = appended_ms + DEFAULT_DEADLINE_MS
    for index in at_deadlines:
        if (value := values[index]) is not None:
            deadline = _deadline(names[index], value, appended_ms, address)
            break
    trace = [(names[index], value) for index in at_trace if (value := values[index]) is not None]
    content_type = (values[at_content_type] or b"") if at_content_type >= 0 else b""
    explain = at_explain >= 0 and values[at_explain] == b"1"
    return Envelope(address, correlation, deadline, trace, content_type, explain, text)


def _withheld_field(value: bytes) -> str:
    """Where a card number was, as the step that left it out has said."""
    return value.partition(b" ")[0].decode("ascii", "replace")


def _too_large() -> Refused:
    return Refused(RefusalCode.TOO_LARGE, "headers", f"at most {MAX_HEADER_BYTES} bytes of names and values together")


@lru_cache(MAX_CACHED_TEXTS)
def _topic(name: str, value: bytes) -> str:
    topic = value.decode("ascii", "replace")
    if not is_topic_name(topic):
        raise Refused(RefusalCode.REPLY_ADDRESS, name, "the name of a Kafka topic")
    return topic


@lru_cache(MAX_CACHED_TEXTS)
def _partition(dialect: Dialect, value: bytes) -> int:
    """Ours: digits. Spring: 4 bytes, big-endian, or digits (NestJS): a first byte of 0 tells them apart. SmallRye: 4 bytes."""
    number = -1
    if dialect is not Dialect.SMALLRYE and value.isdigit() and len(value) <= 10:
        number = int(value)
    elif dialect is not Dialect.ASSAY and len(value) == 4:
        number = int.from_bytes(value, "big", signed=True)
        if dialect is Dialect.SPRING and value[0] != 0:  # a text of four characters that are not all digits
            number = -1
    if not 0 <= number <= _MAX_PARTITION:
        form = {Dialect.ASSAY: "digits", Dialect.SMALLRYE: "4 bytes, big-endian"}.get(
            dialect, "4 bytes, big-endian, or ASCII digits"
        )
        raise Refused(RefusalCode.REPLY_ADDRESS, _NAMES[dialect].partition or "", f"a partition number: {form}")
    return number


def _deadline(name: str, value: bytes, appended_ms: int, address: ReplyAddress | None) -> int:
    """Epoch milliseconds."""
    if name == EXPIRY_HEADER:
        try:
            return Instant.parse(value.decode("ascii")).ms
        except ValueError:
            pass
    elif name == TIMEOUT_HEADER:
        if value.isdigit() and len(value) <= 10:
            return appended_ms + int(value)
    elif value.isdigit() and len(value) <= 15:
        return int(value)
    raise Refused(RefusalCode.DEADLINE, name, _DEADLINES[name], address)


# -- written

_JSON: Header = (CONTENT_TYPE_HEADER, b"application/json")
_CLOUDEVENT: Header = ("ce_specversion", b"1.0")
DECISION_TYPE = b"assay.decision.v1"
ERROR_TYPE = b"assay.error.v1"


def decision_headers(
    source: Source,
    correlation: Header | None,
    trace: Sequence[Header] = (),
    *,
    verdict: bytes | None = None,
    replay: bool = False,
    conflict: bool = False,
    beyond_horizon: bool = False,
    event_type: bytes = DECISION_TYPE,
    type_id: bytes | None = None,
) -> list[Header]:
    """The headers of a decision, made from the record at `source`.

    `verdict` names the verdict, the same whenever it is repeated: the `assay-source` of the transaction that it was first
    made for; `source` itself when None. `type_id` is a Java class name for `__TypeId__`, for consumers that need it.
    """
    where = source.header()
    headers = [
        _JSON,
        NEST_DISPOSED,
        (SOURCE_HEADER, where),
        _CLOUDEVENT,
        ("ce_type", event_type),
        ("ce_source", _event_source(source.topic)),
        ("ce_id", verdict or where),
        *trace,
    ]
    if correlation is not None:
        headers.append(correlation)
    if replay:
        headers.append((REPLAY_HEADER, b"1"))
    if conflict:
        headers.append((CONFLICT_HEADER, b"1"))
    if beyond_horizon:
        headers.append((BEYOND_HORIZON_HEADER, b"1"))
    if type_id is not None:
        headers.append(("__TypeId__", type_id))
    return headers


def reply_headers(
    address: ReplyAddress,
    source: Source,
    trace: Sequence[Header] = (),
    *,
    verdict: bytes | None = None,
    replay: bool = False,
    conflict: bool = False,
    beyond_horizon: bool = False,
    event_type: bytes = DECISION_TYPE,
    type_id: bytes | None = None,
) -> list[Header]:
    """The headers of a reply: a decision's, with the correlation that came with the reply address."""
    return decision_headers(
        source,
        address.correlation,
        trace,
        verdict=verdict,
        replay=replay,
        conflict=conflict,
        beyond_horizon=beyond_horizon,
        event_type=event_type,
        type_id=type_id,
    )


def faust_response(address: ReplyAddress, record: OutRecord) -> OutRecord:
    """A reply of JSON as Faust's callers read it: the `ReqRepResponse` that `ask()` waits for (faust/agents/models.py)."""
    key, value, headers = record
    correlation = address.correlation[1].decode(errors="replace") if address.correlation else ""
    return key, b'{"key":null,"value":%b,"correlation_id":%b}' % (value or b"null", orjson.dumps(correlation)), headers


@lru_cache(MAX_CACHED_TEXTS)
def _event_source(topic: str) -> bytes:
    return b"/assay/" + topic.encode()
