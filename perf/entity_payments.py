"""Payments for the benchmark of entities, as arrays: who pays where follows from one seed."""

import numpy as np
import numpy.typing as npt

from assay.tables.entity_layout import ENTITIES
from assay.tables.events import EVENT, Events

DAY_MS = 24 * 60 * 60 * 1000
START_MS = 1_760_000_000_000
ZIPF = 1.1  # of merchants and BINs: how much more is bought where most is bought
NEW_SHARE = 0.02  # of instruments, devices and addresses that a user has not had before
SEED = 5

_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, so that numbers become digests one to one, and all bits are used


class Payments:
    """A stream of payments of so many users at so many merchants, each user once a day on average.

    Every payment has all kinds of entities. A user has an instrument, a device and an address, and now and then a new one;
    merchants and BINs are drawn by Zipf's law.
    """

    def __init__(self, users: int, merchants: int, bins: int = 200) -> None:
        self.users, self.merchants, self.bins = users, merchants, bins
        self._generator = np.random.default_rng(SEED)
        self._offset, self._time_ms, self._new = 0, START_MS, users

    def take(self, count: int) -> tuple[Events, npt.NDArray[np.int64]]:
        """The next payments (count,), offsets ascending, and their partitions."""
        events = np.zeros(count, EVENT)
        users = self._generator.integers(0, self.users, count)
        gaps = self._generator.exponential(DAY_MS / self.users, count)
        events["offset"] = self._offset + np.arange(count)
        events["time_ms"] = self._time_ms + np.cumsum(gaps)
        events["amount"] = np.round(self._generator.lognormal(3, 1.5, count), 2)
        events["user"] = digests(users)
        self._offset, self._time_ms = self._offset + count, int(events["time_ms"][-1])
        for name in ENTITIES:
            events[name] = digests(self._drawn(name, users))
        return events, users % 4

    def known(self, name: str) -> npt.NDArray[np.uint64]:
        """Digests of the entities of a kind (a column of `EVENT`), those left out that users have now and then."""
        return digests(np.arange({"merchant": self.merchants, "bin": self.bins}.get(name, self.users)))

    def _drawn(self, name: str, users: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if name in ("merchant", "bin"):
            many = self.merchants if name == "merchant" else self.bins
            share = np.arange(1, many + 1) ** -ZIPF
            return self._generator.choice(many, len(users), p=share / share.sum())
        new = self._generator.random(len(users)) < NEW_SHARE
        self._new += len(users)
        return np.where(new, self._new + np.arange(len(users)), users)


def digests(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """A digest for each number, none of them 0."""
    return (numbers.astype(np.uint64) + np.uint64(1)) * _MIX
