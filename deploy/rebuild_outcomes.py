"""What `assay rebuild outcomes` does: empties what was learnt of outcomes in Redis, and learns it again from the topics.

Transactions are kept again with the verdicts that the decisions topic holds, then outcomes are applied up to where the group
goes on. An effect doesn't depend on order, so what comes out is what the stream had, for all that the topics still hold.
"""

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
import orjson
from aiokafka.structs import ConsumerRecord

from assay.agents.decided import undecided_rows
from assay.deploy.progress_bars import Report
from assay.deploy.rebuild_log import Log
from assay.schemas.decision import Action, Tier, decided_for
from assay.schemas.decode import decode
from assay.schemas.limits import MAX_CHANGES_A_CALL
from assay.schemas.mapping import Mapped
from assay.schemas.mapping_file import load_mapping
from assay.schemas.outcome import Outcome, outcome_of
from assay.streams.decision_reader import source_of
from assay.streams.kafka import client_options
from assay.streams.reading import partitions_of
from assay.streams.settings import Settings
from assay.streams.topics import ensure_topics
from assay.tables.digests import Digests
from assay.tables.encode import encode_events
from assay.tables.learned_rows import LearnedRows
from assay.tables.learning import Arrived, learn, own_verdicts, places_of
from assay.tables.rates import SHIPPED_RATES, Rates
from assay.tables.redis_link import OUTAGES, RedisLink
from assay.tables.redis_sweep import sweep
from assay.tables.risk_call import risk_library
from assay.tables.risk_layout import MARKER as RISK_MARKER
from assay.tables.transaction_index import ACTIONS, Decided, index_library
from assay.tables.transaction_index import MARKER as INDEX_MARKER

# `{prefix:shard}:` goes before.
SWEPT = RISK_MARKER.decode() + "[a-z]????????", INDEX_MARKER.decode() + "*", "learnt:*", "key:outcomes"
VERDICT = np.dtype([("offset", "<i8"), ("action", "u1"), ("tier", "u1"), ("score", "<f4")])
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


@dataclass(slots=True)
class RebuiltOutcomes:
    """Keys that were there before, transactions kept, and outcomes that were applied, unknown or invalid.

    A dry run keeps nothing that outcomes could find: it has only `read` them.
    """

    keys: int = 0
    kept: int = 0
    applied: int = 0
    unknown: int = 0
    invalid: int = 0
    read: int = 0


async def rebuild_outcomes(settings: Settings, *, dry_run: bool, report: Report) -> RebuiltOutcomes:
    """Raises AssayError: workers are running, or Kafka or Redis fails."""
    topics = await ensure_topics(settings)
    found = RebuiltOutcomes()
    async with Log.of(settings) as log, _redis(settings, topics.transactions.id, topics.outcomes_id) as (link, rows):
        await log.check_nobody_works()
        for pattern in SWEPT:
            wanted = f"{{{settings.entity_prefix}:*}}:{pattern}"
            found.keys += await sweep(link, wanted, delete=not dry_run, found=lambda count: report("emptying", count, count))
        await _keep(log, settings, None if dry_run else rows, topics.transactions.partitions, report, found)
        await _learn(log, settings, None if dry_run else rows, report, found)
        if not dry_run:
            await log.check_nobody_works()  # nor has begun to meanwhile
    return found


@asynccontextmanager
async def _redis(settings: Settings, source: str, outcomes: str) -> AsyncIterator[tuple[RedisLink, LearnedRows]]:
    """Connected; whatever Redis refuses is said in our words."""
    link = RedisLink(settings.redis_url.get_secret_value(), (risk_library(), index_library()))
    expire_s = int(settings.outcome_days * DAY_MS / 1000)
    rows = LearnedRows(link, settings.keyspace(source), settings.keyspace(outcomes), settings.digests(), expire_s)
    try:
        await rows.connect()
        yield link, rows
    except OUTAGES as error:
        raise link.start_error(error) from error
    finally:
        await rows.close()


async def _keep(
    log: Log, settings: Settings, rows: LearnedRows | None, partitions: int, report: Report, found: RebuiltOutcomes
) -> None:
    """Transactions that have their own decision, and are not older than outcomes find them."""
    rates, digests = Rates.load(settings.rates or SHIPPED_RATES), settings.digests()
    mapped = load_mapping(settings.mapping)
    now_ms = time.time() * 1000
    for partition in range(partitions):
        report("transactions", partition, partitions)
        verdicts = await _verdicts(log, settings, partition)
        async for records in log.all_records(settings.transactions, partition):
            for expire_s, young in by_expiry(records, now_ms, settings.outcome_days * DAY_MS):
                decided = decided_among(young, verdicts, rates, digests, mapped)
                found.kept += len(decided)
                for start in range(0, len(decided) if rows is not None else 0, MAX_CHANGES_A_CALL):
                    assert rows is not None
                    some = decided[start : start + MAX_CHANGES_A_CALL]
                    await rows.keep(some, own_verdicts(some), expire_s)


