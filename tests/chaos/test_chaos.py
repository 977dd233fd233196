"""The short form: kills, a pause, a frozen and a cut connection, a lost disk and a broker that restarts, under traffic (I1-I4).

The long form is `make chaos`.
"""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from . import faults
from .course import Course
from .stand import stand

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
SEED, RATE = 4, 100.0
SHORT_COURSE = (faults.kill, faults.pause_and_freeze, faults.lose_two, faults.cut_link, faults.restart_broker)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ended(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Course]:
    """The course, when all faults have been and everything was read from the beginning."""
    async with stand(tmp_path_factory.mktemp("chaos"), redis_url, seed=SEED, rate=RATE) as running:
        course = Course(running)
        await course.run(SHORT_COURSE)
        await course.end()
        yield course


def about(course: Course) -> str:
    """What to look at when something is wrong."""
    return f"{json.dumps(course.examples, indent=1)}\n{course.stand.fleet.endings}\nlogs: {course.stand.folder}"


async def test_everything_that_was_sent_is_committed(ended: Course) -> None:
    assert not [leg.unsettled for leg in ended.passed if leg.unsettled]
    assert (ended.missing, ended.stand.traffic.failed) == (0, 0)
    assert ended.counts.transactions > 1_000


async def test_i1_nothing_is_lost(ended: Course) -> None:
    assert ended.counts.lost == 0, about(ended)


async def test_i2_nothing_is_contradictory(ended: Course) -> None:
    assert ended.counts.contradictory == 0, about(ended)


async def test_i1_every_verdict_has_its_record(ended: Course) -> None:
    assert ended.counts.unfounded == 0, about(ended)


async def test_i3_no_reply_says_what_the_log_does_not_hold(ended: Course) -> None:
    assert ended.counts.replies_without_decision == 0, about(ended)


async def test_i4_profiles_equal_those_of_a_single_threaded_replay(ended: Course) -> None:
    counts = ended.counts
    assert (counts.profiles_differ, counts.rows_differ) == (0, 0), about(ended)


async def test_i4_features_equal_those_of_a_single_threaded_replay(ended: Course) -> None:
    assert ended.counts.evidence_differs == 0, about(ended)


async def test_workers_were_fenced_off_or_killed_and_started_again(ended: Course) -> None:
    assert ended.stand.fleet.starts > len(ended.stand.fleet.wanted)
    assert ended.counts.fences > 0
