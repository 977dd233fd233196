"""How old what features are read from is: for the evidence of each decision, and as gauges beside the ages that are allowed.

event, profile   0: both are as of the transaction itself
entity           how long the oldest observation has waited that Redis has not taken yet
batch            since the newest as-of time that was read
risk             how long the oldest outcome has waited that was read and not applied
"""

from collections.abc import Mapping

import numpy as np

from assay.streams.metrics import Metrics
from assay.tables.batch_rows import BATCH_LIST, COLUMNS
from assay.tables.entities import Entities
from assay.tables.entity_answer import EntityAnswer
from assay.tables.features import FEATURES, Origin

RESULTS = ("value", "too_old", "not_loaded", "unavailable")  # too_old: or not known then; not_loaded: or no such entity


def ages_of_each(windows: EntityAnswer, waiting_s: Mapping[str, float]) -> list[dict[str, float]]:
    """Of each of n transactions, how old what was read for it is: by source, and by batch feature, milliseconds.

    waiting_s: by source, "entity" and "risk": how long the oldest waits that Redis has not taken. Of what has its own as-of
    time the oldest value counts, before the transaction's event time. Without Redis: nothing.
    """
    if not windows.available:
        return [{} for _ in windows.values]
    read = {Origin.ENTITY.value, *windows.row_sequences}
    waiting = {source: 1000.0 * seconds for source, seconds in waiting_s.items() if source in read}
    told = {source: ages.tolist() for source, ages in windows.ages_ms.items()}
    return [
        waiting | {source: ages[i] for source, ages in told.items() if ages[i] == ages[i]} for i in range(len(windows.values))
    ]


class BatchReads:
    """Counts, by batch feature, what decisions were made from."""

    def __init__(self, metrics: Metrics) -> None:
        self._features = [
            (COLUMNS.start + column, feature, [metrics.batch_reads.labels(feature.name, result) for result in RESULTS])
            for column, feature in enumerate(BATCH_LIST)
        ]

    def count(self, windows: EntityAnswer) -> None:
        """The reads of one micro-batch."""
        for column, feature, counters in self._features:
            values = windows.values[:, column]
            ages_ms = windows.ages_ms.get(feature.name, np.full(len(values), np.nan))
            in_time = (ages_ms >= 0) & (ages_ms <= 1000 * feature.allowed_age_s)
            results = np.select([in_time, ~np.isnan(ages_ms), ~np.isnan(values)], range(3), 3)
            for counter, number in zip(counters, np.bincount(results, minlength=len(RESULTS)).tolist(), strict=True):
                counter.inc(number)


def declare_allowed(metrics: Metrics) -> None:
    """Set the ages that the list of features allows: of a source the least, and of each batch feature."""
    allowed: dict[str, int] = {}
    for feature in FEATURES:
        if feature.source is Origin.BATCH:
            metrics.batch_allowed_age.labels(feature.name).set(feature.allowed_age_s)
        source = feature.source.value
        allowed[source] = min(feature.allowed_age_s, allowed.get(source, feature.allowed_age_s))
    for source, seconds in allowed.items():
        metrics.feature_allowed_age.labels(source).set(seconds)


def watch(metrics: Metrics, entities: Entities, waiting_s: Mapping[str, float], now_ms: float) -> None:
    """Bring the gauges up to date. waiting_s: ages of other sources, such as "risk". What was never read has no age."""
    ages = {"event": 0.0, "profile": 0.0, "entity": entities.behind_s} | dict(waiting_s)
    for name, as_of_ms in entities.newest_ms.items():
        metrics.batch_age.labels(name).set((now_ms - as_of_ms) / 1000)
    if entities.newest_ms:
        ages["batch"] = (now_ms - max(entities.newest_ms.values())) / 1000
    for source, seconds in ages.items():
        metrics.feature_age.labels(source).set(seconds)
    metrics.unreadable_rows.set(entities.unreadable_rows)
