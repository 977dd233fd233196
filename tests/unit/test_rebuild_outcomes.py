"""How long `assay rebuild outcomes` keeps transactions: no longer than the stream would have."""

from aiokafka.structs import ConsumerRecord
from hypothesis import given
from hypothesis import strategies as st

from assay.deploy.rebuild_outcomes import DAY_MS, HOUR_MS, by_expiry

NOW_MS, KEPT_MS = 1_772_362_800_000, 90 * DAY_MS


def record(offset: int, age_ms: int) -> ConsumerRecord:
    return ConsumerRecord("transactions", 0, offset, NOW_MS - age_ms, 1, b"u", b"", None, 1, 0, ())


def expiries(*ages_ms: int) -> list[tuple[int, list[int]]]:
    records = [record(offset, age_ms) for offset, age_ms in enumerate(ages_ms)]
    return [(expire_s, [each.offset for each in those]) for expire_s, those in by_expiry(records, NOW_MS, KEPT_MS)]


def test_one_of_89_days_ago_is_kept_for_one_day_more() -> None:
    assert expiries(89 * DAY_MS) == [(86_400, [0])]


def test_one_of_just_now_or_of_the_future_is_kept_in_full() -> None:
    assert expiries(0, -5_000) == [(90 * 86_400, [0, 1])]


def test_one_that_outcomes_would_not_find_any_more_is_not_kept() -> None:
    assert expiries(KEPT_MS + 1, 10) == [(90 * 86_400, [1])]


def test_in_its_last_moment_it_is_kept_for_a_second() -> None:
    assert expiries(KEPT_MS) == [(1, [0])]


@given(st.lists(st.integers(-HOUR_MS, KEPT_MS + HOUR_MS), max_size=20))
def test_all_that_are_young_enough_come_in_their_order_and_for_at_most_an_hour_more(ages_ms: list[int]) -> None:
    found = expiries(*ages_ms)
    assert [offset for _, offsets in found for offset in offsets] == [i for i, age in enumerate(ages_ms) if age <= KEPT_MS]
    for expire_s, offsets in found:
        for offset in offsets:
            left_ms = KEPT_MS - max(0, ages_ms[offset])
            assert left_ms <= max(1_000, expire_s * 1_000) <= max(1_000, left_ms + HOUR_MS)
