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
    """A stream of payments of so many users at so many merchants, each user once a day.

    Every payment has all kinds of entities. A user has an instrument, a device and an address, and now and then a new one;
    merchants and BINs are drawn by Zipf's law.
    """

    def __init__(self, users: int, merchants: int, bins: int = 200) -> None:
        self.users, self.merchants, self.bins = users, merchants, bins
        self._generator = np.random.default_rng(SEED)
        self._offset, self._time_ms, self._new = 0, float(START_MS), users
        self._due = np.empty(0, np.int64)  # users who have not yet paid today

    def past(self, count: int) -> tuple[Events, npt.NDArray[np.int64]]:
        """The next payments (count,) of history, offsets ascending, and their partitions: spread over the days."""
        gaps = self._generator.exponential(DAY_MS / self.users, count)
        return self._paid(self._generator.integers(0, self.users, count), self._time_ms + np.cumsum(gaps))

    def present(self, count: int, per_s: float) -> tuple[Events, npt.NDArray[np.int64]]:
        """The same, so many a second: once every user has paid, it is the next day."""
        users, times = np.empty(count, np.int64), np.empty(count)
        for i in range(count):
            if not len(self._due):
                self._due = self._generator.permutation(self.users)
                self._time_ms += DAY_MS
            users[i], self._due = self._due[0], self._due[1:]
            self._time_ms += 1000 / per_s
            times[i] = self._time_ms
        return self._paid(users, times)

    def _paid(self, users: npt.NDArray[np.int64], times_ms: npt.NDArray[np.float64]) -> tuple[Events, npt.NDArray[np.int64]]:
        events = np.zeros(len(users), EVENT)
        events["offset"] = self._offset + np.arange(len(users))
        events["time_ms"] = times_ms
        events["amount"] = np.round(self._generator.lognormal(3, 1.5, len(users)), 2)
        events["user"] = digests(users)
        for name in ENTITIES:
            events[name] = digests(self._drawn(name, users))
        self._offset, self._time_ms = self._offset + len(users), float(times_ms[-1])
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
