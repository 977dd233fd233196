"""What fraud and its prevention cost, and the thresholds that cost least.

Money is in the base currency, major units, of the transactions that were judged.
"""

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

Floats = npt.NDArray[np.float64]
NEVER = 2.0  # a threshold that no score reaches


class Costs(BaseModel):
    """The assumptions. They are written into the bundle; training takes other ones."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    declined_genuine: float = Field(5.0, ge=0, description="Goodwill and support for a genuine payment declined.")
    declined_genuine_share: float = Field(0.1, ge=0, le=1, description="Share of its amount that is lost with it.")
    reviewed: float = Field(2.0, ge=0, description="Work for one review, or a step-up.")
    reviewed_genuine_share: float = Field(0.01, ge=0, le=1, description="Share of a genuine amount lost while it is held.")
    review_catches: float = Field(0.8, ge=0, le=1, description="Share of the fraud under review that is stopped.")

    def of_declining(self, amounts: Floats, fraud: npt.NDArray[np.bool_]) -> Floats:
        """Money saved by declining each transaction (n,); negative where it costs."""
        return np.where(fraud, amounts, -(self.declined_genuine + self.declined_genuine_share * amounts))

    def of_reviewing(self, amounts: Floats, fraud: npt.NDArray[np.bool_]) -> Floats:
        """Money saved by reviewing each transaction (n,); negative where it costs."""
        return np.where(fraud, self.review_catches * amounts, -self.reviewed_genuine_share * amounts) - self.reviewed


def best_thresholds(
    scores: Floats,
    amounts: Floats,
    fraud: npt.NDArray[np.bool_],
    costs: Costs,
    most_reviewed: int | None = None,
    weights: Floats | None = None,
) -> tuple[float, float]:
    """(review, decline): the two thresholds, review <= decline, that save most money on these transactions.

    `most_reviewed`: how many of them can be reviewed; None: as many as pay off. `weights` (n,): how often the money of each
    counts; None: once.

    With scores sorted from the highest, declining the first d and reviewing those from d to r saves
    D[d] + R[r] - R[d] with D and R running sums: one pass finds the best pair. Equal scores are never parted.

    >>> best_thresholds(np.array([0.9, 0.5, 0.1]), np.array([100.0, 100.0, 100.0]), np.array([True, False, False]), Costs())
    (0.9, 0.9)
    """
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    times = 1.0 if weights is None else weights[order]
    decline = np.concatenate([[0.0], np.cumsum(times * costs.of_declining(amounts[order], fraud[order]))])
    review = np.concatenate([[0.0], np.cumsum(times * costs.of_reviewing(amounts[order], fraud[order]))])
    # A cut after position i is allowed where the score changes.
    cuts = np.concatenate([[True], ranked[1:] < ranked[:-1], [True]]) if len(ranked) else np.array([True])
    gain = np.where(cuts, decline - review, -np.inf)
    reach = len(gain) if most_reviewed is None else most_reviewed + 1
    best_gain = _highest_of_last(gain, reach)
    reviewed_to = int(np.argmax(np.where(cuts, best_gain + review, -np.inf)))
    first = max(0, reviewed_to + 1 - reach)
    declined_to = first + int(np.argmax(gain[first : reviewed_to + 1]))
    return _threshold(ranked, reviewed_to), _threshold(ranked, declined_to)


def _highest_of_last(values: Floats, count: int) -> Floats:
    """The highest of each value and the count - 1 before it (van Herk 1992: two running maxima in blocks of that length)."""
    blocks = -(-len(values) // count)
    padded = np.full((blocks, count), -np.inf)
    padded.ravel()[: len(values)] = values
    so_far = np.maximum.accumulate(padded, axis=1).ravel()
    to_come = np.maximum.accumulate(padded[:, ::-1], axis=1)[:, ::-1].ravel()
    before = np.concatenate([np.full(count - 1, -np.inf), to_come])[: len(values)]
    highest: Floats = np.maximum(so_far[: len(values)], before)
    return highest


def _threshold(ranked: Floats, count: int) -> float:
    return NEVER if count == 0 else float(ranked[count - 1])
