"""Repeats whose decision is no longer in memory: answered from the topic, never holding up what comes after."""

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace

import orjson
import pytest
from aiokafka.errors import KafkaConnectionError

from assay.agents import repeats as module
from assay.agents.answers import Prepared, Repeat
from assay.agents.flow import Acknowledgements
from assay.agents.repeats import Repeats
from assay.schemas.source import Source
from assay.tables.partition_state import Earlier


def request(offset: int, transaction_id: str = "t-1"):
    return SimpleNamespace(
        source=Source("transactions", 0, offset),
        transaction=SimpleNamespace(transaction_id=transaction_id, user_id="u-1"),
    )


def decided(transaction_id: str = "t-1") -> SimpleNamespace:
    return SimpleNamespace(value=orjson.dumps({"transaction_id": transaction_id, "user_id": "u-1", "action": "approve"}))


class Reader:
    """A decisions topic: source offset -> record; may fail a number of times, or hang."""

    def __init__(self, records=None, failures: int = 0, hangs: bool = False) -> None:
        self.records, self.failures, self.hangs, self.calls = records or {}, failures, hangs, []

    async def read(self, partition, wanted, since_ms):
        self.calls.append(set(wanted))
        if self.hangs:
            await asyncio.sleep(3600)
        if self.failures:
            self.failures -= 1
            raise KafkaConnectionError
        return {offset: record for offset, record in self.records.items() if offset in wanted}


@dataclass
class Said:
    request: object
    value: bytes
    again: object


class Answers:
    def __init__(self) -> None:
        self.said: list[Said] = []
        self.remembered: dict[str, SimpleNamespace] = {}

    def known(self, request) -> SimpleNamespace | None:
        return self.remembered.get(request.transaction.transaction_id)

    def remember(self, request, value) -> None:
        self.remembered[request.transaction.transaction_id] = SimpleNamespace(value=value, source=request.source)

    def answer(self, prepared: Prepared, request, value, again) -> None:
        self.said.append(Said(request, value, again))

    async def publish(self, prepared: Prepared) -> None:
        await asyncio.sleep(0)


class Commits(dict):
    def note(self, partition: int, offset: int) -> None:
        self[partition] = offset


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(module, "RETRY_PAUSE_S", 0.001)


@pytest.fixture
def acknowledgements() -> Acknowledgements:
    acknowledgements = Acknowledgements()
    acknowledgements.begin({0: 0})
    return acknowledgements


async def settle(repeats: Repeats) -> None:
    async with asyncio.timeout(1):
        while repeats._tasks:
            await asyncio.sleep(0.001)


async def test_a_decision_that_is_found_is_given_again_word_for_word(acknowledgements):
    answers, commits = Answers(), Commits()
    repeats = Repeats(Reader({3: decided()}), answers, acknowledgements, commits.note, lambda _: b"anew")
    await repeats.look_up([Repeat(request(8), Earlier(3, 0))])
    assert acknowledgements.reached(0, 9) == 8, "nothing after it may be committed before it has its verdict"
    await settle(repeats)
    [said] = answers.said
    assert (said.value, said.again.first.offset, said.again.published) == (decided().value, 3, False)
    assert commits == {0: 9}


async def test_i1_a_replay_of_the_same_record_is_not_published_twice(acknowledgements):
    answers = Answers()
    repeats = Repeats(Reader({8: decided()}), answers, acknowledgements, Commits().note, lambda _: b"anew")
    await repeats.look_up([Repeat(request(8), Earlier(8, 0))])
    await settle(repeats)
    assert answers.said[0].again.published


@pytest.mark.parametrize("found", [{}, {3: decided("another")}], ids=["expired", "of another transaction"])
async def test_beyond_the_horizon_it_is_judged_anew_and_marked(acknowledgements, found):
    answers = Answers()
    repeats = Repeats(Reader(found), answers, acknowledgements, Commits().note, lambda _: b"anew")
    await repeats.look_up([Repeat(request(8), Earlier(3, 0))])
    await settle(repeats)
    [said] = answers.said
    assert (said.value, said.again.beyond_horizon) == (b"anew", True)


