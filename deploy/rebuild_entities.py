"""What `assay rebuild entities` does: empties the entity windows in Redis, and lets them see all transactions again.

It reads as the stream does (refused records and repeats are not observed), in append order across partitions, up to where the
group goes on: what comes after, workers observe themselves.
"""

import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from assay.agents.append_order import AppendOrder, Partitions
from assay.agents.rebuild import Counts, Refold
from assay.deploy.progress_bars import Report
from assay.deploy.rebuild_log import Log, Span, Until, dead_letters, has_dead_letter, spans
from assay.schemas.errors import ServiceError
from assay.schemas.limits import MAX_BATCH_TRANSACTIONS
from assay.schemas.mapping_file import load_mapping
from assay.schemas.source import SourceTopic
from assay.streams.settings import Settings
from assay.streams.topics import ensure_topics
from assay.tables.batch_rows import BatchRows
from assay.tables.entities import Entities
from assay.tables.entity_layout import LAYOUT_VERSION
from assay.tables.events import Events
from assay.tables.key_marks import KeyMarks
from assay.tables.keyspace import Part
from assay.tables.partition_state import STATE_KEY, PartitionState
from assay.tables.profile import ROW_BYTES
from assay.tables.rates import SHIPPED_RATES, Rates
from assay.tables.redis_link import OUTAGES, RedisLink
from assay.tables.redis_sweep import sweep
from assay.tables.store import RowStore

UNHURRIED_S = 30.0  # for one micro-batch


@dataclass(frozen=True, slots=True)
class RebuiltEntities:
    """What was found and done: keys that were there before, transactions observed, and what was read of each partition.

    batch_rows: of batch features that were written under another ASSAY_HASH_KEY, and are deleted since nobody can read them.
    """

    keys: int
    batch_rows: int
    observed: int
    counts: Counts
    spans: Sequence[Span]


async def rebuild_entities(settings: Settings, *, dry_run: bool, report: Report) -> RebuiltEntities:
    """Raises AssayError: workers are running, Kafka or Redis fails, or the group's offset lies outside of the topic."""
    topics = await ensure_topics(settings)
    source = topics.transactions
    async with Log.of(settings) as log, _entities(settings, source) as entities:
        await log.check_nobody_works()
        wanted = await spans(log, await _states(log, settings, source, report), source, Until.COMMIT)
        keys, batch_rows = await _sweep(settings, dry_run=dry_run, report=report)
        if not dry_run:
            await entities.start()
        counts, observed = Counts(), 0
        with tempfile.TemporaryDirectory(prefix="assay-rebuild-") as folder:
            store = RowStore(Path(folder), ROW_BYTES)
            try:
                rates = Rates.load(settings.rates or SHIPPED_RATES)
                refold = Refold(
                    store,
                    rates,
                    settings.digests(),
                    source,
                    {span.partition: span.end for span in wanted},
                    mapped=load_mapping(settings.mapping),
                )
                async for found, events, partitions in _in_append_order(log, settings, refold, wanted, report):
                    counts += found
                    observed += len(events)
                    if not dry_run:
                        await _observe(entities, events, partitions)
            finally:
                store.close()
        if not dry_run:
            await log.check_nobody_works()  # nor has begun to meanwhile
    return RebuiltEntities(keys, batch_rows, observed, counts, wanted)


@asynccontextmanager
async def _entities(settings: Settings, source: SourceTopic) -> AsyncIterator[Entities]:
    """Not yet connected: what is there may be under another key until it is swept."""
    entities = Entities(
        settings.redis_url.get_secret_value(),
        prefix=settings.entity_prefix,
        shards=settings.redis_shards,
        deadline=UNHURRIED_S,
        source=source.id,
        fingerprint=settings.digests().fingerprint,
        beside=(),
    )
    try:
        yield entities
    finally:
        await entities.close()


async def _states(log: Log, settings: Settings, source: SourceTopic, report: Report) -> Mapping[int, PartitionState | None]:
    """What the changelog says of partitions that the group has no offset of (any more)."""
    states: dict[int, PartitionState | None] = dict.fromkeys(range(source.partitions))
    for partition in sorted(states.keys() - (await log.committed()).keys()):
        report("changelog", partition, source.partitions)
        async for records in log.all_records(settings.changelog, partition):
            for record in records:
                if record.key == STATE_KEY and record.value is not None:
                    states[partition] = PartitionState.decode(record.value)
    return states


async def _sweep(settings: Settings, *, dry_run: bool, report: Report) -> tuple[int, int]:
    """Delete windows and what says how far they are, whatever the number of shards was, and batch features under another key.

    Returns how many keys there were of both.
    """
    link, keyspace = RedisLink(settings.redis_url.get_secret_value()), settings.keyspace()

    async def emptied(part: Part, pattern: str) -> int:
        counts = []
        for name in (pattern, f"key:{part.name.lower()}"):  # the mark last: it tells whose the rows are that are left
            wanted = f"{{{keyspace.prefix}:*}}:{name}"
            counts.append(await sweep(link, wanted, delete=not dry_run, found=lambda count: report("emptying", count, count)))
        return counts[0]

    try:
        await link.connect()
        ours = (await KeyMarks(keyspace, Part.BATCH).look(link))[Part.BATCH] <= {keyspace.fingerprint}
        keys = await emptied(Part.WINDOWS, f"{LAYOUT_VERSION}:*")
        batch_rows = 0 if ours else await emptied(Part.BATCH, BatchRows.marker.decode() + "[a-z]????????")
        return keys, batch_rows
    except OUTAGES as error:
        raise link.start_error(error) from error
    finally:
        await link.disconnect()


async def _in_append_order(
    log: Log, settings: Settings, refold: Refold, wanted: Sequence[Span], report: Report
) -> AsyncIterator[tuple[Counts, Events, Partitions]]:
    """(counts, events, their partitions) of some records at a time, those that are new transactions."""
    topic, of = settings.transactions, {span.partition: span for span in wanted}
    letters = {span.partition: await dead_letters(log, settings, span.partition, span.first, span.end) for span in wanted}
    order, done, total = AppendOrder(of), 0, sum(span.end - span.first for span in wanted)
    log.begin(topic, {span.partition: span.first for span in wanted})
    while not order.ended:
        partition = order.behind
        records, counts = await log.some(topic, partition, of[partition].end), Counts()
        if records:
            folded = await refold.fold(records, partial(has_dead_letter, letters[partition]))
            counts = Counts(folded.transactions, len(records) - folded.transactions - folded.tombstones)
            order.give(partition, folded.events, max(record.timestamp for record in records))
            done += len(records)
            report("observing", done, total)
        else:
            order.end(partition)
        yield counts, *order.take()


async def _observe(entities: Entities, events: Events, partitions: Partitions) -> None:
    for start in range(0, len(events), MAX_BATCH_TRANSACTIONS):
        some = slice(start, start + MAX_BATCH_TRANSACTIONS)
        answer = await entities.observe(events[some], partitions[some])
        if not answer.available:
            raise ServiceError(
                f"Redis did not take a micro-batch: {answer.reason}",
                expected=f"that within {UNHURRIED_S:.0f} s",
                mend="see what ails Redis, and run it again: until then windows are incomplete",
            )
