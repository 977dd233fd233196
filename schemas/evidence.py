"""Evidence: what a decision was made from, enough to recompute it. One record for each decision, off the answer path."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from assay.schemas.decision import Digests, SourceRef, Tier
from assay.schemas.source import Source

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Evidence(BaseModel):
    """What one decision was made from, as it is read."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    transaction_id: str
    user_id: str
    source: SourceRef
    appended_ms: Annotated[int, Field(description="append time of the transaction's record: epoch, milliseconds")]
    tier: Tier
    digests: Digests
    features_digest: Annotated[str, Field(description="of the feature list: says what each value is")]
    features: Annotated[list[float | None], Field(description="values in the list's order; null: absent or unavailable")]
    ages_ms: Annotated[
        dict[str, float | None], Field(description="how old what features were read from was, by source; and by batch feature")
    ]
    entity_sequences: Annotated[
        list[int] | None,
        Field(description="by instrument, bin, merchant, device, address: which of its observations this was; 0 where absent"),
    ]
    risk_sequences: Annotated[
        list[int] | None,
        Field(
            description="by user, instrument, bin, merchant, device, address: how many changes its risk row had seen; "
            "0 where there was none, null where they were not read"
        ),
    ] = None


def encode_evidence(
    *,
    transaction_id: str,
    user_id: str,
    source: Source,
    appended_ms: int,
    tier: Tier,
    digests: orjson.Fragment,
    features_digest: str,
    features: "npt.NDArray[np.float32] | Sequence[float]",
    ages_ms: Mapping[str, float],
    entity_sequences: "npt.NDArray[np.int64] | Sequence[int] | None",
    risk_sequences: "npt.NDArray[np.int64] | Sequence[int] | None" = None,
) -> bytes:
    """The bytes of one decision's evidence.

    `features` is one row of the feature matrix, C-contiguous: float32 is written with the digits that bring the same
    float32 back, NaN as null. `entity_sequences` has five numbers, or is None where the entities did not answer;
    `risk_sequences` has six.
    """
    evidence: dict[str, Any] = {
        "transaction_id": transaction_id,
        "user_id": user_id,
        "source": {"topic": source.topic, "partition": source.partition, "offset": source.offset},
        "appended_ms": appended_ms,
        "tier": tier,
        "digests": digests,
        "features_digest": features_digest,
        "features": features,
        "ages_ms": ages_ms,
        "entity_sequences": entity_sequences,
        "risk_sequences": risk_sequences,
    }
    return orjson.dumps(evidence, option=orjson.OPT_SERIALIZE_NUMPY)


CHANGE_HEADER = "assay-change"  # on evidence of a change, which is no decision's: outcomes or verdicts


def is_change(headers: Sequence[tuple[str, bytes | None]]) -> bool:
    """Whether a record of the evidence topic, by its headers, is a `ChangeEvidence`, not the `Evidence` of a decision."""
    return stream_of(headers) is not None


def stream_of(headers: Sequence[tuple[str, bytes | None]]) -> bytes | None:
    """What a change came from, by the headers of its evidence: outcomes or verdicts. None of the evidence of a decision."""
    return next((value or b"" for name, value in headers if name == CHANGE_HEADER), None)


class Counts(BaseModel):
    """Differences: a reversal takes back what it reverses."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    issuer_declines: int
    verdicts: Annotated[int, Field(description="our own declines, from the tier full")]
    disputes: int
    frauds: int
    thousandths: Annotated[float, Field(description="amount of fraud, in thousandths of a major unit of the base currency")]


class ChangeEvidence(BaseModel):
    """How what became of one transaction changed the risk windows of its entities, as it is read."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    transaction_id: str
    user_id: str
    outcome_id: Annotated[str | None, Field(description="what made it known; null for our own verdict")]
    source: Annotated[SourceRef, Field(description="record of the outcome; of the transaction for our own verdict")]
    time_ms: Annotated[int, Field(description="event time of the transaction: epoch, milliseconds")]
    change: Counts
    risk_sequences: Annotated[
        list[int],
        Field(
            description="by user, instrument, bin, merchant, device, address: which change of its row this was; 0 where absent"
        ),
    ]


def encode_change(
    *,
    transaction_id: str,
    user_id: str,
    outcome_id: str | None,
    source: Source,
    time_ms: int,
    change: Mapping[str, float],
    risk_sequences: "npt.NDArray[np.int64] | Sequence[int]",
) -> bytes:
    """The bytes of one change's evidence. `risk_sequences` has six numbers."""
    evidence: dict[str, Any] = {
        "transaction_id": transaction_id,
        "user_id": user_id,
        "outcome_id": outcome_id,
        "source": {"topic": source.topic, "partition": source.partition, "offset": source.offset},
        "time_ms": time_ms,
        "change": change,
        "risk_sequences": risk_sequences,
    }
    return orjson.dumps(evidence, option=orjson.OPT_SERIALIZE_NUMPY)
