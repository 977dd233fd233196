"""The checker: reads what every topic of a deployment holds, and counts what must not be there (invariants I1 to I4).

It is told records; where they come from is `whole_log`. Everything is compared with a single-threaded replay of the input.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import orjson
from aiokafka.structs import ConsumerRecord

from assay.schemas.evidence import is_change
from assay.schemas.refusal import ERROR_HEADER
from assay.schemas.source import FENCE_HEADER, SOURCE_HEADER, Source
from assay.streams.decision_reader import source_of
from assay.tables.features import PROFILE_FEATURES
from assay.tables.profile import ROW, ROW_BYTES
from assay.tables.rates import Rates
from assay.tables.working_rows import UserKey

from .replayed import Expected, Kind, Replay, digest, features_digest

MOST_EXAMPLES = 8
BOOKKEEPING = b"\0"  # keys of the changelog that are no user's

OUTCOMES = "outcomes"
REPLIES = ".reply"  # how the names of topics end whose partitions are the callers' choice

Place = tuple[int, int]  # source partition and offset
NOWHERE: Place = (-1, -1)


@dataclass(frozen=True)
class Counts:
    """What a checker has found.

    Attributes:
        lost: transactions without a decision, refused records without a dead letter.
        contradictory: verdicts of which there are two that differ; records with a decision and a dead letter, or two letters.
        unfounded: decisions and dead letters that their source does not account for.
        profiles_differ: users whose last row in the changelog is not that of the replay.
        rows_differ: rows anywhere in the changelog that the replay never had, or that are no newer than one before them.
        evidence_differs: evidence of what was not judged, or with other profile features than the replay's.
        replies_without_decision: replies that say what the log does not hold.
        repeated: source records with more than one decision, all equal.
        unanswered: source records that named a reply topic and got no reply: not promised while workers are killed.
        fences: fence records, in all topics.
        worst_gap_s: the longest time from a transaction's append to its decision's.
    """

    transactions: int = 0
    lost: int = 0
    contradictory: int = 0
    unfounded: int = 0
    profiles_differ: int = 0
    rows_differ: int = 0
    evidence_differs: int = 0
    replies_without_decision: int = 0
    repeated: int = 0
    unanswered: int = 0
    fences: int = 0
    worst_gap_s: float = 0.0

    @property
    def faults(self) -> dict[str, int]:
        """What must be zero, and is not."""
        return {name: getattr(self, name) for name in MUST_BE_ZERO if getattr(self, name)}


class Gap(NamedTuple):
    """How long a transaction waited for its decision, by append times, and which it was."""

    seconds: float = 0.0
    about: str = ""


MUST_BE_ZERO = tuple(one.name for one in fields(Counts))[1:8]


@dataclass(slots=True)
class Found:
    """What was published for one source record."""

    decisions: list[bytes]  # their digests
    letters: int = 0
    replied: bool = False


class Checker:
    """Tell it the records of `transactions` first, those of each partition in their order; then those of the other topics.

    Attributes:
        worst_gap: the longest that `gap` has told.
        examples: name of a count -> a few words about the first of what it counts.
    """

    def __init__(self, rates: Rates) -> None:
        self._replay = Replay(rates)
        self._found: dict[Place, Found] = defaultdict(lambda: Found([]))
        self._values: dict[Place, dict[bytes, str]] = defaultdict(dict)  # by verdict: digest of a decision -> where it lies
        self._changelog: dict[UserKey, bytes] = {}
        self._last_offsets: dict[UserKey, int] = {}
        self._told: dict[str, int] = defaultdict(int)
        self._gap, self.worst_gap = Gap(), Gap()
        self.examples: dict[str, list[str]] = defaultdict(list)

    # -- what every topic holds -----------------------------------------------------------------------------------------

    def transactions(self, records: Sequence[ConsumerRecord]) -> None:
        """The next records of one partition."""
        self._replay.read(records)

    def decisions(self, records: Sequence[ConsumerRecord]) -> None:
        """Any records of `decisions`; fences are passed over."""
        for record in records:
            if self._is_fence(record):
                continue
            place, expected = self._source(record)
            if expected is None or expected.kind is not Kind.TRANSACTION or not _is_of(expected, place, record):
                self._note("unfounded", f"a decision at {_where(record)} from {place}: {_said(record)}")
                continue
            found, value = self._found[place], digest(record.value)
            if not found.decisions:
                self._waited((record.timestamp - expected.appended_ms) / 1000, place, record)
            found.decisions.append(value)
            self._values[place[0], expected.first].setdefault(value, f"{_where(record)} from {place}: {_said(record)}")

    def dead_letters(self, records: Sequence[ConsumerRecord]) -> None:
        """Any records of `dead-letters`; fences are passed over."""
        for record in records:
            if self._is_fence(record):
                continue
            source = source_of(record)
            if source is not None and source.topic.endswith(OUTCOMES):
                continue  # an outcome that was refused: no transaction waits for it
            place, expected = self._source(record)
            if expected is None or expected.kind is not Kind.REFUSED:
                self._note("unfounded", f"a dead letter at {_where(record)} from {place}: {dict(record.headers)}")
            if expected is not None:
                self._found[place].letters += 1

    def evidence(self, records: Sequence[ConsumerRecord]) -> None:
        """Any records of `evidence`."""
        for record in records:
            if self._is_fence(record) or is_change(record.headers):
                continue
            place, expected = self._source(record)
            values = np.array(orjson.loads(record.value)["features"][:PROFILE_FEATURES], np.float32)
            if expected is None or expected.features != features_digest(values):
                self._note("evidence_differs", f"{_where(record)} from {place}")

    def changelog(self, records: Sequence[ConsumerRecord]) -> None:
        """The next records of one partition of the changelog of the profiles."""
        for record in records:
            if self._is_fence(record) or record.key is None or record.key.startswith(BOOKKEEPING):
                continue
            user = UserKey(record.partition, record.key)
            if record.value is None:
                self._changelog.pop(user, None)
                continue
            self._changelog[user] = record.value
            self._check_row(user, record)

    def replies(self, records: Sequence[ConsumerRecord]) -> None:
        """Any records of a reply topic."""
        for record in records:
            place, _ = self._source(record)
            found = self._found.get(place, Found([]))
            refused = any(name == ERROR_HEADER for name, _ in record.headers)
            if not (found.letters if refused else digest(record.value) in found.decisions):
                self._note("replies_without_decision", f"{_where(record)} to {place}: {record.value[:200]!r}")
            found.replied = True

    # -- what came of it ------------------------------------------------------------------------------------------------

    def gap(self) -> Gap:
        """The longest of those told since this was asked last."""
        gap, self._gap = self._gap, Gap()
        self.worst_gap = max(self.worst_gap, gap)
        return gap

    def counts(self) -> Counts:
        """Of everything told so far. What is missing is only known once everything has been told."""
        lost = contradictory = repeated = unanswered = transactions = 0
        for partition, by_offset in self._replay.expected.items():
            transactions += len(by_offset)
            for offset, expected in by_offset.items():
                found = self._found.get((partition, offset), Found([]))
                if expected.kind is not Kind.TOMBSTONE and not found.decisions and not found.letters:
                    lost += 1
                    self._example("lost", f"{partition}:{offset} appended {expected.appended_ms}, {expected.kind.name}")
                if found.letters > 1 or (found.letters and found.decisions):
                    contradictory += 1
                    self._example("contradictory", f"{partition}:{offset}: {len(found.decisions)} + {found.letters} letters")
                repeated += len(found.decisions) > 1
                unanswered += expected.asks and not found.replied
        for values in self._values.values():
            if len(values) > 1:
                contradictory += 1
                self._example("contradictory", " != ".join(values.values()))
        return Counts(
            transactions=transactions, lost=lost, contradictory=contradictory, repeated=repeated, unanswered=unanswered,
            profiles_differ=self._profiles_differ(), worst_gap_s=round(max(self.worst_gap, self._gap).seconds, 1), **self._told,
        )  # fmt: skip

    def _profiles_differ(self) -> int:
        rows, differ = self._replay.rows, 0
        for user in rows.keys() | self._changelog.keys():
            if rows.get(user) != self._changelog.get(user):
                differ += 1
                self._example("profiles_differ", f"{user}: {_difference(rows.get(user), self._changelog.get(user))}")
        return differ

    def _check_row(self, user: UserKey, record: ConsumerRecord) -> None:
        offset = _last_offset(record.value)
        if self._replay.folded.get((user, offset)) != digest(record.value):
            self._note("rows_differ", f"{user} at {_where(record)}: no row of the replay, folded to {offset}")
        elif offset <= self._last_offsets.get(user, -1):
            self._note("rows_differ", f"{user} at {_where(record)}: folded to {offset}, after {self._last_offsets[user]}")
        self._last_offsets[user] = max(offset, self._last_offsets.get(user, -1))

    def _source(self, record: ConsumerRecord) -> tuple[Place, Expected | None]:
        """Which record made this one, and what has to become of that; None where this one lies on another partition."""
        header = dict(record.headers).get(SOURCE_HEADER)
        if header is None:
            return NOWHERE, None
        _, partition, offset = Source.parse(header)
        elsewhere = record.partition != partition and not record.topic.endswith(REPLIES)
        return (partition, offset), None if elsewhere else self._replay.expected[partition].get(offset)

    def _is_fence(self, record: ConsumerRecord) -> bool:
        fence = record.value is None and any(name == FENCE_HEADER for name, _ in record.headers)
        self._told["fences"] += fence
        return fence

    def _waited(self, seconds: float, place: Place, record: ConsumerRecord) -> None:
        if seconds > self._gap.seconds:
            self._gap = Gap(seconds, f"{_where(record)} from {place}: {_said(record)}")

    def _note(self, name: str, about: str) -> None:
        self._told[name] += 1
        self._example(name, about)

    def _example(self, name: str, about: str) -> None:
        if len(self.examples[name]) < MOST_EXAMPLES and about not in self.examples[name]:
            self.examples[name].append(about)


def _is_of(expected: Expected, place: Place, record: ConsumerRecord) -> bool:
    """Whether a decision names the transaction, and the source that it has to have been made for."""
    if record.value is None:
        return False
    body = orjson.loads(record.value)
    made_for = body["source"]["partition"], body["source"]["offset"]
    return (body["user_id"], body["transaction_id"]) == expected.identity and made_for == (place[0], expected.first)


def _said(record: ConsumerRecord) -> str:
    """Who decided what, and when: for people who look for the fault."""
    body: dict[str, Any] = orjson.loads(record.value) if record.value else {}
    marks = [name for name, _ in record.headers if name.startswith("assay-") and name != SOURCE_HEADER]
    told = {name: body.get(name) for name in ("action", "fraud_score", "tier", "decided_at", "decided_by", "source")}
    return f"appended {record.timestamp} {told} {marks}"


def _where(record: ConsumerRecord) -> str:
    return f"{record.topic}/{record.partition}@{record.offset}"


def _last_offset(row: bytes) -> int:
    return int(np.frombuffer(row, ROW)["last_offset"][0]) if len(row) == ROW_BYTES else -1


def _difference(wanted: bytes | None, got: bytes | None) -> str:
    """The first fields that differ."""
    if wanted is None or got is None or len(wanted) != len(got):
        return f"wanted {'no row' if wanted is None else len(wanted)}, got {'none' if got is None else len(got)}"
    one, other = np.frombuffer(wanted, ROW)[0], np.frombuffer(got, ROW)[0]
    names = [name for name in ROW.names or () if one[name].tobytes() != other[name].tobytes()]
    return f"{names[:6]}; folded to {one['last_offset']} wanted, {other['last_offset']} got"