async def test_repeats_that_wait_are_looked_up_together(acknowledgements):
    reader, answers = Reader({1: decided(), 2: decided(), 3: decided()}), Answers()
    repeats = Repeats(reader, answers, acknowledgements, Commits().note, lambda _: b"anew")
    for offset in (1, 2, 3):
        await repeats.look_up([Repeat(request(10 + offset), Earlier(offset, 0))])
    await settle(repeats)
    assert reader.calls[0] == {1, 2, 3}
    assert len(answers.said) == 3


async def test_a_topic_that_can_not_be_read_for_a_while_costs_nothing_but_time(acknowledgements):
    reader, answers = Reader({3: decided()}, failures=3), Answers()
    repeats = Repeats(reader, answers, acknowledgements, Commits().note, lambda _: b"anew")
    await repeats.look_up([Repeat(request(8), Earlier(3, 0))])
    await settle(repeats)
    assert (len(reader.calls), answers.said[0].value) == (4, decided().value)


async def test_i1_what_is_still_looked_for_when_partitions_are_given_up_is_left_uncommitted(acknowledgements):
    answers, commits = Answers(), Commits()
    repeats = Repeats(Reader(hangs=True), answers, acknowledgements, commits.note, lambda _: b"anew")
    await repeats.look_up([Repeat(request(8), Earlier(3, 0))])
    await asyncio.sleep(0.01)
    async with asyncio.timeout(1):
        await repeats.abandon()
    assert (answers.said, commits, acknowledgements.reached(0, 9)) == ([], {}, 8)


class Distant(Reader):
    """Takes too long for a look-up of several that lie apart."""

    async def read(self, partition, wanted, since_ms):
        self.calls.append(set(wanted))
        if len(wanted) > 1:
            raise TimeoutError
        return {offset: record for offset, record in self.records.items() if offset in wanted}


async def test_i1_repeats_that_lie_far_apart_are_looked_up_one_after_another(acknowledgements):
    reader, answers, commits = Distant({1: decided(), 2: decided(), 900: decided()}), Answers(), Commits()
    repeats = Repeats(reader, answers, acknowledgements, commits.note, lambda _: b"anew")
    hour_ms = 3_600_000
    for offset, appended_ms in ((1, 0), (2, module.MAX_SPAN_MS * 3 // 4), (900, hour_ms)):
        await repeats.look_up([Repeat(request(1_000 + offset), Earlier(offset, appended_ms))])
    acknowledgements.reached(0, 2_000)
    await settle(repeats)
    assert reader.calls[-3:] == [{1}, {2}, {900}]
    assert {said.value for said in answers.said} == {decided().value}
    assert commits[0] == 2_000


async def test_i2_what_is_judged_anew_is_repeated_to_whoever_asks_with_it(acknowledgements):
    answers, anew = Answers(), iter([b"first", b"second"])
    repeats = Repeats(Reader({}), answers, acknowledgements, Commits().note, lambda _: next(anew))
    await repeats.look_up([Repeat(request(8), Earlier(3, 0)), Repeat(request(9), Earlier(3, 0))])
    await settle(repeats)
    assert [said.value for said in answers.said] == [b"first", b"first"]
    assert [said.again.beyond_horizon for said in answers.said] == [True, False]


async def test_i5_look_ups_that_filled_the_queue_and_were_left_do_not_hold_up_the_next_owner(acknowledgements, monkeypatch):
    monkeypatch.setattr(module.limits, "MAX_WAITING_REPEATS", 2)
    answers = Answers()
    repeats = Repeats(Reader(hangs=True), answers, acknowledgements, Commits().note, lambda _: b"anew")
    await repeats.look_up([Repeat(request(10 + offset), Earlier(offset, 0)) for offset in range(3)])
    await asyncio.sleep(0.01)
    async with asyncio.timeout(1):
        await repeats.abandon()
        repeats.begin()
        await repeats.look_up([Repeat(request(20), Earlier(3, 0))])


async def test_i1_a_repeat_that_comes_while_partitions_are_given_up_is_left_uncommitted(acknowledgements):
    repeats = Repeats(Reader(), Answers(), acknowledgements, Commits().note, lambda _: b"anew")
    await repeats.abandon()
    await repeats.look_up([Repeat(request(8), Earlier(3, 0))])
    assert acknowledgements.reached(0, 9) == 8
