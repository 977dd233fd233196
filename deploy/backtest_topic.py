"""A history from topics: transactions, what was decided then, and what became of them, as the files that a backtest reads."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import orjson

from assay.deploy.progress_bars import Report
from assay.deploy.rebuild_log import Log
from assay.models.outcome_history import DAY_MS, MATURE_DAYS, read_outcomes
from assay.models.table_file import ENDINGS
from assay.schemas.decode import decode
from assay.schemas.errors import InputError, NoTopic
from assay.schemas.instant import MAX_EPOCH_MS, Instant
from assay.schemas.mapping import Mapped
from assay.schemas.mapping_file import load_mapping
from assay.schemas.outcome import Outcome, encode_outcome, outcome_of
from assay.schemas.transaction import Transaction
from assay.streams.kafka import client_options
from assay.streams.reading import partitions_of
from assay.streams.settings import Settings
from assay.tables.digests import OFFLINE
from assay.tables.outcomes import Heard, Known, label, with_heard

Name = tuple[str, str]  # user_id, transaction_id
_LABELS = {"fraud": "true", "genuine": "false"}


@dataclass(frozen=True, slots=True)
class Asked:
    """Of which history.

    Attributes:
        since, until: its days (UTC): records appended and payments made from the one on, and payments made before the other.
        outcomes: a file of outcomes, in place of the topic.
    """

    topic: str
    since: datetime | None = None
    until: datetime | None = None
    outcomes: Path | None = None

    @property
    def since_ms(self) -> int | None:
        return _epoch_ms(self.since)

    @property
    def until_ms(self) -> int | None:
        return _epoch_ms(self.until)


@contextmanager
def exported(settings: Settings, asked: Asked, report: Report) -> Iterator[tuple[Path, Path | None]]:
    """Files of the transactions of a topic, with labels, and of outcomes, where any is of these.

    It ends where the topics end now. Records that are no transaction are left out. Raises InputError or ServiceError.
    """
    with tempfile.TemporaryDirectory(prefix="assay-backtest-") as folder:
        transactions, outcomes = Path(folder) / "transactions.jsonl", asked.outcomes or Path(folder) / "outcomes.jsonl"
        written, spoken_of = asyncio.run(_export(settings, asked, transactions, outcomes, report))
        if not written:
            among = " between these days" if asked.since or asked.until else ""
            raise InputError(f"{asked.topic} holds no transactions{among}", expected="at least one")
        yield transactions, outcomes if asked.outcomes or spoken_of else None


async def _export(settings: Settings, asked: Asked, transactions: Path, outcomes: Path, report: Report) -> tuple[int, int]:
    """How many transactions were written, and of how many of them something was heard."""
    options = client_options(settings)
    partitions = await _partitions(options, asked.topic)
    written = spoken_of = 0
    async with Log.of(settings) as log:
        if asked.outcomes is None:
            with outcomes.open("wb") as file:
                of_topic = await partitions_of(options, settings.outcomes)
                known = await _outcomes(log, settings, asked.since_ms, of_topic, file, report)
        else:
            known = known_of(read_outcomes(asked.outcomes))
        declined = await _declined(log, settings, asked.since_ms, await partitions_of(options, settings.decisions), report)
        mature_ms = time.time_ns() // 1_000_000 - MATURE_DAYS * DAY_MS
        with transactions.open("wb") as file:
            async for transaction in _transactions(log, asked, partitions, load_mapping(settings.mapping), report):
                name = transaction.user_id, transaction.transaction_id
                said = label(known[name]) if name in known else None
                _write(file, transaction, _label(said, name in declined, transaction.timestamp.ms <= mature_ms))
                written += 1
                spoken_of += name in known
    return written, spoken_of


async def _partitions(options: Mapping[str, Any], topic: str) -> int:
    try:
        return await partitions_of(options, topic)
    except NoTopic:
        raise InputError(
            f"{topic} is neither a file nor a topic",
            expected=f"a topic, or a file that ends in {', '.join(ENDINGS)}",
            mend="correct its name, or say where the file lies",
        ) from None


async def _transactions(
    log: Log, asked: Asked, partitions: int, mapped: Mapped | None, report: Report
) -> AsyncIterator[Transaction]:
    until_ms = MAX_EPOCH_MS if asked.until_ms is None else asked.until_ms
    for partition in range(partitions):
        first, end = await log.bounds_since(asked.topic, partition, asked.since_ms)
        async for records in log.records(asked.topic, partition, first, end):
            report(f"partition {partition}", records[-1].offset + 1 - first, end - first)
            for request in decode(records, mapped=mapped).requests:
                if (asked.since_ms or 0) <= request.transaction.timestamp.ms < until_ms:
                    yield request.transaction


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
                    _hear(known, outcome)
                    appended = outcome.model_copy(update={"known_at": Instant(record.timestamp, 0)})
                    file.write(encode_outcome(appended) + b"\n")
    return known


def known_of(outcomes: Iterable[Outcome]) -> dict[Name, Known]:
    """What was heard, by transaction."""
    known: dict[Name, Known] = {}
    for outcome in outcomes:
        _hear(known, outcome)
    return known


def _hear(known: dict[Name, Known], outcome: Outcome) -> None:
    name = outcome.user_id, outcome.transaction_id
    known[name] = with_heard(known.get(name, ()), Heard.of(outcome, OFFLINE))


async def _declined(log: Log, settings: Settings, since_ms: int | None, partitions: int, report: Report) -> set[Name]:
    """The transactions that were declined then."""
    declined = set[Name]()
    for partition in range(partitions):
        first, end = await log.bounds_since(settings.decisions, partition, since_ms)
        async for records in log.records(settings.decisions, partition, first, end):
            report("decisions", records[-1].offset + 1 - first, end - first)
            declined.update(name for record in records if (name := declined_by(record.value)))
    return declined


def declined_by(value: bytes | None) -> Name | None:
    """Which transaction this decision declines; none, where it is no decision that can be read.

    >>> declined_by(b'{"action": "decline", "user_id": "u", "transaction_id": "t"}'), declined_by(b'{"action": "decl')
    (('u', 't'), None)
    """
    try:
        match orjson.loads(value or b"null"):
            case {"action": "decline", "user_id": str(user), "transaction_id": str(transaction)}:
                return user, transaction
    except orjson.JSONDecodeError:
        pass
    return None


def _epoch_ms(day: datetime | None) -> int | None:
    return None if day is None else int(day.replace(tzinfo=UTC).timestamp() * 1000)


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
