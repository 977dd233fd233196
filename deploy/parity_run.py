"""What `assay parity` does: reads a run from its topics, replays it, compares."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import orjson
from aiokafka.structs import ConsumerRecord

from assay.agents.parity import Compared, Logged, OrderEffect, Replay, compare_entities, compare_profiles, order_effect
from assay.agents.rebuild import Refold
from assay.agents.risk_parity import LoggedChanges, compare_risk
from assay.deploy.progress_bars import Report
from assay.deploy.rebuild_log import Log, dead_letters, has_dead_letter
from assay.schemas.errors import ServiceError
from assay.schemas.evidence import ChangeEvidence, stream_of
from assay.schemas.mapping_file import load_mapping
from assay.schemas.source import Source, SourceTopic
from assay.streams.kafka import client_options
from assay.streams.reading import partitions_of
from assay.streams.settings import Settings
from assay.tables.features import features_digest
from assay.tables.profile import ROW_BYTES
from assay.tables.rates import SHIPPED_RATES, Rates
from assay.tables.store import RowStore


@dataclass(frozen=True, slots=True)
class Parity:
    """What came of it; `order` only where it was asked for."""

    profiles: Compared
    entities: Compared
    risk: Compared
    of_other_features: int
    order: OrderEffect | None

    @property
    def says_little(self) -> bool:
        """Whether most evidence could not be compared, since it is of another feature list."""
        return self.of_other_features > self.profiles.compared

    @property
    def differs(self) -> bool:
        return bool(self.profiles.differ or self.entities.differ or self.risk.differ)


async def parity(settings: Settings, *, order: bool, report: Report) -> Parity:
    """Raises ServiceError, also where the transactions topic no longer has its beginning."""
    partitions = await partitions_of(client_options(settings), settings.transactions)
    rates, digests = Rates.load(settings.rates or SHIPPED_RATES), settings.digests()
    async with Log.of(settings) as log:
        logged, changes, others = await _evidence(log, settings, partitions, report)
        ends = {partition: (await _whole(log, settings, partition)) for partition in range(partitions)}
        with tempfile.TemporaryDirectory(prefix="assay-parity-") as folder:
            store = RowStore(Path(folder), ROW_BYTES)
            try:
                topic = SourceTopic(settings.transactions, "", partitions)
                replay = Replay(
                    settings.transactions,
                    Refold(store, rates, digests, topic, ends, mapped=load_mapping(settings.mapping)),
                    logged,
                )
                await _replay(log, settings, replay, ends, report)
            finally:
                store.close()
    run = replay.run()
    report("comparing", 0, 1)
    effect = order_effect(run.events) if order else None
    return Parity(compare_profiles(run), compare_entities(run), compare_risk(run, changes, digests), others, effect)


async def _whole(log: Log, settings: Settings, partition: int) -> int:
    """The end of a partition of transactions that has its beginning."""
    first, end = await log.bounds(settings.transactions, partition)
    if first:
        raise ServiceError(
            f"{settings.transactions}/{partition}: its first {first} records have expired, and features depend on them",
            expected="a topic from its beginning",
            mend="compare a run whose transactions are all there",
        )
    return end


async def _evidence(
    log: Log, settings: Settings, partitions: int, report: Report
) -> tuple[dict[Source, Logged], LoggedChanges, int]:
    logged: dict[Source, Logged] = {}
    changes, digest, others = LoggedChanges(), features_digest(), 0
    for partition in range(partitions):
        report("evidence", partition, partitions)
        async for records in log.all_records(settings.evidence, partition):
            others += _note(records, digest, logged, changes)
    return logged, changes, others


def _note(records: Sequence[ConsumerRecord], digest: str, logged: dict[Source, Logged], changes: LoggedChanges) -> int:
    others = 0
    for record in records:
        if record.value is None:
            continue
        if (stream := stream_of(record.headers)) is not None:
            changes.take(stream, ChangeEvidence.model_validate_json(record.value))
            continue
        evidence = orjson.loads(record.value)
        if evidence["features_digest"] != digest:
            others += 1
            continue
        features = np.array(evidence["features"], np.float32)  # null is NaN
        logged.setdefault(
            Source(**evidence["source"]), Logged(features, evidence["entity_sequences"], evidence["risk_sequences"])
        )
    return others


async def _replay(log: Log, settings: Settings, replay: Replay, ends: dict[int, int], report: Report) -> None:
    done, total = 0, sum(ends.values())
    for partition, end in ends.items():
        letters = await dead_letters(log, settings, partition, 0, end)
        async for records in log.records(settings.transactions, partition, 0, end):
            await replay.take(records, partial(has_dead_letter, letters))
            report("replaying", done + records[-1].offset + 1, total)
        done += end
