"""What a running system has seen of each feature: ages and missing values, from the latest evidence."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson
from aiokafka.structs import ConsumerRecord

from assay.deploy.feature_map import Seen
from assay.deploy.rebuild_log import Log
from assay.schemas.evidence import is_change
from assay.streams.kafka import client_options
from assay.streams.reading import partitions_of
from assay.streams.settings import Settings
from assay.tables.features import FEATURES, Origin, features_digest

ALWAYS_CURRENT = ("event", "profile")  # as of the transaction itself


@dataclass
class Tally:
    """Counts evidence records.

    Attributes:
        records: of decisions made from this list of features.
        others: of another list.
    """

    records: int = 0
    others: int = 0
    _rows: list[list[float | None]] = field(default_factory=list)
    _oldest_ms: dict[str, float] = field(default_factory=dict)

    def add(self, records: Sequence[ConsumerRecord]) -> None:
        """Records of the evidence topic; what is none of a decision is passed over."""
        digest = features_digest()
        for record in records:
            if record.value is None or is_change(record.headers):
                continue
            evidence = orjson.loads(record.value)
            if evidence["features_digest"] != digest:
                self.others += 1
                continue
            self.records += 1
            self._rows.append(evidence["features"])
            for source, age_ms in evidence["ages_ms"].items():
                if age_ms is not None:
                    self._oldest_ms[source] = max(age_ms, self._oldest_ms.get(source, age_ms))

    def seen(self) -> list[Seen] | None:
        """By feature; None where there is no evidence."""
        if not self._rows:
            return None
        values = np.array(self._rows, np.float32)  # null is NaN
        unavailable = np.isnan(values).mean(axis=0)
        found = []
        for column, feature in enumerate(FEATURES):
            source = feature.source.value
            # A batch feature has an age of its own: others of the same row may have been loaded at another time.
            told = feature.name if feature.source is Origin.BATCH else source
            oldest_ms = 0.0 if source in ALWAYS_CURRENT else self._oldest_ms.get(told)
            absent, never = (values[:, column] == np.float32(value) for value in (feature.absent, feature.never))
            age_s = None if oldest_ms is None else oldest_ms / 1000
            found.append(Seen(age_s, float(unavailable[column]), float(absent.mean()), float(never.mean())))
        return found


async def tally(settings: Settings, last: int) -> Tally:
    """The latest `last` records of evidence, as many of each partition. Raises ServiceError where Kafka can't be read."""
    partitions = await partitions_of(client_options(settings), settings.evidence)
    counted = Tally()
    async with Log.of(settings) as log:
        for partition in range(partitions):
            first, end = await log.bounds(settings.evidence, partition)
            async for records in log.records(settings.evidence, partition, max(first, end - last // partitions), end):
                counted.add(records)
    return counted
