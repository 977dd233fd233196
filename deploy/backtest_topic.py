"""A history from topics: transactions, what was decided then, and what became of them, as the files that a backtest reads."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import orjson

from assay.deploy.progress_bars import Report
from assay.deploy.rebuild_log import Log
from assay.models.outcome_history import DAY_MS, MATURE_DAYS
from assay.schemas.decision import Action
from assay.schemas.decode import decode
from assay.schemas.errors import InputError
from assay.schemas.instant import Instant
from assay.schemas.outcome import Outcome, encode_outcome, outcome_of
from assay.schemas.transaction import Transaction
from assay.streams.kafka import client_options
from assay.streams.reading import partitions_of
from assay.streams.settings import Settings
from assay.tables.digests import OFFLINE
from assay.tables.outcomes import Heard, Known, label, with_heard

Name = tuple[str, str]  # user_id, transaction_id
_LABELS = {"fraud": "true", "genuine": "false"}


@contextmanager
def exported(settings: Settings, topic: str, since: datetime | None, report: Report) -> Iterator[tuple[Path, Path | None]]:
    """Files of the transactions of a topic, appended from `since` on, with labels; and of outcomes, if there are any.

    It ends where the topics end now. Records that are no transaction are left out. Raises InputError or ServiceError.
    """
    since_ms = None if since is None else int(since.replace(tzinfo=UTC).timestamp() * 1000)
    with tempfile.TemporaryDirectory(prefix="assay-backtest-") as folder:
        transactions, outcomes = Path(folder) / "transactions.jsonl", Path(folder) / "outcomes.jsonl"
        written = asyncio.run(_export(settings, topic, since_ms, transactions, outcomes, report))
        if not written:
            raise InputError(f"{topic} holds no transactions{' since then' if since else ''}", expected="at least one")
        yield transactions, outcomes if outcomes.stat().st_size else None


async def _export(
    settings: Settings, topic: str, since_ms: int | None, transactions: Path, outcomes: Path, report: Report
) -> int:
    options = client_options(settings)
    partitions = await partitions_of(options, topic)
    async with Log.of(settings) as log:
        with outcomes.open("wb") as file:
            known = await _outcomes(log, settings, since_ms, await partitions_of(options, settings.outcomes), file, report)
        declined = await _declined(log, settings, since_ms, await partitions_of(options, settings.decisions), report)
        mature_ms = time.time_ns() // 1_000_000 - MATURE_DAYS * DAY_MS
        written = 0
        with transactions.open("wb") as file:
            for partition in range(partitions):
                first, end = await log.bounds_since(topic, partition, since_ms)
                async for records in log.records(topic, partition, first, end):
                    report(f"partition {partition}", records[-1].offset + 1 - first, end - first)
                    for request in decode(records).requests:
                        transaction = request.transaction
                        name = transaction.user_id, transaction.transaction_id
                        said = label(known[name]) if name in known else None
                        _write(file, transaction, _label(said, name in declined, transaction.timestamp.ms <= mature_ms))
                        written += 1
    return written


async def _outcomes(
    log: Log, settings: Settings, since_ms: int | None, partitions: int, file: IO[bytes], report: Report
) -> dict[Name, Known]:
    """What was heard, by transaction; and into `file`, each as known when it was appended, which is when features saw it."""
    known: dict[Name, Known] = {}
    for partition in range(partitions):
        first, end = await log.bounds_since(settings.outcomes, partition, since_ms)
        async for records in log.records(settings.outcomes, partition, first, end):
            report("outcomes", records[-1].offset + 1 - first, end - first)
            for record in records:
                outcome = outcome_of(record)
                if isinstance(outcome, Outcome):
                    name = outcome.user_id, outcome.transaction_id
                    known[name] = with_heard(known.get(name, ()), Heard.of(outcome, OFFLINE))
                    appended = outcome.model_copy(update={"known_at": Instant(record.timestamp, 0)})
                    file.write(encode_outcome(appended) + b"\n")
    return known


async def _declined(log: Log, settings: Settings, since_ms: int | None, partitions: int, report: Report) -> set[Name]:
    """The transactions that were declined then."""
    declined = set()
    for partition in range(partitions):
        first, end = await log.bounds_since(settings.decisions, partition, since_ms)
        async for records in log.records(settings.decisions, partition, first, end):
            report("decisions", records[-1].offset + 1 - first, end - first)
            for record in records:
                decision = {} if record.value is None else orjson.loads(record.value)
                if decision.get("action") == Action.DECLINE:
                    declined.add((decision["user_id"], decision["transaction_id"]))
    return declined


def _label(said: str | None, declined: bool, mature: bool) -> str:
    """true, false, or "" where nobody knows.

    >>> _label("fraud", True, False), _label(None, True, True), _label(None, False, True), _label("disputed", False, True)
    ('true', '', 'false', '')
    """
    if said:
        return _LABELS.get(said, "")
    return "false" if mature and not declined else ""


def _write(file: IO[bytes], transaction: Transaction, fraud: str) -> None:
    written = transaction.model_dump_json(exclude_none=True).encode()
    file.write(written[:-1] + b',"fraud":"' + fraud.encode() + b'"}\n')
