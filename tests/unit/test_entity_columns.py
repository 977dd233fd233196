"""A line of the feature list is all it takes to have a window of an entity; and what no row holds is refused."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from assay.tables.entity_columns import WINDOWS, columns_of, plan
from assay.tables.entity_fold import EntityWindows
from assay.tables.features import DAY, ENTITIES, HOUR, MINUTE, MONTH, WEEK, WINDOW_NAMES, Feature, Origin
from tests.entity_reference import built, drawn_events, referred

MEASURES = ("count", "sum", "small", "users", "instruments", "devices")


def line(entity: str, measure: str, window_s: int) -> Feature:
    name = f"{entity}_{measure}_{WINDOW_NAMES[window_s]}"
    return Feature(name, "", entity, window_s, Origin.ENTITY, MINUTE, 0, -1.0, 0.0, measure=measure)


EVERY_LINE = [
    *(line(*words) for words in product(ENTITIES, MEASURES, WINDOW_NAMES) if words[1] != f"{words[0]}s"),
    *(line(entity, "matured", window_s) for entity in ENTITIES for window_s in (DAY, WEEK, MONTH)),
]


@settings(max_examples=100, deadline=None)
@given(drawn_events)
def test_every_measure_of_every_entity_over_every_window_is_there_for_the_asking(drawn: list[Any]) -> None:
    events = built(drawn)
    values, _ = EntityWindows(EVERY_LINE).observe(events)
    np.testing.assert_allclose(values, referred(events, EVERY_LINE)[0], rtol=1e-5, atol=2e-3)


def test_a_line_more_changes_no_other_column() -> None:
    events = built([(30_000, 1.5, 0, i % 3, (1, 2, 1 + i % 2, 3, 1)) for i in range(30)])
    more = (*WINDOWS[:7], line("bin", "devices", WEEK), *WINDOWS[7:])
    values, with_it = EntityWindows().observe(events)[0], EntityWindows(more).observe(events)[0]
    assert np.delete(with_it, 7, axis=1).tobytes() == values.tobytes()


@pytest.mark.parametrize(
    "feature",
    [
        line("instrument", "instruments", HOUR),  # of itself
        line("device", "devices", HOUR),
        line("merchant", "matured", HOUR),  # days are the finest tiles that are kept for so long
        line("merchant", "chargebacks", HOUR),
        replace(line("merchant", "count", HOUR), window_s=2 * MONTH),
        replace(line("merchant", "count", HOUR), window_s=None),
    ],
)
def test_a_line_that_no_row_can_answer_is_refused_by_its_name(feature: Feature) -> None:
    with pytest.raises(ValueError, match=feature.name):
        plan([feature])


def test_columns_of_all_kinds_are_all_windows() -> None:
    assert sorted(np.concatenate([columns_of(entity) for entity in ENTITIES]).tolist()) == list(range(len(WINDOWS)))
