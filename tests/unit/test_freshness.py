"""How old what features are read from is: told with each decision, and watched beside what the list allows."""

from collections.abc import Mapping

import numpy as np
import pytest

from assay.agents.freshness import BatchReads, ages_of_each, declare_allowed, watch
from assay.streams.metrics import Metrics
from assay.tables.batch_rows import BATCH_LIST, COLUMNS
from assay.tables.entities import Entities
from assay.tables.entity_answer import REDIS_FEATURES, EntityAnswer, unavailable
from assay.tables.events import EVENT
from assay.tables.features import ENTITIES, FEATURES, Origin

NOW_MS = 1_760_000_000_000.0
NEWEST, OTHER = (feature.name for feature in BATCH_LIST[:2])


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def answer(available: bool = True, rows: Mapping[str, np.ndarray] = {}, **ages_ms: list[float]) -> EntityAnswer:
    values, sequences = np.zeros((3, REDIS_FEATURES), np.float32), np.zeros((3, len(ENTITIES)), np.int64)
    ages = {source: np.array(each) for source, each in ages_ms.items()}
    return EntityAnswer(values, sequences, available, ages_ms=ages, row_sequences=rows)


def test_each_decision_has_the_ages_of_what_was_read_for_it() -> None:
    told = ages_of_each(answer(batch=[5_000.0, np.nan, -2.0]), {"entity": 0.5})
    assert told == [{"entity": 500, "batch": 5_000}, {"entity": 500}, {"entity": 500, "batch": -2}]


def test_rows_of_risk_are_as_old_as_the_oldest_outcome_that_waits() -> None:
    waiting_s = {"entity": 0.0, "risk": 1.5}
    assert ages_of_each(answer(rows={"risk": np.zeros((3, 6), np.int64)}), waiting_s) == [{"entity": 0, "risk": 1_500}] * 3


def test_rows_of_risk_that_were_not_read_have_no_age() -> None:
    assert ages_of_each(answer(), {"entity": 0.0, "risk": 1.5}) == [{"entity": 0}] * 3


def test_without_redis_nothing_was_read() -> None:
    assert ages_of_each(answer(available=False), {"entity": 3.0, "risk": 3.0}) == [{}, {}, {}]


def test_what_the_list_allows_stands_beside_the_ages(metrics: Metrics) -> None:
    declare_allowed(metrics)
    for feature in BATCH_LIST:
        assert value(metrics, "assay_batch_feature_allowed_age_seconds", feature=feature.name) == feature.allowed_age_s
    for source in Origin:
        least = min((feature.allowed_age_s for feature in FEATURES if feature.source is source), default=None)
        assert value(metrics, "assay_feature_allowed_age_seconds", source=source.value) == least


async def test_a_batch_feature_is_as_old_as_the_newest_value_that_was_read(metrics: Metrics) -> None:
    entities = Entities("redis://127.0.0.1:1/0", prefix="x")
    entities.newest_ms = {NEWEST: NOW_MS - 30_000, OTHER: NOW_MS - 90_000}
    watch(metrics, entities, {}, NOW_MS)
    assert value(metrics, "assay_batch_feature_age_seconds", feature=NEWEST) == 30
    assert value(metrics, "assay_batch_feature_age_seconds", feature=OTHER) == 90
    assert value(metrics, "assay_feature_age_seconds", source="batch") == 30


def test_each_read_of_a_batch_feature_is_counted_by_what_was_found(metrics: Metrics) -> None:
    column, reads = COLUMNS.start, BatchReads(metrics)
    allowed_ms = 1_000.0 * BATCH_LIST[0].allowed_age_s
    found = answer(**{NEWEST: [allowed_ms, allowed_ms + 1, np.nan]})
    found.values[:, column] = [0.5, np.nan, -1.0]
    reads.count(found)
    reads.count(unavailable(2, "deadline"))
    for result, number in {"value": 1, "too_old": 1, "not_loaded": 1, "unavailable": 2}.items():
        assert value(metrics, "assay_batch_feature_reads_total", feature=NEWEST, result=result) == number
    assert value(metrics, "assay_batch_feature_reads_total", feature=OTHER, result="not_loaded") == 3


async def test_what_was_never_read_has_no_age(metrics: Metrics) -> None:
    watch(metrics, Entities("redis://127.0.0.1:1/0", prefix="x"), {}, NOW_MS)
    assert value(metrics, "assay_feature_age_seconds", source="batch") is None
    assert value(metrics, "assay_feature_age_seconds", source="profile") == 0


async def test_entities_are_as_old_as_the_oldest_observation_that_waits(metrics: Metrics) -> None:
    clock = Clock()
    entities = Entities("redis://127.0.0.1:1/0", prefix="x", may_write=lambda: False, clock=clock)
    events = np.zeros(1, EVENT)
    events["merchant"] = 7
    for clock.now in (3.0, 8.0):
        await entities.observe(events, [0])
    clock.now = 10.0
    watch(metrics, entities, {"risk": 4.0}, NOW_MS)
    assert value(metrics, "assay_feature_age_seconds", source="entity") == 7
    assert value(metrics, "assay_feature_age_seconds", source="risk") == 4
