"""docs/add-a-feature.md says which measures there are, of what and over which windows: those can be computed, and no others."""

import re
from pathlib import Path

import numpy as np
import pytest

from assay.tables import features
from assay.tables.changes import CHANGE, CHANGED_KINDS
from assay.tables.entity_fold import EntityWindows
from assay.tables.events import EVENT
from assay.tables.features import ENTITIES, WINDOW_NAMES, Feature
from assay.tables.risk_fold import RiskWindows
from assay.tables.risk_layout import columns_of

PAGE = (Path(__file__).parents[2] / "docs" / "add-a-feature.md").read_text()
SEEN, BECAME = "What an entity has seen", "What became of transactions"
NOW_MS = 1_767_225_600_000


def named(title: str) -> dict[tuple[str, str], set[int]]:
    """{(entity, measure): windows} of the table of a section of the page."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [[re.findall(r"`(\w+)`", cell) for cell in line.strip("|").split("|")] for line in section.splitlines()]
    tables = [row for row in rows if len(row) == 3 and all(row)]
    return {(entity, measure): {getattr(features, w) for w in ws} for ms, of, ws in tables for measure in ms for entity in of}


def an_event() -> np.ndarray:
    event = np.zeros(1, EVENT)
    event["time_ms"], event["amount"] = NOW_MS, 3
    for kind in CHANGED_KINDS:
        event[kind] = 7
    return event


def has_seen(feature: Feature) -> float:
    """The value at a first event."""
    values, _ = EntityWindows([feature]).observe(an_event())
    return float(values[0, 0])


def has_become(feature: Feature) -> float:
    """The value at an event whose list has all attempts that there can be."""
    attempts = [f"{entity}_matured_{name}" for entity in ENTITIES for name in WINDOW_NAMES.values()]
    nothing, at_first = np.zeros(0, CHANGE), np.zeros(0, np.int64)
    windows = RiskWindows(columns_of([feature], attempts), nothing, at_first)
    block = np.zeros((1, len(attempts)), np.float32)
    return float(windows.read(an_event(), np.zeros(1, np.int64), block)[0, 0])


@pytest.mark.parametrize("measure", features._MEASURES)
@pytest.mark.parametrize("entity", ENTITIES)
def test_entities_have_seen_what_the_page_names_and_nothing_else(entity: str, measure: str) -> None:
    within = {window: features._seen(entity, measure, window) for window in WINDOW_NAMES}
    possible = {window for window, feature in within.items() if computes(has_seen, feature)}
    assert possible == named(SEEN).get((entity, measure), set())


@pytest.mark.parametrize("measure", features._BECAME)
@pytest.mark.parametrize("entity", CHANGED_KINDS)
def test_what_became_of_transactions_is_what_the_page_names_and_nothing_else(entity: str, measure: str) -> None:
    within = {window: features._risk(entity, measure, window) for window in WINDOW_NAMES}
    possible = {window for window, feature in within.items() if computes(has_become, feature)}
    assert possible == named(BECAME).get((entity, measure), set())


def computes(value_of, feature: Feature) -> bool:
    """Whether there is a value; what can't be had is a ValueError."""
    try:
        value = value_of(feature)
    except ValueError:
        return False
    assert value >= 0, feature.name
    return True
