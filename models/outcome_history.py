"""What outcomes of a file say of a history: as changes to the risk windows when they became known, and as labels in the end.

The file has the records of the outcomes topic, one JSON object a line. In the stream an outcome is known once it is appended;
of a file `known_at` has to stand for that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from assay.schemas.errors import InputError
from assay.schemas.outcome import Outcome, read_outcome
from assay.tables.changes import CHANGE, CHANGED_KINDS, Changes
from assay.tables.digests import OFFLINE
from assay.tables.events import Events, mixed, names_of
from assay.tables.outcomes import Heard, Known, Paid, effect, label, with_heard
from assay.tables.spilled import Spilled

MATURE_DAYS = 90.0  # by then what was fraud is known to be: the contract's default
DAY_MS = 86_400_000


class Told(NamedTuple):
    """One outcome of the file, as little of it as is needed."""

    event: int  # number of its transaction
    heard: Heard


@dataclass(frozen=True, slots=True)
class OutcomeHistory:
    """What became of the transactions of n events.

    Attributes:
        changes: CHANGE (m,), in the order in which they became known.
        known_before: int64 (m,), ascending: the number of the event that each is known before.
        fraud: bool (n,), what they are known to be in the end.
        labelled: bool (n,), whether that is known: somebody has said so, or so long has passed that somebody would have.
        outcomes, unknown, future: of the file; those of them whose transaction is not in the history; and those left out, as
            they say to be known later than now.
    """

    changes: Changes
    known_before: npt.NDArray[np.int64]
    fraud: npt.NDArray[np.bool_]
    labelled: npt.NDArray[np.bool_]
    outcomes: int
    unknown: int
    future: int


def outcome_history(
    path: Path,
    events: Events | Spilled,
    whole: Sequence[int],
    mature_days: float = MATURE_DAYS,
    now_ms: int | None = None,
) -> OutcomeHistory:
    """Of events (n,) in the order of their time, digested under `OFFLINE`.

    whole (n,): amounts in thousandths of a major unit of each one's own currency. A transaction that comes again is told of at
    its first row. now_ms: epoch; None: no outcome is too late. Raises InputError, which names the line that can't be used.
    """
    told, count, future = _told(path, events, now_ms)
    if not told:
        raise InputError(
            f"{path}: none of its {count:,} outcomes is of a transaction of the history",
            expected="outcomes with the user_id and transaction_id of transactions",
            mend="see that both files are of the same time, and that --map names the columns of these ids",
        )
    times, amounts = np.maximum.accumulate(events["time_ms"]), events["amount"]
    known: dict[int, Known] = {}
    rows: list[tuple[int, int]] = []
    effects = []
    for event, heard in told:
        paid = Paid(whole[event], round(float(np.nan_to_num(amounts[event])) * 1000))
        before = known.get(event, ())
        known[event] = after = with_heard(before, heard)
        if change := effect(after, paid) - effect(before, paid):
            rows.append((event, max(int(np.searchsorted(times, heard.known_at_ms)), event + 1)))
            effects.append((change.issuer_declined, change.disputed, change.fraud, change.thousandths))
    fraud, labelled = np.zeros(len(events), np.bool_), times <= times[-1] - mature_days * DAY_MS
    for event, heard_of in known.items():
        if said := label(heard_of):
            fraud[event], labelled[event] = said == "fraud", said != "disputed"
    changes, known_before = _changes(events, rows, effects)
    return OutcomeHistory(changes, known_before, fraud, labelled, count, count - len(told) - future, future)


def _told(path: Path, events: Events | Spilled, now_ms: int | None) -> tuple[list[Told], int, int]:
    """Outcomes of transactions of the history, in the order in which they became known; how many in all, and after now."""
    names, firsts = np.unique(names_of(events), return_index=True)
    told, count, future = [], 0, 0
    for outcome in read_outcomes(path):
        count += 1
        if now_ms is not None and outcome.known_at.ms > now_ms:
            future += 1
            continue
        first, second = np.frombuffer(OFFLINE.of128(outcome.transaction_id), "<u8")
        name = mixed(np.uint64(OFFLINE.of64(outcome.user_id)), first, second)
        at = int(np.searchsorted(names, name))
        if at < len(names) and names[at] == name:
            told.append(Told(int(firsts[at]), Heard.of(outcome, OFFLINE)))
    return sorted(told, key=lambda one: one.heard), count, future


def read_outcomes(path: Path) -> Iterator[Outcome]:
    """The outcomes of a file, in its order. Raises InputError, which names the line that can't be used."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    try:
                        yield read_outcome(line)
                    except (ValueError, ArithmeticError) as error:
                        raise _refused(path, number, error) from None
    except OSError as error:
        raise InputError(
            f"{path} can't be read", expected="outcomes, one JSON object a line", got=str(error.strerror)
        ) from None


def _refused(path: Path, number: int, error: Exception) -> InputError:
    first = error.errors(include_url=False, include_input=False)[0] if isinstance(error, ValidationError) else None
    field, why = (".".join(map(str, first["loc"])), first["msg"]) if first else ("the line", str(error))
    return InputError(
        f"{path}, line {number}: {field or 'the line'} can't be used",
        expected="an outcome as on the outcomes topic (docs/outcomes.md)",
        got=why,
        mend="correct the line, or leave it out",
    )


def _changes(
    events: Events | Spilled, rows: Sequence[tuple[int, int]], effects: Sequence[tuple[int, int, int, int]]
) -> tuple[Changes, npt.NDArray[np.int64]]:
    """`rows`: (event, known before which event) of each, in the order in which they became known."""
    changes = np.zeros(len(rows), CHANGE)
    if not rows:
        return changes, np.zeros(0, np.int64)
    places = np.array(rows, np.int64)
    told = events[places[:, 0]]
    for name in ("offset", "time_ms", *CHANGED_KINDS):
        changes[name] = told[name]
    for name, column in zip(("issuer_declines", "disputes", "frauds", "thousandths"), np.array(effects).T, strict=True):
        changes[name] = column
    order = np.argsort(places[:, 1], kind="stable")
    return changes[order], places[order, 1]
