"""The feature list as rows to be shown: one for each feature, and how it is written for people and for machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from assay.tables.features import DAY, FEATURES, HOUR, MINUTE, WINDOW_NAMES, Feature

NOTHING = "-"
MOST_COVERAGE_APART = 0.25  # of all: more says that models were trained with other values than they are served with


@dataclass(frozen=True, slots=True)
class Seen:
    """What a running system has seen of one feature.

    Attributes:
        age_s: of its source, of a batch feature its own; the oldest that a decision was made from, None where it was never
            read.
        unavailable, absent, never: shares of the decisions; a value that has no declared form of its own counts as the first.
    """

    age_s: float | None
    unavailable: float
    absent: float
    never: float

    @property
    def missing(self) -> float:
        """Share of the decisions that were made without a value."""
        return self.unavailable + self.absent


def machine_row(feature: Feature, seen: Seen | None) -> dict[str, Any]:
    """For JSON: seconds and numbers, null where there is none."""
    return {
        "name": feature.name,
        "measures": feature.measures,
        "entity": feature.entity,
        "window_s": feature.window_s,
        "source": feature.source.value,
        "allowed_age_s": feature.allowed_age_s,
        "sign": feature.sign,
        "absent": _number(feature.absent),
        "never": _number(feature.never),
        "for_models": feature.for_models,
        "seen_age_s": None if seen is None else seen.age_s,
        "share_missing": None if seen is None else round(seen.missing, 6),
        "share_never": None if seen is None else round(seen.never, 6),
    }


def differing_coverage(learnt: Mapping[str, float], seen: Sequence[Seen]) -> list[str]:
    """Batch features that models met far more, or far less, often than decisions do now. `learnt`: of the bundle's manifest."""
    said = []
    for feature, one in zip(FEATURES, seen, strict=True):
        served = 1 - one.missing - one.never
        if feature.name in learnt and abs(served - learnt[feature.name]) > MOST_COVERAGE_APART:
            met = f"{learnt[feature.name]:.0%} of what the models learnt from"
            said.append(f"{feature.name}: {served:.0%} of these decisions had a value, and {met}")
    return said


def feature_rows() -> list[list[str]]:
    """(name, entity, window, source, allowed age, default) of every feature, for people."""
    return [
        [
            feature.name,
            feature.entity,
            window(feature),
            feature.source.value,
            span(feature.allowed_age_s),
            default(feature),
        ]
        for feature in FEATURES
    ]


def window(feature: Feature) -> str:
    """Its window, as its name has it."""
    return NOTHING if feature.window_s is None else WINDOW_NAMES[feature.window_s]


def span(seconds: float) -> str:
    """A time in the largest unit that it is at least two of, or exactly one.

    >>> span(0), span(60), span(5400), span(2 * 86400), span(-3)
    ('0', '1 min', '1.5 h', '2 d', '-3 s')
    """
    for unit, size in (("d", DAY), ("h", HOUR), ("min", MINUTE)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return "0" if seconds == 0 else f"{seconds:.3g} s"


def default(feature: Feature) -> str:
    """What stands for a value that is not there: absent, then never; unavailable is never a number."""
    declared = (("absent", feature.absent), ("never", feature.never))
    return ", ".join(f"{name} {value:g}" for name, value in declared if not isnan(value)) or NOTHING


def _number(value: float) -> float | None:
    return None if isnan(value) else value
