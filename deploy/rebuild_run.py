"""What `assay rebuild` does: makes sure that nobody works on the profiles, reads, folds, compares, and publishes.

Nothing is written before everything is folded and compared, so one that is stopped until then has changed nothing. Then each
partition's new rows go between two marks in the changelog (`tables.changelog`): what was stopped between them, workers refuse
until it is run again.
"""

import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path

from assay.agents.rebuild import Counts, Difference, Refold, difference, first_mark, last_records, rows_to_publish
from assay.deploy.progress_bars import Report
from assay.deploy.rebuild_log import Log, Span, Until, dead_letters, has_dead_letter, spans
from assay.schemas.mapping_file import load_mapping
from assay.schemas.source import OutRecord
from assay.streams.ownership import owned_publishers
from assay.streams.settings import Settings
from assay.streams.topics import Topics, ensure_topics
from assay.tables.layouts import LAYOUTS
from assay.tables.profile import ROW_BYTES
from assay.tables.rates import SHIPPED_RATES, Rates
from assay.tables.store import RowStore

PUBLISHED_AT_ONCE = 2_000  # rows


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """One partition: what was folded, and how its rows differ from those that the changelog had."""

    span: Span
    counts: Counts
    difference: Difference


async def rebuild(settings: Settings, until: Until, *, dry_run: bool, report: Report) -> list[Rebuilt]:
    """Make the profiles of every partition anew. Missing topics are made, as a worker does.

    Args:
        until: up to where transactions are folded, which is where workers go on.
        dry_run: only say what would change.

    Raises AssayError: workers are running, Kafka fails, or the group's offset lies outside of the topic.
    """
    topics, rates = await ensure_topics(settings), Rates.load(settings.rates or SHIPPED_RATES)
    source = topics.transactions
    async with Log.of(settings) as log:
        await log.check_nobody_works()
        with _stores(settings.data_dir) as (before, after):
            for partition in range(source.partitions):
                await _read_changelog(log, settings.changelog, partition, before)
                report("reading", partition + 1, source.partitions)
            states = {partition: before.state(partition) for partition in range(source.partitions)}
            wanted = await spans(log, states, source, until)
            refold = Refold(
                after,
                rates,
                settings.digests(),
                source,
                {span.partition: span.end for span in wanted},
                mapped=load_mapping(settings.mapping),
            )
            counts = await _fold(log, settings, refold, wanted, report)
            rebuilt = [Rebuilt(s, counts[s.partition], difference(before, after, s.partition)) for s in wanted]
            if not dry_run:
                await log.check_nobody_works()
                await log.commit({span.partition: span.end for span in wanted if span.committed != span.end})
                await _publish(settings, topics, before, after, rebuilt, report)
    return rebuilt


@contextmanager
def _stores(folder: Path) -> Iterator[tuple[RowStore, RowStore]]:
    """What the changelog says and what the rebuild makes, on disk for as long as the block runs."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rebuild-", dir=folder) as name:
        before = RowStore(Path(name) / "before", ROW_BYTES, current=lambda row: row)  # whatever its layout
        after = RowStore(Path(name) / "after", ROW_BYTES, LAYOUTS.current)
        try:
            yield before, after
        finally:
            before.close()
            after.close()


async def _read_changelog(log: Log, changelog: str, partition: int, before: RowStore) -> None:
    async for records in log.all_records(changelog, partition):
        before.apply(partition, [(record.key, record.value) for record in records], records[-1].offset)


async def _fold(log: Log, settings: Settings, refold: Refold, wanted: Sequence[Span], report: Report) -> dict[int, Counts]:
    counts = {}
    done, total = 0, sum(span.end - span.first for span in wanted)
    for span in wanted:
        so_far = Counts()
        letters = await dead_letters(log, settings, span.partition, span.first, span.end)
        async for records in log.records(settings.transactions, span.partition, span.first, span.end):
            so_far += await refold.take(records, partial(has_dead_letter, letters))
            report("folding", done + records[-1].offset + 1 - span.first, total)
        done += span.end - span.first
        counts[span.partition] = so_far
    await refold.finish()
    return counts


async def _publish(
    settings: Settings, topics: Topics, before: RowStore, after: RowStore, rebuilt: Sequence[Rebuilt], report: Report
) -> None:
    """Claim the partitions as a worker does, which shuts out whoever still works unseen, and publish the rows."""
    parts = ownership, _, changelog = owned_publishers(settings, topics.max_bytes)
    try:
        for part in parts:
            await part.start()
        fences = await ownership.take([one.span.partition for one in rebuilt])
        name, done = secrets.token_hex(8), 0
        total = sum(one.difference.records for one in rebuilt)
        for one in rebuilt:
            partition = one.span.partition
            where = settings.changelog, partition
            for records in _in_parts(_new_changelog(settings, before, after, partition, name, fences[where] + 1)):
                await changelog.publish({where: records})
                done += len(records)
                report("publishing", min(done, total), total)
    finally:
        for part in parts:
            await part.close()


def _new_changelog(
    settings: Settings, before: RowStore, after: RowStore, partition: int, name: str, whole_since: int
) -> Iterator[OutRecord]:
    rows = rows_to_publish(before, after, settings.transactions, partition)
    return chain([first_mark(name, whole_since)], rows, last_records(after, partition, name, whole_since))


def _in_parts(records: Iterator[OutRecord]) -> Iterator[list[OutRecord]]:
    while part := list(islice(records, PUBLISHED_AT_ONCE)):
        yield part
