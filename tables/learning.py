"""From outcomes, and what is kept of their transactions, to what changes: risk rows, what is kept, labels. Pure: no I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from assay.schemas.decision import Action
from assay.schemas.outcome import Outcome
from assay.tables.changes import CHANGE, Changes
from assay.tables.digests import Digests
from assay.tables.keyspace import Keyspace
from assay.tables.outcomes import Effect, Heard, effect, label, with_heard
from assay.tables.transaction_index import ENTITY_KINDS, Decided, Kept, Place, declined_in_full, mark_of, place_of


class Arrived(NamedTuple):
    """A valid outcome and where its record lies in the outcomes topic."""

    partition: int
    offset: int
    outcome: Outcome


class Labelled(NamedTuple):
    """What a transaction is known to be ("fraud", "disputed", "genuine"; "" unknown), and of how much, in thousandths."""

    label: str
    thousandths: int


@dataclass(slots=True)
class Learnt:
    """What some outcomes change.

    Attributes:
        changes: CHANGE (m,), in the order of the outcomes; those that change nothing have none.
        causes: by change, the position of its outcome.
        kept: {place: (value before, value after)} of the transactions that something new was heard of.
        labels: (our action, before, after) where what is known of a transaction has changed.
        unknown: positions of outcomes whose transaction was not found, or can't be read.
    """

    changes: Changes = field(default_factory=lambda: np.zeros(0, CHANGE))
    causes: list[int] = field(default_factory=list)
    kept: dict[Place, tuple[bytes, bytes]] = field(default_factory=dict)
    labels: list[tuple[Action, Labelled, Labelled]] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)


def learn(arrived: Sequence[Arrived], places: Sequence[Place], found: Mapping[Place, bytes], digests: Digests) -> Learnt:
    """Apply outcomes one after another to what was found of their transactions; those not found change nothing."""
    first = {place: kept for place, value in found.items() if (kept := _readable(value)) is not None}
    now, rows, learnt = dict(first), list[tuple[Any, ...]](), Learnt()
    for position, (each, place) in enumerate(zip(arrived, places, strict=True)):
        if (kept := now.get(place)) is None:
            learnt.unknown.append(position)
            continue
        known = with_heard(kept.known, Heard.of(each.outcome, digests))
        change = effect(known, kept.paid) - effect(kept.known, kept.paid)
        now[place] = Kept(kept.entry, known)
        if change:
            rows.append(_row(each, place, kept, change))
            learnt.causes.append(position)
    learnt.changes = np.array(rows, CHANGE)
    for place, before in first.items():
        if now[place].known != before.known:
            learnt.kept[place] = found[place], now[place].encode()
            labels = _labelled(before), _labelled(now[place])
            if labels[0] != labels[1]:
                learnt.labels.append((before.action, *labels))
    return learnt


def places_of(arrived: Sequence[Arrived], keyspace: Keyspace, digests: Digests) -> list[Place]:
    """Where the transactions of outcomes are kept."""
    return [place_of(keyspace, digests, each.outcome.user_id, each.outcome.transaction_id) for each in arrived]


def marks_of(arrived: Sequence[Arrived], places: Sequence[Place], outcomes: Keyspace) -> list[Place]:
    """Where it is marked that outcomes did not find their transactions, which are kept in these places."""
    return [mark_of(outcomes, place, each.partition, each.offset) for each, place in zip(arrived, places, strict=True)]


def own_verdicts(decided: Decided) -> Changes:
    """Our declines in the tier full among transactions (n,), as changes CHANGE (m,): for rules, never for models."""
    declined = decided[declined_in_full(decided)]
    changes = np.zeros(len(declined), CHANGE)
    for name in ("offset", "partition", "user"):
        changes[name] = declined[name]
    for name in ("time_ms", *ENTITY_KINDS):
        changes[name] = declined["entry"][name]
    changes["verdicts"] = 1
    return changes


def _readable(value: bytes) -> Kept | None:
    try:
        return Kept.decode(value)
    except ValueError:
        return None


def _row(each: Arrived, place: Place, kept: Kept, change: Effect) -> tuple[Any, ...]:
    """A CHANGE."""
    user = int.from_bytes(place.key[-24:-16], "little")
    counts = change.issuer_declined, 0, change.disputed, change.fraud
    return each.offset, each.partition, kept.entry.time_ms, user, *kept.entities, *counts, change.thousandths


def _labelled(kept: Kept) -> Labelled:
    found = label(kept.known)
    amount = effect(kept.known, kept.paid).thousandths if found == "fraud" else kept.entry.base
    return Labelled(found, amount if found else 0)
