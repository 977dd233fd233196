"""How good scores are: ranking, and money at thresholds."""

from typing import Any

import numpy as np
import numpy.typing as npt

from assay.models.costs import Costs

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def ranking(scores: Floats, fraud: Flags) -> dict[str, float | None]:
    """Average precision and area under the ROC curve; None where there is only one class."""
    from sklearn.metrics import average_precision_score, roc_auc_score  # a second to import, and workers never need it

    if fraud.all() or not fraud.any():
        return {"average_precision": None, "auc": None}
    return {
        "average_precision": round(float(average_precision_score(fraud, scores)), 6),
        "auc": round(float(roc_auc_score(fraud, scores)), 6),
    }


def at_thresholds(scores: Floats, amounts: Floats, fraud: Flags, review: float, decline: float, costs: Costs) -> dict[str, Any]:
    """What two thresholds do to these transactions; see `outcome`."""
    declined = scores >= decline
    return {"review_from": review, "decline_from": decline} | outcome(
        declined, (scores >= review) & ~declined, amounts, fraud, costs
    )


def outcome(declined: Flags, reviewed: Flags, amounts: Floats, fraud: Flags, costs: Costs) -> dict[str, Any]:
    """Fraud caught, genuine payments troubled, and money saved, in the base currency, less what it cost.

    Fraud under review counts as caught with the amount that a review is assumed to stop.
    """
    amounts = np.nan_to_num(amounts)
    caught = fraud & (declined | reviewed)
    stopped = float(amounts[fraud & declined].sum() + costs.review_catches * amounts[fraud & reviewed].sum())
    saved = costs.of_declining(amounts, fraud)[declined].sum() + costs.of_reviewing(amounts, fraud)[reviewed].sum()
    return {
        "transactions": len(fraud),
        "fraud": int(fraud.sum()),
        "fraud_amount": round(float(amounts[fraud].sum()), 2),
        "fraud_caught": int(caught.sum()),
        "fraud_caught_share": round(float(caught.sum() / max(1, fraud.sum())), 4),
        "fraud_amount_stopped": round(stopped, 2),
        "declined": int(declined.sum()),
        "reviewed": int(reviewed.sum()),
        "genuine_declined": int((declined & ~fraud).sum()),
        "genuine_reviewed": int((reviewed & ~fraud).sum()),
        "money_saved": round(float(saved), 2),
    }
