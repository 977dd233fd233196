"""Decisions, evidence and outcomes: what is written is what is read."""

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from assay.schemas.decision import (
    Action,
    Decision,
    ErrorReply,
    Tier,
    encode_decision,
    encode_digests,
    encode_model,
    read_reply,
)
from assay.schemas.evidence import Evidence, encode_evidence
from assay.schemas.instant import Instant
from assay.schemas.outcome import Detail, Outcome, Status, encode_outcome, read_outcome
from assay.schemas.source import Source

DIGESTS = encode_digests("b", "r", None, "t", "x")
VERDICT: dict[str, Any] = {
    "transaction_id": "t-1",
    "user_id": "ü-1",
    "fraud_score": 0.12345678,
    "action": Action.REVIEW,
    "reasons": [("amount", "Unusual amount", 1.23456789), ("night", "At night", -0.5)],
    "rules": ("large",),
    "model": encode_model("b", "champion", (0.1, 0.2, float("nan"))),
    "digests": DIGESTS,
    "tier": Tier.FULL,
    "late_event": True,
    "deadline_missed": False,
    "decided_ms": 1_772_362_800_250,
    "appended_ms": 1_772_362_800_200,
    "worker": "w-1",
    "generation": 3,
    "source": Source("transactions", 3, 41),
}


def encoded(**changes: Any) -> bytes:
    return encode_decision(**(VERDICT | changes))


def test_the_order_of_fields_is_the_contracts() -> None:
    assert [*json.loads(encoded(control_share=0.02))] == [*Decision.model_fields]
    assert [*Decision.model_fields] == [
        "transaction_id", "user_id", "fraud_score", "action", "explanation", "rules", "model", "digests", "tier", "late_event",
        "deadline_missed", "decided_at", "latency_ms", "decided_by", "source", "control_share",
    ]  # fmt: skip


def test_what_is_encoded_is_what_a_decision_writes() -> None:
    decision = Decision.model_validate_json(encoded(control_share=0.02))
    assert json.loads(decision.model_dump_json()) == json.loads(encoded(control_share=0.02))


def test_only_what_the_control_group_let_through_says_so() -> None:
    assert "control_share" not in json.loads(encoded())
    assert Decision.model_validate_json(encoded()).control_share is None


def test_a_decision_reads_as_its_verdict() -> None:
    decision = read_reply(encoded())
    assert isinstance(decision, Decision)
    assert (decision.transaction_id, decision.user_id, decision.fraud_score) == ("t-1", "ü-1", 0.123457)
    assert (decision.action, decision.tier, decision.rules) == (Action.REVIEW, Tier.FULL, ["large"])
    assert [(reason.code, reason.weight) for reason in decision.explanation] == [("amount", 1.234568), ("night", -0.5)]
    assert decision.model is not None
    assert decision.model.member_scores == [0.1, 0.2, None]
    assert decision.digests.bundle == "b"
    assert decision.digests.lists is None
    assert decision.decided_at == Instant(1_772_362_800_250)
    assert (decision.latency_ms, decision.decided_by.generation, decision.source.offset) == (50, 3, 41)
    assert json.loads(encoded())["decided_at"] == "2026-03-01T11:00:00.250Z"


@pytest.mark.parametrize("score", [None, float("nan")])
def test_no_score_is_null(score: float | None) -> None:
    assert json.loads(encoded(fraud_score=score, model=None))["fraud_score"] is None


def test_numbers_of_numpy_are_written_as_numbers() -> None:
    assert encoded(fraud_score=np.float64(0.12345678)) == encoded()


@given(st.floats(0, 1), st.integers(0, 10**13), st.text(max_size=20))
def test_equal_verdicts_are_equal_bytes(score: float, ms: int, name: str) -> None:
    assert encoded(fraud_score=score, decided_ms=ms, worker=name) == encoded(fraud_score=score, decided_ms=ms, worker=name)
    assert json.loads(encoded(fraud_score=score))["fraud_score"] == round(score, 6)


def test_a_reader_takes_what_it_does_not_know_for_the_cautious_choice() -> None:
    later = json.loads(encoded()) | {"action": "step_up", "tier": "newer", "another": [1]}
    decision = Decision.model_validate_json(json.dumps(later))
    assert (decision.action, decision.tier) == (Action.REVIEW, Tier.DEFAULT)


def test_tiers_are_ordered() -> None:
    assert sorted([Tier.FULL, Tier.DEFAULT, Tier.LEAD_MODEL, Tier.REFUSED, Tier.NO_ENTITIES, Tier.RULES_ONLY]) == [*Tier]
    assert max(Tier) is Tier.FULL
    assert Tier.NO_ENTITIES >= Tier.LEAD_MODEL > Tier.RULES_ONLY
    assert not Tier.FULL <= Tier.NO_ENTITIES
    assert Tier.FULL == "full"


def test_a_refusal_reads_as_an_error() -> None:
    error = {"code": "invalid", "message": "m", "field": "f"}
    reply = read_reply(json.dumps({"action": "review", "tier": "refused", "error": error, "transaction_id": None}).encode())
    assert isinstance(reply, ErrorReply)
    assert (reply.action, reply.tier, reply.error.code) == (Action.REVIEW, Tier.REFUSED, "invalid")
    for bad in (b"", b"{}", b"[]", b"\xff"):
        with pytest.raises(ValidationError):
            read_reply(bad)


@pytest.mark.parametrize("sequences", [np.arange(4), None])
def test_evidence_brings_the_same_floats_back(sequences: Any) -> None:
    features = np.array([0.1, np.nan, -1e30, 3, np.float32(1) / 3], dtype=np.float32)
    written = encode_evidence(
        transaction_id="t-1", user_id="u-1", source=Source("transactions", 3, 41), appended_ms=7, tier=Tier.FULL,
        digests=DIGESTS, features_digest="f", features=features, ages_ms={"profile": 1.5}, entity_sequences=sequences,
    )  # fmt: skip
    assert [*json.loads(written)] == [*Evidence.model_fields]
    evidence = Evidence.model_validate_json(written)
    again = np.array([np.nan if value is None else value for value in evidence.features], dtype=np.float32)
    np.testing.assert_array_equal(again, features)
    assert evidence.entity_sequences == (None if sequences is None else [0, 1, 2, 3])
    assert (evidence.appended_ms, evidence.ages_ms, evidence.digests.rules) == (7, {"profile": 1.5}, "r")


OUTCOME = {
    "outcome_id": "o-1",
    "user_id": "u-1",
    "transaction_id": "t-1",
    "status": "fraud",
    "known_at": "2026-03-01T12:00:00+01:00",
}


def test_an_outcome_comes_back_from_its_bytes() -> None:
    sent = Outcome(
        outcome_id="o-1", user_id="u-1", transaction_id="t-1", status=Status.DISPUTED, detail=Detail(fraud_type="stolen"),
        amount=Decimal("12345678901.23"), known_at=Instant(1_772_362_800_250, 60), supersedes="o-0",
    )  # fmt: skip
    assert read_outcome(encode_outcome(sent)) == sent
    assert "issuer_code" not in encode_outcome(sent).decode()
    assert read_outcome(json.dumps(OUTCOME | {"amount": 12.1}).encode()).amount == Decimal("12.1")


@pytest.mark.parametrize(
    "changes", [{"status": "unknown"}, {"known_at": "soon"}, {"amount": -1}, {"user_id": 1}, {"outcome_id": ""}]
)
def test_an_outcome_that_is_none_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        read_outcome(json.dumps(OUTCOME | changes).encode())
    with pytest.raises(ValueError):  # noqa: PT011  # of two kinds
        read_outcome(b"\xff")
