"""Whether logged features are those of a replay: what differs is found; the order of entities comes from the evidence."""

import numpy as np
import pytest

from assay.agents.parity import Compared, Logged, Run, compare_entities, compare_profiles, order_effect
from assay.deploy.parity_run import Parity
from assay.tables.entity_fold import EntityWindows
from assay.tables.events import EVENT
from assay.tables.features import ENTITIES, ENTITY_FEATURES, FEATURE_COUNT, NAMES, PROFILE_FEATURES

START_MS, COUNT = 1_767_225_600_000, 40


def events() -> np.ndarray:
    """Of one partition, some minutes apart, at two merchants and with one device."""
    made = np.zeros(COUNT, EVENT)
    made["offset"] = np.arange(COUNT)
    made["time_ms"] = START_MS + np.arange(COUNT) * 120_000
    made["appended_ms"] = made["time_ms"] + 500
    made["amount"] = 10 + np.arange(COUNT) % 7
    made["user"] = (1 + np.arange(COUNT) % 5) << 56
    made["id"][:, 0] = 1 + np.arange(COUNT)
    made["merchant"] = 100 + np.arange(COUNT) % 2
    made["bin"] = np.arange(COUNT) % 3
    made["device"] = 7
    return made


def run_observed_in(order: np.ndarray) -> Run:
    """A run whose entities were seen in that order, and whose evidence says so. Each event is of a partition of its own."""
    made = events()
    windows, sequences = np.empty((COUNT, ENTITY_FEATURES), np.float32), np.empty((COUNT, len(ENTITIES)), np.int64)
    windows[order], sequences[order] = EntityWindows().observe(made[order])
    profiles = np.random.default_rng(3).random((COUNT, PROFILE_FEATURES), np.float32)
    run = Run("transactions", made, np.arange(COUNT), profiles)
    for i in range(COUNT):
        run.logged[i] = Logged(np.concatenate([profiles[i], windows[i]]), sequences[i].tolist())
    return run


@pytest.fixture
def run() -> Run:
    return run_observed_in(np.random.default_rng(5).permutation(COUNT))


def test_i4_a_run_that_is_its_replay_has_no_difference(run: Run):
    for compared in (compare_profiles(run), compare_entities(run)):
        assert (compared.transactions, compared.compared, compared.differ, compared.first) == (COUNT, COUNT, 0, None)


def test_i4_the_first_profile_feature_that_differs_is_named(run: Run):
    run.logged[9].features[3] += 1
    run.logged[4].features[2] = np.nextafter(run.logged[4].features[2], np.float32(9))
    compared = compare_profiles(run)
    assert compared.differ == 2
    assert (compared.first.source.offset, compared.first.feature) == (4, NAMES[2])
    assert compared.first.logged != compared.first.replayed


def test_i4_an_entity_window_that_differs_is_named(run: Run):
    run.logged[9].features[NAMES.index("device_count_1h")] += 1
    compared = compare_entities(run)
    assert (compared.differ, compared.first.feature) == (1, "device_count_1h")


def test_transactions_without_evidence_are_not_compared(run: Run):
    del run.logged[9]
    assert compare_profiles(run).compared == COUNT - 1


def test_what_redis_learnt_of_later_takes_the_numbers_that_nobody_has(run: Run):
    late = run.logged[9]
    run.logged[9] = Logged(
        np.concatenate([late.features[:PROFILE_FEATURES], np.full(ENTITY_FEATURES, np.nan, np.float32)]), None
    )
    compared = compare_entities(run)
    assert (compared.compared, compared.differ, compared.unordered) == (COUNT - 1, 0, 0)


def test_entities_that_were_seen_before_the_run_are_left_out():
    seen_before = np.zeros(1, EVENT)
    seen_before["device"], seen_before["time_ms"], seen_before["user"] = 7, START_MS, 9 << 56
    run, windows = run_observed_in(np.arange(COUNT)), EntityWindows()
    windows.observe(seen_before)
    values, sequences = windows.observe(run.events)
    for i in range(COUNT):
        run.logged[i] = Logged(np.concatenate([run.replayed[i], values[i]]), sequences[i].tolist())
    compared = compare_entities(run)
    assert (compared.differ, compared.told) == (0, COUNT)
    assert compared.unordered == COUNT - compared.compared > 0


def run_counted_as(order: list[int], kept: list[int]) -> Run:
    """A run at one merchant, whose observations Redis counted in that order; kept: of each, which of those was answered."""
    made = events()
    for entity in ENTITIES:
        made[entity] = 0
    made["merchant"] = 7
    windows, sequences = EntityWindows().observe(made[order])
    run = Run("transactions", made, np.zeros(COUNT, np.int64), np.zeros((COUNT, PROFILE_FEATURES), np.float32))
    for i, answered in enumerate(kept):
        features = np.zeros(FEATURE_COUNT, np.float32)
        features[PROFILE_FEATURES : PROFILE_FEATURES + ENTITY_FEATURES] = windows[answered]
        run.logged[i] = Logged(features, sequences[answered].tolist())
    return run


def test_i4_an_observation_that_was_counted_twice_is_a_difference():
    twice = [*range(4), *range(3, COUNT)]
    compared = compare_entities(run_counted_as(twice, [*range(4), *range(5, COUNT + 1)]))
    assert (compared.differ, compared.miscounts, compared.first.source.offset) == (1, 1, 4)
    assert (compared.first.feature, compared.first.logged, compared.first.replayed) == ("merchant_observations", 6, 5)
    assert (compared.told, compared.compared, compared.unordered) == (COUNT, 4, COUNT - 4)


def test_i4_an_observation_that_was_lost_is_a_difference():
    run = run_counted_as([*range(COUNT)], [*range(COUNT)])
    without = run_counted_as([*range(3), *range(4, COUNT)], [*range(3), 3, *range(3, COUNT - 1)])
    for i in range(4, COUNT):
        run.logged[i] = without.logged[i]
    compared = compare_entities(run)
    assert (compared.differ, compared.first.source.offset, compared.first.feature) == (1, 4, "merchant_observations")


def test_i4_what_is_asked_for_again_is_compared_as_it_was_read():
    run = run_counted_as([*range(COUNT)], [*range(5), 7, 7, *range(7, COUNT)])
    compared = compare_entities(run)
    assert (compared.compared, compared.differ, compared.unordered) == (COUNT, 0, 0)


def test_a_value_that_differs_before_a_miscount_is_the_first():
    run = run_counted_as([*range(4), *range(3, COUNT)], [*range(4), *range(5, COUNT + 1)])
    run.logged[2].features[NAMES.index("merchant_count_1h")] += 1
    compared = compare_entities(run)
    assert (compared.differ, compared.first.feature) == (2, "merchant_count_1h")


def test_order_changes_nothing_where_payments_arrive_as_they_happen():
    assert order_effect(events()).transactions == 0


def test_what_arrives_late_changes_features():
    made = events()
    made["appended_ms"][3] = made["appended_ms"][20]
    effect = order_effect(made)
    assert 0 < effect.transactions < COUNT
    assert "since_last_s" in effect.features


@pytest.mark.parametrize(("others", "little"), [(0, False), (3, False), (4, True)])
def test_a_run_whose_evidence_is_mostly_of_another_list_says_little(others: int, little: bool) -> None:
    compared = Compared(7, 3, 3, 0, None)
    found = Parity(compared, compared, compared, others, None)
    assert (found.says_little, found.differs) == (little, False)
