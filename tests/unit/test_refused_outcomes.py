"""Outcomes that are refused: kept as dead letters before they are done with, and why."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import pytest_asyncio
from faust.types import TP

from assay.agents import refused_outcomes
from assay.agents.refused_outcomes import RefusedOutcomes
from assay.schemas.errors import PublishError, TooLarge
from assay.schemas.instant import Instant
from assay.schemas.limits import DEAD_LETTER_REST_S, MAX_KEY_BYTES, MAX_VALUE_BYTES, MIN_DEAD_LETTER_BYTES, OUTCOME_PATIENCE_S
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
        (outcome(1, "fraud"), {"key": CARD.decode().encode("utf-16")}, "card_number", "key"),
        (outcome(1, "fraud"), {"pan": CARD.decode().encode("utf-16")}, "card_number", "headers"),
        (outcome(1, "fraud"), {"pan": CARD}, "card_number", "headers"),
    ],
)
def test_a_refusal_names_the_code_and_the_field(value: bytes, changes: dict[str, Any], code: str, field: str) -> None:
    refusal = outcome_of(record(value, **changes))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.field) == (code, field)
    assert "stolen" not in refusal.message


@pytest.mark.parametrize("prefix", ["13", "15", "16", "18"])
def test_no_id_of_digits_is_taken_for_a_card_as_the_key_of_an_outcome(prefix: str) -> None:
    for number in range(0, 10**17, 10**17 // 97):
        user = f"{prefix}{number:017}"
        assert isinstance(
            outcome_of(record(outcome(1, "fraud", user_id=user), key=user.encode(), order=user.encode())), Outcome
        )


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
    """Takes dead letters. Of a partition that is `stuck` nothing is acknowledged; `fails` fail one try each.

    most: bytes of values that it takes at once.
    """

    def __init__(self) -> None:
        self.published: dict[int, list[Any]] = {}
        self.fails: dict[int, list[PublishError]] = {}
        self.stuck: dict[int, asyncio.Event] = {}
        self.most = 10**6
        self.publishers = 0

    async def start(self) -> None:
        self.publishers += 1

    async def close(self) -> None: ...

    async def publish(self, batches: dict[tuple[str, int], list[Any]]) -> None:
        [((topic, place), records)] = batches.items()
        assert topic == "dead-letters"
        if (stuck := self.stuck.get(place)) is not None:
            await stuck.wait()
        if fails := self.fails.get(place):
            raise fails.pop(0)
        if sum(len(value or b"") for _, value, _ in records) > self.most:
            raise TooLarge(f"more than {self.most} bytes")
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
        return await self.keep_all(*(record(value, partition=partition, offset=offset + i) for i, value in enumerate(values)))

    async def keep_all(self, *records: Any) -> set[int]:
        return await self.letters.keep([refusal for each in records if isinstance(refusal := outcome_of(each), Refusal)])

    def sources(self, place: int) -> list[bytes]:
        return [dict(headers)["assay-source"] for _, _, headers in self.broker.published.get(place, [])]

    def sizes(self) -> list[int]:
        return [len(value or b"") for _, value, _ in self.broker.published[0]]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not acknowledged at once is not waited for."""
    monkeypatch.setattr(refused_outcomes, "DEAD_LETTER_WAIT_S", 0.01)


@pytest.mark.asyncio
async def test_a_dead_letter_says_where_it_came_from_and_lies_on_a_partition_that_there_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Refusing()
    assert await made.keep(b"no JSON", CARD, partition=6, offset=41) == set()
    [(place, [plain, withheld])] = made.broker.published.items()
    assert place == 0
    assert plain[:2] == (b"u", b"no JSON")
    assert dict(plain[2])["assay-source"] == b"outcomes:6:41"
    assert withheld[:2] == (None, None)  # invariant I7
    assert made.metrics.registry.get_sample_value("assay_dead_letters_total", {"code": RefusalCode.MALFORMED}) == 1
    assert [one.source for one in caplog.records] == ["outcomes:6:42"]  # type: ignore[attr-defined]


@pytest.mark.asyncio
async def test_what_fails_is_tried_again_alone_and_after_a_rest() -> None:
    made = Refusing()
    made.broker.fails[1] = [PublishError("no leader")]
    records = [record(b"no", partition=p, offset=o) for p, o in ((0, 0), (0, 1), (1, 5))]
    assert await made.keep_all(*records) == {1}
    assert await made.keep_all(*records) == {1}  # which is left alone for a while
    made.now = DEAD_LETTER_REST_S
    assert await made.keep_all(*records) == set()
    assert made.sources(0) == [b"outcomes:0:0", b"outcomes:0:1"]
    assert made.sources(1) == [b"outcomes:1:5"]


@pytest.mark.asyncio
async def test_i5_dead_letter_wait_s_longer_and_others_go_on_without_and_nothing_is_written_twice(hasty: None) -> None:
    made = Refusing()
    made.broker.stuck[1] = asyncio.Event()
    records = [record(b"no", partition=p, offset=o) for p, o in ((0, 0), (1, 5), (3, 2))]
    assert await made.keep_all(*records) == {1, 3}
    assert await made.keep_all(*records, record(b"no", offset=1)) == {1, 3}
    assert made.sources(0) == [b"outcomes:0:0", b"outcomes:0:1"]
    made.broker.stuck[1].set()
    await asyncio.sleep(0.01)
    assert await made.keep_all(*records) == set()
    assert made.sources(1) == [b"outcomes:1:5", b"outcomes:3:2"]
    assert made.broker.publishers == 2


@pytest.mark.asyncio
async def test_where_the_topic_takes_less_than_it_did_they_go_one_by_one_and_the_large_one_is_cut() -> None:
    made = Refusing(max_bytes=50_000)
    made.broker.most = 30_000
    assert await made.keep(b"x" * 20_000, b"y" * 40_000, b"z" * 20_000) == set()
    first, cut, last = made.sizes()
    assert (first, last) == (20_000, 20_000)
    assert 20_000 < cut < 25_000


@pytest.mark.asyncio
async def test_i5_min_dead_letter_bytes_where_less_is_taken_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Refusing(max_bytes=50_000)
    made.broker.most = 10
    assert await made.keep(b"x" * 4_000) == {0}
    made.broker.most, made.now = MIN_DEAD_LETTER_BYTES, DEAD_LETTER_REST_S
    assert await made.keep(b"x" * 4_000) == set()


@pytest.mark.asyncio
async def test_i5_dead_letter_rest_s_earlier_it_is_left_alone() -> None:
    made = Refusing()
    made.broker.fails[0] = [PublishError("no leader")]
    assert await made.keep(b"no") == {0}
    made.now = DEAD_LETTER_REST_S - 0.001
    assert await made.keep(b"no") == {0}
    made.now = DEAD_LETTER_REST_S
    assert await made.keep(b"no") == set()


@pytest.mark.asyncio
async def test_a_partition_that_comes_back_may_be_that_of_a_topic_made_anew(hasty: None) -> None:
    made = Refusing()
    made.broker.stuck[0] = asyncio.Event()
    await made.keep(b"one", offset=7)
    made.letters.forget()
    made.broker.stuck.pop(0).set()
    await asyncio.sleep(0.01)
    await made.keep(b"another", offset=3)
    assert made.sources(0) == [b"outcomes:0:7", b"outcomes:0:3"]
