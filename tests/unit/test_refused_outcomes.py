"""Outcomes that are refused: kept as dead letters before they are done with, and why."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import pytest_asyncio
from faust.types import TP

from assay.agents.refused_outcomes import REST_S, RefusedOutcomes
from assay.schemas.errors import PublishError, TooLarge
from assay.schemas.instant import Instant
from assay.schemas.limits import MAX_KEY_BYTES, MAX_VALUE_BYTES, OUTCOME_PATIENCE_S
from assay.schemas.outcome import Outcome, outcome_of
from assay.schemas.refusal import Refusal
from assay.schemas.refused import RefusalCode
from assay.streams.metrics import Metrics
from assay.streams.read_back import LogReader, ReadBack

from .learner_stand import Stand, outcome

CARD = b"4111111111111111"


def record(
    value: bytes | None, *, key: bytes = b"u", partition: int = 0, offset: int = 41, appended_ms: int = 10**12, **headers: bytes
) -> Any:
    return SimpleNamespace(
        topic="outcomes",
        partition=partition,
        offset=offset,
        timestamp=appended_ms,
        key=key,
        value=value,
        headers=tuple(headers.items()),
    )


def without(name: str) -> bytes:
    fields = orjson.loads(outcome(1, "fraud"))
    del fields[name]
    return orjson.dumps(fields)


@pytest.mark.parametrize(
    ("value", "changes", "code", "field"),
    [
        (b"\xff", {}, "malformed", "value"),
        (b"[]", {}, "malformed", "value"),
        (b'{"user_id": "u", "user_id": "v"}', {}, "malformed", "value"),
        (without("user_id"), {}, "missing", "user_id"),
        (outcome(1, "stolen"), {}, "invalid", "status"),
        (outcome(1, "fraud", detail={"avs": 7}), {}, "invalid", "detail.avs"),
        (b" " * (MAX_VALUE_BYTES + 1), {}, "too_large", "value"),
        (outcome(1, "fraud"), {"key": b"k" * (MAX_KEY_BYTES + 1)}, "too_large", "key"),
        (outcome(1, "fraud", outcome_id=CARD.decode()), {}, "card_number", "value"),
        (CARD + b" is no JSON", {}, "card_number", "value"),
        (b"\\u0034" + CARD[1:] + b" is no JSON", {}, "card_number", "value"),
        (CARD.decode().encode("utf-16"), {}, "card_number", "value"),
        (b"\\u0034" + CARD[1:] + b" " * MAX_VALUE_BYTES, {}, "card_number", "value"),
        (CARD + b" " * MAX_VALUE_BYTES, {}, "card_number", "value"),
        (outcome(1, "fraud"), {"key": CARD}, "card_number", "key"),
        (outcome(1, "fraud"), {"pan": CARD}, "card_number", "headers"),
    ],
)
def test_a_refusal_names_the_code_and_the_field(value: bytes, changes: dict[str, Any], code: str, field: str) -> None:
    refusal = outcome_of(record(value, **changes))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.field) == (code, field)
    assert "stolen" not in refusal.message


@pytest.mark.parametrize(("ahead_ms", "taken_for_ms"), [(-1, 10**12 - 1), (0, 10**12), (86_400_000, 10**12)])
def test_what_is_said_to_be_known_after_it_was_appended_is_taken_as_known_then(ahead_ms: int, taken_for_ms: int) -> None:
    said = outcome_of(record(outcome(1, "fraud", known_at=10**12 + ahead_ms)))
    assert isinstance(said, Outcome)
    assert said.known_at == Instant(taken_for_ms)


@pytest_asyncio.fixture
async def stand() -> AsyncIterator[Stand]:
    stand = Stand()
    stand.decide(1)
    await stand.turn()
    stand.clock.now += OUTCOME_PATIENCE_S
    yield stand
    await stand.learner.close()


@pytest.mark.asyncio
async def test_those_before_and_behind_a_refused_one_count(stand: Stand) -> None:
    stand.hear(outcome(1, "disputed"), b"no JSON", None, outcome(2, "fraud"))
    await stand.turn()
    assert stand.rows.counted("frauds") == stand.rows.counted("disputes") == 1
    assert [refusal.source.offset for refusal in stand.letters.kept] == [1]


@pytest.mark.asyncio
async def test_where_dead_letters_fail_their_partition_is_not_done_with_and_others_go_on(stand: Stand) -> None:
    stand.letters.fail = {0}
    stand.hear(b"no JSON", outcome(1, "fraud"))
    stand.hear(b"no JSON", b"neither", partition=1)
    await stand.turn()
    assert stand.finished == {TP("outcomes", 1): 2}
    stand.letters.fail = set()
    await stand.turn()
    assert stand.finished == {TP("outcomes", 0): 2, TP("outcomes", 1): 2}
    assert [each.source.partition for each in stand.letters.kept] == [1, 1, 0]
    assert stand.rows.counted("frauds") == 1


@pytest.mark.asyncio
async def test_labels_are_counted_once_though_a_dead_letter_behind_them_fails_first(stand: Stand) -> None:
    stand.letters.fail = {0}
    stand.hear(outcome(1, "fraud"), b"no JSON")
    await stand.turn()
    stand.letters.fail = set()
    await stand.turn()
    assert stand.finished == {TP("outcomes", 0): 2}
    labels = [each.value for each in stand.metrics.labelled.collect()[0].samples if each.name.endswith("_total")]
    assert sum(labels) == 1


def test_i1_read_back_takes_no_transaction_for_refused_by_the_dead_letter_of_an_outcome() -> None:
    found = ReadBack()
    reader = LogReader({}, "transactions", "decisions", "dead-letters", 1.0)
    for topic in ("outcomes", "transactions"):
        at = {"outcomes": 41, "transactions": 42}[topic]
        letter = SimpleNamespace(
            topic="dead-letters", partition=0, value=b"", headers=[("assay-source", b"%s:0:%d" % (topic.encode(), at))]
        )
        reader._note(letter, 0, found)  # type: ignore[arg-type]
    assert found.dead_letters == {42}


class Broker:
    """Takes dead letters; each of `fails` fails one try of a partition."""

    def __init__(self) -> None:
        self.published: dict[tuple[str, int], list[Any]] = {}
        self.fails: dict[int, list[PublishError]] = {}
        self.sizes: list[int] = []

    async def start(self) -> None: ...
    async def close(self) -> None: ...

    async def publish(self, batches: dict[tuple[str, int], list[Any]]) -> None:
        [(place, records)] = batches.items()
        self.sizes += [len(value or b"") for _, value, _ in records]
        if fails := self.fails.get(place[1]):
            raise fails.pop(0)
        self.published.setdefault(place, []).extend(records)


class Refusing:
    """Dead letters over a broker with two partitions, and a clock."""

    def __init__(self, max_bytes: int = 10**6) -> None:
        self.broker, self.metrics, self.now = Broker(), Metrics(), 0.0
        self.letters = RefusedOutcomes(
            lambda: self.broker,  # type: ignore[arg-type,return-value]
            "dead-letters", 2, max_bytes, b"key", self.metrics, monotonic=lambda: self.now,
        )  # fmt: skip

    async def keep(self, *values: bytes, partition: int = 0, offset: int = 0) -> set[int]:
        records = [record(value, partition=partition, offset=offset + i) for i, value in enumerate(values)]
        return await self.letters.keep([refusal for each in records if isinstance(refusal := outcome_of(each), Refusal)])

    def sources(self, partition: int) -> list[bytes]:
        letters = self.broker.published.get(("dead-letters", partition), [])
        return [dict(headers)["assay-source"] for _, _, headers in letters]


@pytest.mark.asyncio
async def test_a_dead_letter_says_where_it_came_from_and_lies_on_a_partition_that_there_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Refusing()
    assert await made.keep(b"no JSON", CARD, partition=6, offset=41) == set()
    [(place, [plain, withheld])] = made.broker.published.items()
    assert place == ("dead-letters", 0)
    assert plain[:2] == (b"u", b"no JSON")
    assert dict(plain[2])["assay-source"] == b"outcomes:6:41"
    assert withheld[:2] == (None, None)  # invariant I7
    assert made.metrics.registry.get_sample_value("assay_dead_letters_total", {"code": RefusalCode.MALFORMED}) == 1
    assert [one.source for one in caplog.records] == ["outcomes:6:42"]  # type: ignore[attr-defined]


@pytest.mark.asyncio
async def test_a_partition_without_a_leader_holds_up_no_other_and_nothing_is_written_twice() -> None:
    made = Refusing()
    made.broker.fails[1] = [PublishError("no leader")]
    refused = [outcome_of(record(b"no", partition=p, offset=o)) for p, o in ((0, 0), (0, 1), (1, 5))]
    refusals = [each for each in refused if isinstance(each, Refusal)]
    assert await made.letters.keep(refusals) == {1}
    assert await made.letters.keep(refusals) == {1}  # which is left alone for a while
    made.now = REST_S
    assert await made.letters.keep(refusals) == set()
    assert made.sources(0) == [b"outcomes:0:0", b"outcomes:0:1"]
    assert made.sources(1) == [b"outcomes:1:5"]


@pytest.mark.asyncio
async def test_where_the_topic_takes_less_than_it_did_more_is_cut_off_the_next_time() -> None:
    made = Refusing(max_bytes=50_000)
    made.broker.fails[0] = [TooLarge("50,000 bytes")]
    assert await made.keep(b"x" * 40_000) == {0}
    made.now = REST_S
    assert await made.keep(b"x" * 40_000) == set()
    assert made.broker.sizes[0] == 40_000 > 25_000 > made.broker.sizes[1] > 20_000


@pytest.mark.asyncio
async def test_a_partition_that_comes_back_may_be_that_of_a_topic_made_anew() -> None:
    made = Refusing()
    await made.keep(b"one", offset=7)
    made.letters.forget()
    await made.keep(b"another", offset=3)
    assert made.sources(0) == [b"outcomes:0:7", b"outcomes:0:3"]
