"""What all that was heard of one transaction amounts to: a function of the set of its outcomes.

So order, repeats and lateness change nothing in the end, and a change is the difference of two effects. Pure: no I/O.

What is heard is kept by digests, in bytes of a fixed width. An outcome stands unless another one supersedes it; a chain of
those is one place, and has the name of its first. Of what contradicts each other (authorised and issuer_declined, fraud and
genuine) the one that says to be known later wins; ties go by the digest of the outcome_id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import takewhile
from struct import Struct
from typing import NamedTuple

from assay.schemas.limits import MAX_OUTCOMES_PER_TRANSACTION
from assay.schemas.outcome import Outcome, Status
from assay.tables.digests import Digests

VERSION = 1
WHOLE = -1  # in place of an amount: the whole transaction

_HEADER, _OUTCOME = Struct("<BB"), Struct("<qQbqQ")  # (version, how many); the fields of `Heard`
KNOWN_BYTES = _HEADER.size + MAX_OUTCOMES_PER_TRANSACTION * _OUTCOME.size  # at most

_STATUSES = {status: number for number, status in enumerate(Status)}
_AUTHORISED, _DECLINED = _STATUSES[Status.AUTHORISED], _STATUSES[Status.ISSUER_DECLINED]
_DISPUTED, _REVERSED = _STATUSES[Status.DISPUTED], _STATUSES[Status.DISPUTE_REVERSED]
_FRAUD, _GENUINE = _STATUSES[Status.FRAUD], _STATUSES[Status.GENUINE]


class Heard(NamedTuple):
    """One outcome; the order of the fields is the order in which contradictions are settled."""

    known_at_ms: int
    outcome: int  # digest of its id
    status: int  # index into `schemas.outcome.Status`
    thousandths: int  # of a major unit of the transaction's currency; WHOLE
    supersedes: int  # digest of the id of the one whose place it takes; 0: none

    @classmethod
    def of(cls, outcome: Outcome, digests: Digests) -> "Heard":
        """As it came; the amount rounded to thousandths."""
        named = outcome.supersedes if outcome.supersedes != outcome.outcome_id else None
        return cls(
            outcome.known_at.ms,
            digests.of64(outcome.outcome_id),
            _STATUSES[outcome.status],
            WHOLE if outcome.amount is None else thousandths(outcome.amount),
            0 if named is None else digests.of64(named),
        )


Known = tuple[Heard, ...]
"""What was heard of one transaction, each outcome once, ascending: at most the MAX_OUTCOMES_PER_TRANSACTION latest known."""


class Paid(NamedTuple):
    """The amount of a transaction, in thousandths of a major unit: of its own currency, and of the base currency."""

    whole: int
    base: int


@dataclass(frozen=True, slots=True)
class Effect:
    """What a transaction counts for: each 0 or 1, and the fraud in thousandths of the base currency."""

    issuer_declined: int = 0
    disputed: int = 0
    fraud: int = 0
    thousandths: int = 0

    def __sub__(self, before: "Effect") -> "Effect":
        """The change from `before` to this one: -1, 0 or 1 each."""
        return Effect(
            self.issuer_declined - before.issuer_declined,
            self.disputed - before.disputed,
            self.fraud - before.fraud,
            self.thousandths - before.thousandths,
        )

    def __bool__(self) -> bool:
        return self != NOTHING


NOTHING = Effect()


def thousandths(amount: Decimal) -> int:
    """An amount in major units, in thousandths, rounded to the nearest (ties to even)."""
    return int((amount * 1000).to_integral_value())


def with_heard(known: Known, heard: Heard) -> Known:
    """`known` with one more. One that comes again counts once: as it says to be known latest, where it has changed."""
    latest = {each.outcome: each for each in sorted((*known, heard))}
    return tuple(sorted(latest.values())[-MAX_OUTCOMES_PER_TRANSACTION:])


def effect(known: Known, paid: Paid) -> Effect:
    """What they amount to.

    A reversal takes back the dispute whose place it takes or shares; one that names none takes back any one that is left.
    Parts of a fraud add up, to the whole at most.
    """
    if not known:
        return NOTHING
    standing = _standing(known)
    answers = [each for each in standing if each.status in (_AUTHORISED, _DECLINED)]
    parts = _frauds(standing)
    found = min(sum(paid.whole if each.thousandths == WHOLE else each.thousandths for each in parts), paid.whole)
    return Effect(
        issuer_declined=int(bool(answers) and answers[-1].status == _DECLINED),
        disputed=int(bool(_disputes(standing, known))),
        fraud=int(bool(parts)),
        thousandths=paid.base * found // paid.whole if paid.whole else 0,
    )


LABELS = (Status.FRAUD.value, Status.DISPUTED.value, Status.GENUINE.value)


def label(known: Known) -> str:
    """What the transaction is known to be: "fraud", "disputed", "genuine"; "" while nobody has said (which is not genuine).

    Of a dispute and the word that it is genuine the later one wins.
    """
    if not known:
        return ""
    standing = _standing(known)
    if _frauds(standing):
        return Status.FRAUD.value
    genuine = [each for each in standing if each.status == _GENUINE]
    last = max((*genuine, *_disputes(standing, known)), default=None)
    return "" if last is None else Status.GENUINE.value if last.status == _GENUINE else Status.DISPUTED.value


def encode_known(known: Known) -> bytes:
    """At most KNOWN_BYTES bytes."""
    return _HEADER.pack(VERSION, len(known)) + b"".join(_OUTCOME.pack(*each) for each in known)


def decode_known(value: bytes) -> Known:
    """What `encode_known` wrote. Raises ValueError for anything else."""
    if len(value) < _HEADER.size or value[0] != VERSION or len(value) != _HEADER.size + value[1] * _OUTCOME.size:
        raise ValueError(f"not outcomes of version {VERSION}")
    return tuple(Heard(*fields) for fields in _OUTCOME.iter_unpack(value[_HEADER.size :]))


def _standing(known: Known) -> Known:
    superseded = {each.supersedes for each in known}
    return tuple(each for each in known if each.outcome not in superseded)


def _frauds(standing: Known) -> Sequence[Heard]:
    """The parts of a fraud: those known after the latest word that it is genuine."""
    said = [each for each in standing if each.status in (_FRAUD, _GENUINE)]
    return list(takewhile(lambda each: each.status == _FRAUD, reversed(said)))


def _disputes(standing: Known, known: Known) -> Sequence[Heard]:
    """Those that no reversal takes back."""
    if all(each.status != _DISPUTED for each in standing):
        return ()
    by_id = {each.outcome: each for each in known}
    reversals = [each for each in standing if each.status == _REVERSED]
    taken_back = {_place(each, by_id) for each in reversals if each.supersedes}
    disputes = [each for each in standing if each.status == _DISPUTED and _place(each, by_id) not in taken_back]
    return disputes[sum(not each.supersedes for each in reversals) :]


def _place(heard: Heard, by_id: Mapping[int, Heard]) -> int:
    """The first of the chain that ends in it, heard of or not. A ring is left where it was entered."""
    passed: set[int] = set()
    place: Heard | None = heard
    first = heard.outcome
    while place is not None and place.supersedes and first not in passed:
        passed.add(first)
        first = place.supersedes
        place = by_id.get(first)
    return first
