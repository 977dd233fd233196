"""In which order Redis counted the observations of entities, from the numbers in the evidence; and where they don't add up.

A transaction may have no number: Redis did not answer in time, and learnt of it later, or its evidence is lost. Several may
have one and the same: a worker that ended before it had decided is followed by one that asks again, and what was counted
already is answered with the row as it stands. All of these were counted under numbers that nobody else has.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt

from assay.tables.entity_layout import KEPT_S

UNKNOWN = -1  # in place of a sequence number: the evidence has none
NO_LIMIT = 2**62


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

    read_at: int64 (m,), by which of these what each read had been counted: mostly itself. certain: bool (m,), whether it can
    have been no others.
    """

    positions: npt.NDArray[np.int64]
    read_at: npt.NDArray[np.int64]
    certain: npt.NDArray[np.bool_]
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
    digests: npt.NDArray[np.uint64],
    sequences: npt.NDArray[np.int64],
    appended_ms: npt.NDArray[np.int64],
    partitions: npt.NDArray[np.int64],
) -> Order:
    """Of one kind of entity; transactions without one are left out. Positions are in the order of each partition.

    An entity is counted anew where it was not seen for so long that Redis had forgotten it; before that, Redis has lost it.

    >>> digests = np.array([7, 7, 7, 0, 7], np.uint64)
    >>> logged_order(digests, np.array([2, 1, UNKNOWN, 0, 4]), np.arange(5), np.arange(5)).positions
    array([1, 0, 2, 4])
    """
    present = np.flatnonzero(digests)
    present = present[np.lexsort((appended_ms[present], digests[present]))]
    ordered: list[int] = []
    read_at: list[int] = []
    certain: list[bool] = []
    miscounts: list[Miscount] = []
    for _, group in groupby(present.tolist(), digests.__getitem__):
        positions = list(group)
        one = _OrderOfOne(sequences[positions].tolist(), partitions[positions].tolist(), appended_ms[positions].tolist())
        read_at += [len(ordered) + i for i in one.read_at()]
        ordered += [positions[place] for place in one.ordered]
        certain += [place in one.certain for place in one.ordered]
        miscounts += [Miscount(positions[place], one.numbers[place], expected) for place, expected in one.miscounts]
    return Order(np.array(ordered, np.int64), np.array(read_at, np.int64), np.array(certain, bool), miscounts)


class _OrderOfOne:
    """Of one entity, from its numbers and partitions by place.

    ordered: places in the order of their observations. again: those that have another's number. certain: those of which it is
    certain what had been counted. miscounts: (place, expected number).
    """

    def __init__(self, numbers: Sequence[int], partitions: Sequence[int], appended_ms: Sequence[int]) -> None:
        self.numbers, self._partitions, self._appended_ms = numbers, partitions, appended_ms
        self.ordered: list[int] = []
        self.again: set[int] = set()
        self.certain: set[int] = set()
        self.miscounts: list[tuple[int, int]] = []
        self._uncounted = self._counted = 0  # of the life before: how many were left, and the last place with a number
        for which, life in enumerate(_lives(numbers)):
            self._live(life, first=not which)

    def _live(self, life: _Life, *, first: bool) -> None:
        known = life.leading in (0, len(self.ordered)) or life.leading <= self._uncounted
        filled = known or life.leading <= len(life.again) + len(life.unknown) - life.inner
        if not (first or (filled and (life.leading == len(self.ordered) or self._forgotten(life)))):
            self.miscounts.append((life.numbered[life.leading + 1], len(self.ordered) + 1))
        begins = 0 if filled and not known else life.leading
        most = self._most(life)
        fillers = [*life.again, *sorted(life.unknown, key=most.__getitem__)]
        taken = _taken(life, sorted(fillers[: life.leading - begins + life.inner], key=most.__getitem__), begins, most)
        self.miscounts += _placed(life, taken, begins, self.ordered)
        self._note_certain(life, taken, fillers, most)
        left = sorted(set(fillers).difference(taken.values()))
        self.again |= life.again.keys() - set(left)
        if filled:  # one has another's number, and there is none that may have been its own
            forgotten = [self.numbers[place] for place in left if place in life.again]
            self.miscounts += [(life.numbered[number], number + 1) for number in forgotten]
        self.ordered += left
        self._uncounted, self._counted = len(left), max(life.numbered.values(), default=0)

    def _forgotten(self, life: _Life) -> bool:
        """Whether Redis may have forgotten the entity by the beginning of this life, for want of observations."""
        begun = min(life.numbered.values())  # one without a number between the two may never have been counted
        return self._appended_ms[begun] - self._appended_ms[self._counted] >= KEPT_S * 1000

    def _most(self, life: _Life) -> dict[int, int]:
        """{place: the highest number under which it may have been counted}: partitions are counted in their order."""
        most: dict[int, int] = {}
        after: dict[int, int] = {}
        for place in sorted([*life.numbered.values(), *life.again, *life.unknown], reverse=True):
            partition, number = self._partitions[place], self.numbers[place]
            most[place] = min(after.get(partition, NO_LIMIT) - 1, NO_LIMIT if number == UNKNOWN else number)
            after[partition] = most[place]
        return most

    def _note_certain(self, life: _Life, taken: Mapping[int, int], fillers: Sequence[int], most: Mapping[int, int]) -> None:
        """Where none of those without a number of their own had been counted, or all, or as many as must have been.

        Of several with one number nobody knows whose own it is.
        """
        shared = set(life.again.values())
        open_numbers = sorted({*taken, *shared})
        limits = sorted(most[place] for place in [*fillers, *(life.numbered[number] for number in shared)])
        for number, place in life.numbered.items():
            counted = bisect_right(open_numbers, number)
            if counted in (0, len(limits), bisect_right(limits, number)):
                self.certain.add(place)
        self.certain |= {place for place, number in life.again.items() if life.numbered[number] in self.certain}

    def read_at(self) -> list[int]:
        """By which of the ordered ones what each read had been counted: where its number is another's, by that one."""
        at = list(range(len(self.ordered)))
        owner: dict[int, int] = {}
        for i in reversed(at):
            number = self.numbers[self.ordered[i]]
            if self.ordered[i] in self.again:
                at[i] = owner[number]
            else:
                owner[number] = i
        return at


def _taken(life: _Life, fillers: Sequence[int], begins: int, most: Mapping[int, int]) -> dict[int, int]:
    """{number that nobody has: place of who takes it}, from fillers in the order of the most that they may have."""
    taken: dict[int, int] = {}
    waiting = iter(fillers)
    for before, after in pairwise([begins, *sorted(life.numbered)]):
        for number in range(before + 1, after):
            place = next((each for each in waiting if most[each] >= number), None)
            if place is None:
                return taken
            taken[number] = place
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
        elif len(lives) > 1 and number == place + 1 > max(life.numbered, default=0) + len(life.unknown) + 1:
            lives.append(_Life({number: place}))  # made anew from the topic, after it had begun again
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
