"""In which order Redis counted the observations of entities, from the numbers in the evidence; and where they don't add up.

A transaction may have no number: Redis did not answer in time, and learnt of it later, or its evidence is lost. Several may
have one and the same: a worker that ended before it had decided is followed by one that asks again, and what was counted
already is answered with the row as it stands. All of these were counted under numbers that nobody else has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt

UNKNOWN = -1  # in place of a sequence number: the evidence has none


@dataclass(frozen=True, slots=True)
class Miscount:
    """Redis counted what the topic does not have, or not what it has.

    position: of the first transaction whose number shows it. number: the one that it has. expected: by the topic.
    """

    position: int
    number: int
    expected: int


@dataclass(frozen=True, slots=True)
class Order:
    """Positions int64 (m,) in the order of their observations, entity by entity.

    read_at: int64 (m,), by which of these what each read had been counted: mostly itself.
    """

    positions: npt.NDArray[np.int64]
    read_at: npt.NDArray[np.int64]
    miscounts: Sequence[Miscount] = ()


@dataclass
class _Life:
    """Of an entity, from when Redis did not know it. Places are by append time.

    numbered: place by number. again: {place: number} of those whose number another has, too. unknown: of those without one.
    """

    numbered: dict[int, int] = field(default_factory=dict)
    again: dict[int, int] = field(default_factory=dict)
    unknown: list[int] = field(default_factory=list)

    def open_below(self, number: int) -> int:
        """How many lower numbers nobody has who has one."""
        taken = sum(each < number for each in self.numbered) + sum(each <= number for each in self.again.values())
        return number - 1 - taken

    @property
    def leading(self) -> int:
        """Numbers before the first that somebody has."""
        return min(self.numbered, default=1) - 1

    @property
    def inner(self) -> int:
        """Numbers after that one that nobody has."""
        return max(self.numbered, default=0) - self.leading - len(self.numbered)


def logged_order(
    digests: npt.NDArray[np.uint64], sequences: npt.NDArray[np.int64], appended_ms: npt.NDArray[np.int64]
) -> Order:
    """Of one kind of entity; transactions without one are left out. Numbers begin again where an entity was forgotten.

    >>> digests = np.array([7, 7, 7, 0, 7], np.uint64)
    >>> logged_order(digests, np.array([2, 1, UNKNOWN, 0, 4]), np.arange(5)).positions
    array([1, 0, 2, 4])
    """
    present = np.flatnonzero(digests)
    present = present[np.lexsort((appended_ms[present], digests[present]))]
    ordered: list[int] = []
    read_at: list[int] = []
    miscounts: list[Miscount] = []
    for _, group in groupby(present.tolist(), digests.__getitem__):
        positions = list(group)
        numbers = sequences[positions].tolist()
        places, again, found = _order_of_one(numbers)
        read_at += [len(ordered) + i for i in _read_at(places, again, numbers)]
        ordered += [positions[place] for place in places]
        miscounts += [Miscount(positions[place], numbers[place], expected) for place, expected in found]
    return Order(np.array(ordered, np.int64), np.array(read_at, np.int64), miscounts)


def _order_of_one(numbers: Sequence[int]) -> tuple[list[int], set[int], list[tuple[int, int]]]:
    """Of one entity: places in the order of their observations, those that have another's number, (place, expected number)."""
    ordered: list[int] = []
    again: set[int] = set()
    miscounts: list[tuple[int, int]] = []
    uncounted = 0  # at the end of the life before
    for which, life in enumerate(_lives(numbers)):
        known = life.leading in (0, len(ordered)) or life.leading <= uncounted
        filled = known or life.leading <= len(life.again) + len(life.unknown) - life.inner
        if which and not filled:
            miscounts.append((life.numbered[life.leading + 1], len(ordered) + 1))
        begins = 0 if filled and not known else life.leading
        needed = life.leading - begins + life.inner
        fillers = [*life.again, *life.unknown]
        taken = _taken(life, sorted(fillers[:needed]), begins, numbers)
        miscounts += _placed(life, taken, begins, ordered)
        left = sorted(set(fillers).difference(taken.values()))
        again |= life.again.keys() - set(left)
        if filled:  # one has another's number, and there is none that may have been its own
            miscounts += [(life.numbered[numbers[place]], numbers[place] + 1) for place in left if place in life.again]
        ordered += left
        uncounted = len(left)
    return ordered, again, miscounts


def _taken(life: _Life, fillers: list[int], begins: int, numbers: Sequence[int]) -> dict[int, int]:
    """{number that nobody has: place of who takes it}. Who reads as of a number was counted under a lower one."""
    taken: dict[int, int] = {}
    ascending = [begins, *sorted(life.numbered)]
    for before, after in reversed(list(pairwise(ascending))):
        number = after - 1
        while number > before and fillers:
            may = (i for i in reversed(range(len(fillers))) if not 0 <= numbers[fillers[i]] <= number)
            if (latest := next(may, None)) is None:
                number = max(numbers[place] for place in fillers) - 1
            else:
                taken[number] = fillers.pop(latest)
                number -= 1
    return taken


def _placed(life: _Life, taken: Mapping[int, int], begins: int, ordered: list[int]) -> list[tuple[int, int]]:
    """Add places to the ordered ones, number after number. Returns (place, expected number) after numbers that nobody took."""
    miscounts, before, between = [], begins, 0
    for number in sorted({*life.numbered, *taken}):
        if number in taken:
            between += 1
            ordered.append(taken[number])
            continue
        if before + between + 1 < number:
            miscounts.append((life.numbered[number], before + between + 1))
        ordered.append(life.numbered[number])
        before, between = number, 0
    return miscounts


def _lives(numbers: Sequence[int]) -> list[_Life]:
    lives = [_Life()]
    for place, number in enumerate(numbers):
        life = lives[-1]
        if number == UNKNOWN:
            life.unknown.append(place)
        elif number not in life.numbered:
            life.numbered[number] = place
        elif life.open_below(number) > 0:
            life.again[life.numbered[number]] = number
            life.numbered[number] = place
        else:
            lives.append(_Life({number: place}))
    return [part for life in lives for part in _parted(life)]


def _parted(life: _Life) -> list[_Life]:
    """Two, where lower numbers came later than higher ones: of an entity older than the run, and then counted anew."""
    if life.inner <= len(life.again) + len(life.unknown):
        return [life]
    ascending = sorted(life.numbered)
    begins = life.numbered[ascending[0]]
    for before, after in pairwise(ascending):
        if after > before + 1 and life.numbered[after] < begins:
            older, newer = _Life(), _Life()
            for number, place in life.numbered.items():
                (older if number >= after else newer).numbered[number] = place
            for place, number in life.again.items():
                (older if number >= after else newer).again[place] = number
            for place in life.unknown:
                (older if place < begins else newer).unknown.append(place)
            return [older, newer]
    return [life]


def _read_at(places: Sequence[int], again: set[int], numbers: Sequence[int]) -> list[int]:
    """By which of the ordered places what each read had been counted: where its number is another's, by that one."""
    at = list(range(len(places)))
    owner: dict[int, int] = {}
    for i in reversed(at):
        if places[i] in again:
            at[i] = owner[numbers[places[i]]]
        else:
            owner[numbers[places[i]]] = i
    return at
