"""The control group: a small share of would-be declines is let through, so that what they are is known at all.

Of what is declined nobody ever hears more, and a model that learns from the rest only learns less and less of fraud. Those let
through stand for all of their like: in training each counts as many times as the share says (inverse probability weighting,
Horvitz and Thompson 1952).
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

import numpy as np
import numpy.typing as npt

_PERSON = b"control group"  # so that nothing else that is made from the key tells who is in it
_ALL = float(1 << 64)


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """Who is let through: by a keyed hash of the transaction, so that asking again gets the same answer.

    Attributes:
        share: of would-be declines, above 0.
        most_amount: what one of them may be worth at most, in the base currency, major units.
    """

    share: float
    most_amount: float
    _key: bytes

    @classmethod
    def of(cls, share: float, most_amount: float, key: bytes) -> Self | None:
        """None for a share of 0. key: of any length; who has it can tell what will be let through."""
        return cls(share, most_amount, blake2b(key, person=_PERSON).digest()) if share else None

    def lets_through(self, user_id: str, transaction_id: str, amount: float) -> bool:
        """Whether a would-be decline is in the group. amount: in the base currency; NaN, where there is no rate, never is.

        >>> ControlGroup.of(1.0, 50.0, b"key").lets_through("u", "t", 50.0)
        True
        >>> ControlGroup.of(1.0, 50.0, b"key").lets_through("u", "t", 50.01)
        False
        """
        if not amount <= self.most_amount:
            return False
        name = f"{len(user_id)}:{user_id}{transaction_id}".encode()
        drawn = int.from_bytes(blake2b(name, digest_size=8, key=self._key).digest(), "little")
        return drawn / _ALL < self.share


def weights_of(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How many transactions each stands for, (n,), from the share of its like that was let through; NaN: of no control group.

    >>> weights_of(np.array([0.02, np.nan])).tolist()
    [50.0, 1.0]
    """
    weights: npt.NDArray[np.float64] = 1.0 / np.where(np.isnan(shares), 1.0, shares)
    return weights
