"""Liveness by progress, readiness by recovery."""

import pytest

from assay.agents.progress import STALLED_AFTER_S, Progress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(clock: Clock) -> Progress:
    return Progress(clock)


def test_it_is_ready_from_the_take_over_until_partitions_are_given_up(progress):
    assert "starting" in progress.ready()
    progress.taken_over({0: 5})
    assert progress.ready() == ""
    progress.given_up("partitions were given up")
    assert "given up" in progress.ready()


def test_a_partition_that_waits_too_long_is_named(progress, clock):
    progress.taken_over({0: 5, 1: 9})
    clock.now += STALLED_AFTER_S - 1
    progress.advanced(1, 10)
    clock.now += 2
    assert progress.live() == f"partition 0 waits at offset 5 for {STALLED_AFTER_S + 1:.0f} s"


def test_a_partition_with_nothing_to_do_is_alive(progress, clock):
    progress.taken_over({0: 5})
    for _ in range(5):
        clock.now += STALLED_AFTER_S - 1
        progress.idle(0)
    assert progress.live() == ""


def test_the_same_offset_again_is_no_progress(progress, clock):
    progress.taken_over({0: 5})
    clock.now += STALLED_AFTER_S + 1
    progress.advanced(0, 5)
    assert "partition 0" in progress.live()


def test_while_kafka_does_not_answer_it_is_not_ready_and_not_to_be_killed(progress, clock):
    progress.taken_over({0: 5})
    progress.unknown()
    clock.now += STALLED_AFTER_S + 1
    assert "Kafka has not answered" in progress.ready()
    assert progress.live() == ""
    progress.known()
    assert (progress.ready(), progress.live()) == ("", "")


def test_recovery_is_alive_while_fewer_records_remain(progress, clock):
    for remaining in (900, 600, 300):
        progress.recovering(remaining)
        clock.now += STALLED_AFTER_S - 1
    assert progress.live() == ""
    progress.recovering(300)
    clock.now += 2
    assert "without progress" in progress.live()
