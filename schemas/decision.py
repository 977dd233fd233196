"""A decision: the verdict as published, and the error that a refused request gets in its place.

`encode_decision` is the hot path: plain values in, bytes out, the order of fields fixed, so that equal decisions are
equal bytes. `Decision` is the same for readers.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from assay.schemas.instant import Instant
from assay.schemas.limits import MAX_CACHED_TEXTS
from assay.schemas.source import Source

SCORE_DECIMALS = 6


class _OpenEnum(StrEnum):
    """Values that may become more: a schema names those of today and allows any text, so that nobody's validation fails."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: object, handler: object) -> dict[str, Any]:
        description = (cls.__doc__ or "").split("\n\n", 1)[0]
        return {"title": cls.__name__, "description": description, "type": "string", "examples": list(cls)}


class Action(_OpenEnum):
    """What the checkout is told to do: approve, review or decline. A reader treats one that it does not know as a review."""

    APPROVE = "approve"
    REVIEW = "review"
    DECLINE = "decline"

    @classmethod
    def _missing_(cls, value: object) -> "Action":
        return cls.REVIEW


class Tier(_OpenEnum):
    """How much of the system answered: `Tier.FULL` is the greatest. One that a reader does not know counts as `DEFAULT`.

    >>> Tier.FULL > Tier.RULES_ONLY
    True
    """

    REFUSED = "refused"  # only in an error reply
    DEFAULT = "default"
    RULES_ONLY = "rules_only"
    LEAD_MODEL = "lead_model"
    NO_ENTITIES = "no_entities"
    FULL = "full"

    @classmethod
    def _missing_(cls, value: object) -> "Tier":
        return cls.DEFAULT

    @property
    def rank(self) -> int:
        """0 (refused) to 5 (full)."""
        return _RANKS[self.value]

    # Else they would compare as the strings that they also are.
    def __lt__(self, other: str) -> bool:
        return self.rank < Tier(other).rank

    def __le__(self, other: str) -> bool:
        return self.rank <= Tier(other).rank

    def __gt__(self, other: str) -> bool:
        return self.rank > Tier(other).rank

    def __ge__(self, other: str) -> bool:
        return self.rank >= Tier(other).rank


_RANKS = {tier.value: rank for rank, tier in enumerate(Tier)}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class Reason(_Part):
    """What weighed on the score."""

    code: Annotated[str, Field(description="stable name of the feature or rule")]
    text: Annotated[str, Field(description="the same for people")]
    weight: Annotated[float, Field(description="log-odds that it added")]


class ModelRef(_Part):
    """Which models scored."""

    version: Annotated[str, Field(description="digest of the bundle")]
    role: Annotated[str, Field(description="champion or challenger")] = "champion"
    member_scores: Annotated[list[float | None], Field(description="probability by each model; null where it failed")] = []


class Digests(_Part):
    """What it takes to recompute a decision. Null where there was none."""

    bundle: str | None = None
    rules: str | None = None
    lists: str | None = None
    thresholds: str | None = None
    rates: str | None = None


class DecidedBy(_Part):
    """Which worker decided."""

    worker: str
    generation: Annotated[int, Field(description="of the consumer group, when it took the partition over")]


class SourceRef(_Part):
    """The transaction's record."""

    topic: str
    partition: int
    offset: int


class Decision(_Part):
    """One verdict, as it is read. Unknown fields are ignored: fields are added, never removed, renamed or retyped."""

    transaction_id: str
    user_id: str
    fraud_score: Annotated[float | None, Field(ge=0, le=1, description="calibrated probability; null without a model")]
    action: Action
    explanation: Annotated[list[Reason], Field(description="at most 4, heaviest first")]
    rules: Annotated[list[str], Field(description="ids of the rules that fired and decided; limit:user, limit:producer")]
    model: ModelRef | None
    digests: Digests
    tier: Tier
    late_event: Annotated[bool, Field(description="the payment happened long before its record was appended")]
    deadline_missed: Annotated[bool, Field(description="the caller had gone when it was decided")]
    decided_at: Instant
    latency_ms: Annotated[int, Field(description="from the append of the record to the decision")]
    decided_by: DecidedBy
    source: SourceRef
    control_share: Annotated[
        float | None,
        Field(description="only on a would-be decline that is let through to learn what it is: the share of those that are"),
    ] = None


class ErrorDetail(_Part):
    """Why a request was refused."""

    code: str
    message: str
    field: str


class ErrorReply(_Part):
    """What a refused request gets in place of a decision; who reads only `action` reads a review."""

    action: Action
    tier: Tier
    error: ErrorDetail
    transaction_id: str | None = None


_REPLY: TypeAdapter[Decision | ErrorReply] = TypeAdapter(Decision | ErrorReply)


def read_reply(value: bytes) -> Decision | ErrorReply:
    """A reply's body, or a decision's. Raises ValueError (pydantic's ValidationError) for anything else."""
    return _REPLY.validate_json(value)


def encode_digests(
    bundle: str | None, rules: str | None, lists: str | None, thresholds: str | None, rates: str | None
) -> orjson.Fragment:
    """Digests as they stand in a decision and in evidence: once for each change of them, not once for each decision."""
    digests = {"bundle": bundle, "rules": rules, "lists": lists, "thresholds": thresholds, "rates": rates}
    return orjson.Fragment(orjson.dumps(digests))


def encode_model(version: str, role: str, member_scores: Iterable[float]) -> dict[str, Any]:
    """Which models scored, for `encode_decision`. NaN, where a member failed, becomes null."""
    return {
        "version": version,
        "role": role,
        "member_scores": [round(score, SCORE_DECIMALS) for score in member_scores],
    }


def encode_decision(
    *,
    transaction_id: str,
    user_id: str,
    fraud_score: float | None,
    action: Action,
    reasons: Sequence[tuple[str, str, float]],
    rules: Sequence[str],
    model: Mapping[str, Any] | None,
    digests: orjson.Fragment,
    tier: Tier,
    late_event: bool,
    deadline_missed: bool,
    decided_ms: int,
    appended_ms: int,
    worker: str,
    generation: int,
    source: Source,
    control_share: float | None = None,
) -> bytes:
    """A decision's bytes.

    `fraud_score` None or NaN is null; `reasons` are (code, text, log-odds), heaviest first; `model` is what `encode_model`
    returns, or None in the tiers that have none; times are epoch milliseconds.
    """
    control = {} if control_share is None else {"control_share": control_share}
    return orjson.dumps(
        {
            "transaction_id": transaction_id,
            "user_id": user_id,
            "fraud_score": None if fraud_score is None else round(fraud_score, SCORE_DECIMALS),
            "action": action,
            "explanation": [
                {"code": code, "text": text, "weight": round(weight, SCORE_DECIMALS)} for code, text, weight in reasons
            ],
            "rules": rules,
            "model": model,
            "digests": digests,
            "tier": tier,
            "late_event": late_event,
            "deadline_missed": deadline_missed,
            "decided_at": _moment(decided_ms),
            "latency_ms": decided_ms - appended_ms,
            "decided_by": {"worker": worker, "generation": generation},
            "source": {"topic": source.topic, "partition": source.partition, "offset": source.offset},
            **control,
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )


def decided_for(decision: bytes) -> Source:
    """The transaction that a decision was made for; what repeats it was made from another record."""
    source = orjson.loads(decision)["source"]
    return Source(source["topic"], source["partition"], source["offset"])


@lru_cache(MAX_CACHED_TEXTS)
def _moment(ms: int) -> str:
    return str(Instant(ms, 0))