def by_expiry(records: Sequence[ConsumerRecord], now_ms: float, kept_ms: float) -> Iterator[tuple[int, list[ConsumerRecord]]]:
    """Those that are still kept, in their order, by how many seconds more: at most an hour more than what is left of it."""

    def hours(record: ConsumerRecord) -> int:
        return max(0, int((now_ms - record.timestamp) // HOUR_MS))

    young = (record for record in records if now_ms - record.timestamp <= kept_ms)
    for age, those in groupby(young, hours):
        yield max(1, int((kept_ms - age * HOUR_MS) / 1000)), list(those)


async def _verdicts(log: Log, settings: Settings, partition: int) -> npt.NDArray[np.void]:
    """The first decisions of a partition's transactions, VERDICT (n,), by source offset."""
    parts = [np.zeros(0, VERDICT)]
    async for records in log.all_records(settings.decisions, partition):
        parts.append(np.array([row for record in records if (row := _verdict(record)) is not None], VERDICT))
    verdicts = np.concatenate(parts)
    return verdicts[np.unique(verdicts["offset"], return_index=True)[1]]


def _verdict(record: ConsumerRecord) -> tuple[int, int, int, float] | None:
    """None for a fence, and for a repeat of another transaction's decision."""
    source = source_of(record)
    if record.value is None or source is None or decided_for(record.value) != source:
        return None
    decision = orjson.loads(record.value)
    score = decision["fraud_score"]
    action, tier = ACTIONS.index(Action(decision["action"])), Tier(decision["tier"]).rank
    return source.offset, action, tier, np.nan if score is None else score


def decided_among(
    records: Sequence[ConsumerRecord],
    verdicts: npt.NDArray[np.void],
    rates: Rates,
    digests: Digests,
    mapped: Mapped | None = None,
) -> Decided:
    """Those of some records that have a decision of their own, DECIDED (n,), in their order."""
    requests = decode(records, mapped=mapped).requests
    offsets = np.array([request.source.offset for request in requests], np.int64)
    places = np.searchsorted(verdicts["offset"], offsets)
    has = places < len(verdicts)
    has[has] = verdicts["offset"][places[has]] == offsets[has]
    requests = [requests[i] for i in np.flatnonzero(has).tolist()]
    events = encode_events(
        [request.transaction for request in requests],
        [request.source.offset for request in requests],
        [request.appended_ms for request in requests],
        rates,
        digests,
    )
    decided = undecided_rows(requests, events)
    for name in ("action", "tier", "score"):
        decided["entry"][name] = verdicts[name][places[has]]
    return decided


async def _learn(log: Log, settings: Settings, rows: LearnedRows | None, report: Report, found: RebuiltOutcomes) -> None:
    """All outcomes up to the group's offsets; a dry run counts them."""
    committed = await log.committed(settings.outcomes)
    for partition in range(await partitions_of(client_options(settings), settings.outcomes)):
        report("outcomes", partition, len(committed))
        first, _ = await log.bounds(settings.outcomes, partition)
        async for records in log.records(settings.outcomes, partition, first, committed.get(partition, first)):
            for start in range(0, len(records), MAX_CHANGES_A_CALL):
                await _apply(records[start : start + MAX_CHANGES_A_CALL], rows, found)


async def _apply(records: Sequence[ConsumerRecord], rows: LearnedRows | None, found: RebuiltOutcomes) -> None:
    said = [(record, outcome_of(record)) for record in records if record.value is not None]
    arrived = [Arrived(record.partition, record.offset, what) for record, what in said if isinstance(what, Outcome)]
    found.invalid += len(said) - len(arrived)
    if rows is None:
        found.read += len(arrived)
        return
    places = places_of(arrived, rows.keyspace, rows.digests)
    learnt = learn(arrived, places, await rows.find(places), rows.digests)
    await rows.count_outcomes(learnt.changes)
    await rows.remember(learnt.kept)
    found.unknown += len(learnt.unknown)
    found.applied += len(arrived) - len(learnt.unknown)
