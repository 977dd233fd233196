"""Outcomes that are refused: kept as dead letters before they are done with, and why."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import pytest_asyncio
from faust.types import TP

from assay.agents.refused_outcomes import RefusedOutcomes
from assay.schemas.errors import PublishError
from assay.schemas.instant import Instant
from assay.schemas.limits import MAX_KEY_BYTES, MAX_VALUE_BYTES, OUTCOME_PATIENCE_S
from assay.schemas.outcome import Outcome, outcome_of
from assay.schemas.refusal import Refusal
from assay.schemas.refused import RefusalCode
from assay.streams.metrics import Metrics
from assay.streams.read_back import LogReader, ReadBack

from .learner_stand import Stand, outcome

CARD = b"4111111111111111"


def record(value: bytes | None, *, key: bytes = b"u", partition: int = 0, appended_ms: int = 10**12, **headers: bytes) -> Any:
    return SimpleNamespace(
        topic="outcomes",
        partition=partition,
        offset=41,
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
async def test_where_the_dead_letter_fails_the_offset_is_not_done_with_and_it_is_tried_again(stand: Stand) -> None:
    stand.letters.fails = [PublishError("no broker")]
    stand.hear(b"no JSON", outcome(1, "fraud"))
    with pytest.raises(PublishError):
        await stand.turn()
    assert stand.finished == {}
    await stand.turn()
    assert stand.finished == {TP("outcomes", 0): 2}
    assert len(stand.letters.kept) == 1
    assert stand.rows.counted("frauds") == 1


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
    def __init__(self) -> None:
        self.published: dict[tuple[str, int], list[Any]] = {}

    async def start(self) -> None: ...
    async def close(self) -> None: ...

    async def publish(self, batches: dict[tuple[str, int], list[Any]]) -> None:
        self.published |= batches


@pytest.mark.asyncio
async def test_a_dead_letter_says_where_it_came_from_and_lies_on_a_partition_that_there_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, metrics = Broker(), Metrics()
    letters = RefusedOutcomes(lambda: broker, "dead-letters", 4, 10**6, b"key", metrics)  # type: ignore[arg-type,return-value]
    refused = [outcome_of(record(value, partition=6)) for value in (b"no JSON", CARD)]
    await letters.keep([each for each in refused if isinstance(each, Refusal)])
    [(place, [plain, withheld])] = broker.published.items()
    assert place == ("dead-letters", 2)
    assert plain[:2] == (b"u", b"no JSON")
    assert dict(plain[2])["assay-source"] == b"outcomes:6:41"
    assert withheld[:2] == (None, None)  # invariant I7
    assert metrics.registry.get_sample_value("assay_dead_letters_total", {"code": RefusalCode.MALFORMED}) == 1
    assert [one.source for one in caplog.records] == ["outcomes:6:41"]  # type: ignore[attr-defined]
