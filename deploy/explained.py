"""Why a decision is what it is, worked out afterwards from its evidence: approvals are explained on demand."""

from typing import Any

import numpy as np
import orjson

from assay.models.bundle import Bundle
from assay.models.ensemble import seen_in
from assay.models.reasons import Reason
from assay.schemas.decision import Decision
from assay.schemas.errors import InputError
from assay.schemas.evidence import Evidence
from assay.streams.settings import Settings
from assay.tables.features import features_digest


def explained(decision: dict[str, Any], evidence: dict[str, Any] | None, settings: Settings) -> list[Reason]:
    """What weighed on the score, by the very bundle that gave it; none in the tiers without a score.

    Raises InputError where the evidence is gone or of other features, BundleError where the settings name another bundle.
    """
    said = Decision.model_validate_json(orjson.dumps(decision))
    if said.model is None:
        return []
    if evidence is None:
        raise InputError("the decision can't be explained: its evidence is not there (any more)", mend="look at it sooner")
    made_from = Evidence.model_validate_json(orjson.dumps(evidence))
    if made_from.features_digest != features_digest():
        raise InputError(
            "the decision can't be explained: its evidence is of another feature list",
            expected=features_digest(),
            got=made_from.features_digest,
            mend="use the version of Assay that decided",
        )
    bundle = Bundle.load(settings.bundle, version=said.model.version)
    row = np.array([made_from.features], np.float32)  # null is NaN
    seen = seen_in(row, said.tier)
    [reasons] = bundle.catalogue.reasons(bundle.ensemble.contributions(seen, said.tier), seen)
    return reasons
