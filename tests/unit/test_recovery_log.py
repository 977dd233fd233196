"""Recovery shows how far it is."""

import logging

import pytest

from assay.agents.recovery_log import EVERY_S, RecoveryLog


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture):
    """Tells a log of the course of `remaining`, a second apart; returns what was said."""

    def tell(*course: int) -> list[str]:
        clock = Clock()
        log = RecoveryLog(clock)
        with caplog.at_level(logging.INFO, "assay.worker"):
            for records in course:
                log.remaining(records)
                clock.now += 1
        return caplog.messages

    return tell


def test_nothing_is_said_where_there_is_nothing_to_recover(said) -> None:
    assert said(0, 0, -1, 0) == []


def test_it_says_what_remains_how_fast_it_goes_and_how_long_it_takes(said) -> None:
    begins, goes_on, ends = said(100_000, 80_000, 60_000, 40_000, 20_000, 0, 0)
    assert begins == "reading profiles back: 100,000 records of the changelog"
    assert goes_on == "reading profiles back: 40,000 records remain, 20,000 a second, about 2 s"
    assert ends == "profiles are read back: 100,000 records in about 5 s"


def test_it_says_so_every_few_seconds_while_nothing_comes(said) -> None:
    messages = said(*[500] * (3 * int(EVERY_S) + 1))
    assert messages[1:] == ["reading profiles back: 500 records remain, 0 a second, and nothing comes"] * 3


def test_partitions_that_moved_begin_anew(said) -> None:
    assert [message[-12:] for message in said(500, 300, 900)] == ["he changelog"] * 2
