"""Chance, without a stream of random numbers: each draw depends on the seed and on what is drawn, not on what was drawn before.

So leaving out a transaction or a fault leaves the weather of all others as it was, which is what makes shrinking work.
"""

from dataclasses import dataclass
from zlib import crc32

REDIS = "redis"
_MASK = 2**64 - 1


def number(*parts: int | str) -> int:
    """A 64-bit number made of these (the finaliser of splitmix64 after each)."""
    mixed = 0
    for part in parts:
        mixed = (mixed ^ (crc32(part.encode()) if isinstance(part, str) else part)) + 0x9E3779B97F4A7C15 & _MASK
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
        mixed ^= mixed >> 31
    return mixed


def unit(*parts: int | str) -> float:
    """The same as a number in [0, 1)."""
    return number(*parts) / 2**64


@dataclass(frozen=True, slots=True)
class Front:
    """Weather that is worse for a while.

    Attributes:
        begins, ends: seconds of virtual time.
        link: begins the names of the links that it holds for.
        slowed: seconds by which each way takes longer; None: nothing gets through before it ends.
    """

    begins: float
    ends: float
    link: str
    slowed: float | None = None

    def holds(self, link: str, at: float) -> bool:
        return self.begins <= at < self.ends and link.startswith(self.link) and (self.link == REDIS) == (link == REDIS)


class Weather:
    """How long the way to a broker takes, and the way back."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.fronts: list[Front] = []

    def arrival(self, life: str, link: str, sent: float) -> float:
        """When something that leaves now arrives on the other side."""
        draw = unit(self._seed, life, link, int(sent * 1e6))
        if draw < 0.96:
            way = 0.0003 + 0.002 * draw
        elif draw < 0.995:
            way = 0.005 + (draw - 0.96)
        else:
            way = 0.05 + 60 * (draw - 0.995)
        arrives = sent + way
        for front in self.fronts:
            if front.holds(link, arrives):
                arrives = front.ends + way if front.slowed is None else arrives + front.slowed * draw
        return arrives

    def chance(self, of: float, *what: int | str) -> bool:
        return unit(self._seed, *what) < of
