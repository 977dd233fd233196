"""Which windows of a row the feature list asks for, and which columns they go to: a plan, as arrays, for the compiled code.

A window is whole tiles, the part of the oldest one that is still inside and, where it lies back by the label delay, the part of
the newest that is in it already. Crowds know when each was last seen to the finest tile, whatever the window.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from assay.tables.entity_layout import ABSENT, CROWDS, CROWDS_OF, REACH_S, TILE_S
from assay.tables.features import ENTITIES, ENTITY_FEATURES, FEATURES, LABEL_DELAY_S, PROFILE_FEATURES, Feature

WINDOWS = FEATURES[PROFILE_FEATURES : PROFILE_FEATURES + ENTITY_FEATURES]
TALLIES = ("count", "sum", "small")

# One line for each ring and window: which columns get its tallies (-1: none).
SPAN = np.dtype([("kind", "<i8"), ("ring", "<i8"), ("back", "<i8"), ("delay", "<i8"), ("columns", "<i8", (len(TALLIES),))])
# One line for each crowd and window: back in finest tiles.
GATHERING = np.dtype([("kind", "<i8"), ("crowd", "<i8"), ("back", "<i8"), ("column", "<i8")])


class Plan(NamedTuple):
    """Spans and gatherings, kind after kind; and where each kind's begin, int64 (6,) each."""

    spans: npt.NDArray[np.void]
    gatherings: npt.NDArray[np.void]
    first_span: npt.NDArray[np.int64]
    first_gathering: npt.NDArray[np.int64]


def plan(features: Sequence[Feature] = WINDOWS) -> Plan:
    """How the windows of these features, one a column, are read. Raises ValueError for one that no row has."""
    asked = [(ENTITIES.index(f.entity), f, column) for column, f in enumerate(features)]
    spans, gatherings = [], []
    totals = [(kind, *_span(f), f, column) for kind, f, column in asked if f.measure not in CROWDS]
    for key, group in groupby(sorted(totals, key=lambda total: total[:4]), lambda total: total[:4]):
        columns = [-1] * len(TALLIES)
        for *_, feature, column in group:
            columns[_tally(feature)] = column
        spans.append((*key, tuple(columns)))
    for kind, feature, column in asked:
        if feature.measure in CROWDS:
            gatherings.append((kind, _crowd(kind, feature), _window_s(feature) // TILE_S[0], column))
    ordered, gathered = np.array(spans, SPAN), np.array(gatherings, GATHERING)
    gathered = gathered[np.argsort(gathered["kind"], kind="stable")]
    kinds = np.arange(len(ENTITIES) + 1)
    first = (np.searchsorted(ordered["kind"], kinds), np.searchsorted(gathered["kind"], kinds))
    return Plan(ordered, gathered, *first)


def _window_s(feature: Feature) -> int:
    if feature.window_s is None:
        raise ValueError(f"{feature.name} has no window")
    return feature.window_s


def _span(feature: Feature) -> tuple[int, int, int]:
    """(ring, tiles back, tiles of delay) of the finest ring that reaches back so far."""
    window, delay = _window_s(feature), LABEL_DELAY_S if feature.measure == "matured" else 0
    for ring, (tile, reach) in enumerate(zip(TILE_S, REACH_S, strict=True)):
        if window + delay <= reach and window % tile == 0:
            return ring, window // tile, delay // tile
    raise ValueError(f"{feature.name}: no tiles of an entity are kept that a window of {window} s could be read from")


def _tally(feature: Feature) -> int:
    measure = "count" if feature.measure == "matured" else feature.measure
    if measure not in TALLIES:
        raise ValueError(f"{feature.name}: expected one of {', '.join((*TALLIES, *CROWDS, 'matured'))}; got {measure!r}")
    return TALLIES.index(measure)


def _crowd(kind: int, feature: Feature) -> int:
    crowd = CROWDS.index(feature.measure)
    if not CROWDS_OF[kind, crowd]:
        raise ValueError(f"{feature.name}: an entity has no crowd of itself")
    return crowd


PLAN = plan()


def nothing_seen(n: int, windows: int = ENTITY_FEATURES) -> npt.NDArray[np.float32]:
    """Windows float32 (n, windows) of transactions without any entity."""
    return np.full((n, windows), ABSENT, np.float32)


def columns_of(entity: str) -> npt.NDArray[np.int64]:
    """Which of the windows are those of one kind of entity."""
    return np.array([column for column, feature in enumerate(WINDOWS) if feature.entity == entity], np.int64)
