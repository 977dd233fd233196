"""Reply addresses, deadlines and trace in five dialects, and the headers of answers."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.schemas.errors import SettingError
from assay.schemas.headers import Dialect, Envelope, ReplyAddress, decision_headers, read_headers, reply_headers
from assay.schemas.limits import DEFAULT_DEADLINE_MS, MAX_CORRELATION_BYTES, MAX_HEADER_BYTES
from assay.schemas.refused import RefusalCode, Refused
from assay.schemas.reply_topics import ReplyTopics
from assay.schemas.source import Source

APPENDED = 1_772_362_800_250
RAW = bytes(range(240, 256))  # a correlation id that is no text in any encoding


def read(*headers: tuple[str, bytes | None]) -> Envelope:
    return read_headers(headers, APPENDED)


def refused(*headers: tuple[str, bytes | None]) -> Refused:
    with pytest.raises(Refused) as raised:
        read(*headers)
    return raised.value


@pytest.mark.parametrize(
    ("dialect", "correlation", "topic", "partition", "value"),
    [
        (Dialect.ASSAY, "correlation-id", "reply-to", "reply-partition", b"7"),
        (Dialect.SPRING, "kafka_correlationId", "kafka_replyTopic", "kafka_replyPartition", b"\x00\x00\x00\x07"),
        (Dialect.SPRING, "kafka_correlationId", "kafka_replyTopic", "kafka_replyPartition", b"7"),
        (Dialect.SMALLRYE, "REPLY_CORRELATION_ID", "REPLY_TOPIC", "REPLY_PARTITION", b"\x00\x00\x00\x07"),
    ],
)
def test_an_address_is_read_in_each_dialect(
    dialect: Dialect, correlation: str, topic: str, partition: str, value: bytes
) -> None:
    envelope = read((topic, b"shop.reply"), (correlation, RAW), (partition, value))
    assert envelope.address == ReplyAddress("shop.reply", 7, (correlation, RAW), dialect)
    assert envelope.correlation == (correlation, RAW)


def test_faust_and_cloudevents_are_read() -> None:
    faust = read(("Faust-Ag-ReplyTo", b"f-reply-1"), ("Faust-Ag-CorrelationId", b"c"))
    assert faust.address == ReplyAddress("f-reply-1", None, ("Faust-Ag-CorrelationId", b"c"), Dialect.FAUST)
    event = read(("ce_correlationid", b"c"))
    assert (event.address, event.correlation) == (None, ("ce_correlationid", b"c"))


def test_the_first_dialect_that_is_there_wins_whole() -> None:
    spring = (("kafka_replyTopic", b"s.reply"), ("kafka_correlationId", b"s"), ("kafka_replyPartition", b"3"))
    ours = (("reply-to", b"a.reply"), ("correlation-id", b"a"))
    smallrye = (("REPLY_TOPIC", b"q.reply"), ("REPLY_CORRELATION_ID", b"q"))
    assert read(*smallrye, *spring, *ours).address == ReplyAddress("a.reply", None, ours[1], Dialect.ASSAY)
    assert read(*smallrye, *spring).address == ReplyAddress("s.reply", 3, spring[1], Dialect.SPRING)


def test_a_correlation_for_tracing_costs_no_other_dialect_its_reply() -> None:
    envelope = read(("correlation-id", b"trace"), ("kafka_replyTopic", b"s.reply"), ("kafka_correlationId", b"s"))
    assert envelope.address == ReplyAddress("s.reply", None, ("kafka_correlationId", b"s"), Dialect.SPRING)


def test_the_last_value_of_a_name_wins() -> None:
    envelope = read(("reply-to", b"a.reply"), ("correlation-id", b"1"), ("reply-to", b"b.reply"), ("correlation-id", b"2"))
    assert envelope.address == ReplyAddress("b.reply", None, ("correlation-id", b"2"), Dialect.ASSAY)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "reply-partition",
            {b"0": 0, b"007": 7, b"2147483647": 2**31 - 1},
            [b"", b"-1", b"x", b"\x00\x00\x00\x01", b"2147483648", b"1" * 99],
        ),
        (
            "kafka_replyPartition",
            {b"\x00\x00\x00\x00": 0, b"1234": 1234, b"\x00\x01\x00\x00": 65536, b"12": 12},
            [b"", b"12a4", b"\xff\xff\xff\xff", b"\x00\x01", b"-1"],
        ),
        (
            "REPLY_PARTITION",
            {b"\x00\x00\x00\x02": 2, b"1234": 0x31323334},
            [b"", b"12", b"\xff\xff\xff\xff"],
        ),
    ],
)
def test_a_partition_has_its_dialects_form(name: str, good: dict[bytes, int], bad: list[bytes]) -> None:
    topic = {"reply-partition": "reply-to", "kafka_replyPartition": "kafka_replyTopic", "REPLY_PARTITION": "REPLY_TOPIC"}[name]
    for value, partition in good.items():
        address = read((topic, b"a.reply"), (name, value)).address
        assert address is not None
        assert address.partition == partition
    for value in bad:
        why = refused((topic, b"a.reply"), (name, value))
        assert (why.code, why.field, why.address) == (RefusalCode.REPLY_ADDRESS, name, None)


@pytest.mark.parametrize("topic", [b"", b".", b"..", b"a/b", b"a b", b"\xff", b"x" * 250, "ü.reply".encode()])
def test_a_reply_topic_is_a_topics_name(topic: bytes) -> None:
    why = refused(("reply-to", topic), ("correlation-id", b"1"))
    assert (why.code, why.field, why.address) == (RefusalCode.REPLY_ADDRESS, "reply-to", None)


def test_a_correlation_id_has_at_most_256_bytes() -> None:
    assert read(("correlation-id", b"x" * MAX_CORRELATION_BYTES)).correlation is not None
    why = refused(("reply-to", b"a.reply"), ("kafka_correlationId", b""), ("correlation-id", b"x" * 257))
    assert (why.code, why.field, why.address) == (RefusalCode.CORRELATION, "correlation-id", None)


@pytest.mark.parametrize(
    "headers", [[("x", b"y" * MAX_HEADER_BYTES)], [("x" * 20_000, b"")], [("ü" * 9_000, b"")], [("x", b"")] * 20_000]
)
def test_headers_have_at_most_16_kib(headers: list[tuple[str, bytes]]) -> None:
    assert refused(*headers).code is RefusalCode.TOO_LARGE


def test_headers_of_just_16_kib_are_read() -> None:
    assert read(("x", b"y" * (MAX_HEADER_BYTES - 1)))
    assert read(*[("xx", b"yy")] * (MAX_HEADER_BYTES // 4))


def test_null_values_are_absent() -> None:
    names = ("reply-to", "correlation-id", "reply-partition", "assay-timeout-ms", "traceparent", "content-type", "other")
    assert read(*((name, None) for name in names))[:5] == read()[:5]


def test_the_deadline_is_from_the_append_unless_it_is_told() -> None:
    assert read().deadline_ms == read(("x", b"")).deadline_ms == APPENDED + DEFAULT_DEADLINE_MS
    timeout, deadline, expiry = (
        ("assay-timeout-ms", b"90"),
        ("assay-deadline", b"1772362800300"),
        ("ce_expirytime", b"2026-03-01T12:00:00.4+01:00"),
    )
    assert read(expiry).deadline_ms == 1_772_362_800_400
    assert read(expiry, deadline).deadline_ms == 1_772_362_800_300
    assert read(expiry, deadline, timeout).deadline_ms == APPENDED + 90


@pytest.mark.parametrize(
    ("name", "value"),
    [("assay-timeout-ms", b"-1"), ("assay-timeout-ms", b"1.5"), ("assay-timeout-ms", b"9" * 11), ("assay-deadline", b"soon"),
     ("assay-deadline", b"9" * 16), ("ce_expirytime", b"tomorrow"), ("ce_expirytime", b"\xff"), ("assay-timeout-ms", b"")],
)  # fmt: skip
def test_a_deadline_that_is_none_is_refused_with_a_reply(name: str, value: bytes) -> None:
    why = refused((name, value), ("reply-to", b"a.reply"))
    assert (why.code, why.field) == (RefusalCode.DEADLINE, name)
    assert why.address is not None


@pytest.mark.parametrize(("value", "asked"), [(b"1", True), (b"0", False), (b"", False), (None, False), (b"true", False)])
def test_an_explanation_is_asked_for_with_1(value: bytes | None, asked: bool) -> None:
    assert read(("assay-explain", value)).explain is asked
    assert not read(("correlation-id", b"c")).explain


def test_trace_and_content_type_pass() -> None:
    envelope = read(
        ("tracestate", b"a=1"), ("traceparent", b"old"), ("traceparent", b"00-x"), ("content-type", b"application/json")
    )
    assert envelope.trace == [("traceparent", b"00-x"), ("tracestate", b"a=1")]
    assert envelope.content_type == b"application/json"


@given(
    st.lists(
        st.tuples(
            st.text(max_size=20)
            | st.sampled_from(
                ["reply-to", "kafka_replyTopic", "kafka_replyPartition", "assay-deadline", "ce_expirytime", "REPLY_PARTITION"]
            ),
            st.none() | st.binary(max_size=40),
        ),
        max_size=8,
    )
)
def test_any_headers_are_read_or_refused(headers: list[tuple[str, bytes | None]]) -> None:
    with suppress(Refused):
        read_headers(headers, APPENDED)


SOURCE = Source("transactions", 3, 41)


def test_a_reply_carries_the_correlation_as_it_came() -> None:
    address = ReplyAddress("shop.reply", 7, ("kafka_correlationId", RAW), Dialect.SPRING)
    headers = dict(reply_headers(address, SOURCE, [("traceparent", b"00-x")]))
    assert headers == {
        "content-type": b"application/json",
        "kafka_nest-is-disposed": b"\x00",
        "assay-source": b"transactions:3:41",
        "ce_specversion": b"1.0",
        "ce_type": b"assay.decision.v1",
        "ce_source": b"/assay/transactions",
        "ce_id": b"transactions:3:41",
        "traceparent": b"00-x",
        "kafka_correlationId": RAW,
    }


def test_a_repeated_decision_says_so_and_keeps_its_id() -> None:
    headers = dict(
        decision_headers(
            SOURCE, None, verdict=b"transactions:3:7", replay=True, conflict=True, beyond_horizon=True, type_id=b"a.B"
        )
    )
    assert headers["ce_id"] == b"transactions:3:7"
    assert headers["assay-source"] == b"transactions:3:41"
    assert headers["assay-replay"] == headers["assay-conflict"] == headers["assay-beyond-horizon"] == b"1"
    assert headers["__TypeId__"] == b"a.B"


def test_only_listed_topics_get_replies() -> None:
    topics = ReplyTopics()
    assert topics.allows("shop.reply")
    assert topics.allows("f-reply-123")
    for other in ("transactions", "decisions", "reply", "SHOP.REPLY", "shop.reply\n", "a/b.reply", "", ".." + "/x.reply"):
        assert not topics.allows(other)
    assert not ReplyTopics(()).allows("shop.reply")


@pytest.mark.parametrize("pattern", ["", "a b", "ü*", "a/b"])
def test_a_pattern_that_no_topic_matches_is_a_setting_error(pattern: str) -> None:
    with pytest.raises(SettingError, match="ASSAY_REPLY_TOPICS"):
        ReplyTopics([pattern])


def test_a_source_comes_back_from_its_header() -> None:
    assert Source.parse(SOURCE.header()) == SOURCE
    assert Source.parse(b"a:b:1:2") == Source("a:b", 1, 2)
    for bad in (b"", b"a", b"a:1", b":1:2", b"a:-1:2", b"a:1:x", b"\xff:1:2"):
        with pytest.raises(ValueError):  # noqa: PT011  # several kinds of it
            Source.parse(bad)
