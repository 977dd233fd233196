"""Why an approval was one, worked out afterwards from its evidence."""

from typing import Any

import numpy as np
import orjson
import pytest
from typer.testing import CliRunner

from assay.deploy import cli, decision_command
from assay.deploy.decision_command import explanation
from assay.deploy.explained import explained
from assay.models.judge import Judge
from assay.models.rules import Rules
from assay.schemas.decision import Tier, encode_decision, encode_digests, encode_model
from assay.schemas.errors import BundleError, InputError
from assay.schemas.evidence import encode_evidence
from assay.schemas.source import Source
from assay.schemas.transaction import Transaction
from assay.streams.settings import Settings
from assay.tables.features import features_digest

SOURCE = Source("transactions", 0, 7)
DIGESTS = encode_digests(None, None, None, None, None)


def published(verdicts: Any, features: Any, version: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Decision and evidence as they are read back, of the only row."""
    tier = verdicts.tier
    decision = encode_decision(
        transaction_id="t", user_id="u", fraud_score=verdicts.score[0], action=verdicts.action[0], reasons=verdicts.reasons[0],
        rules=verdicts.rules[0], model=version and encode_model(version, "champion", verdicts.members[0]), digests=DIGESTS,
        tier=tier, late_event=False, deadline_missed=False, decided_ms=9, appended_ms=8, worker="w", generation=1,
        source=SOURCE,
    )  # fmt: skip
    evidence = encode_evidence(
        transaction_id="t", user_id="u", source=SOURCE, appended_ms=8, tier=tier, digests=DIGESTS,
        features_digest=features_digest(), features=features[0], ages_ms={}, entity_sequences=None,
    )  # fmt: skip
    return orjson.loads(decision), orjson.loads(evidence)


@pytest.fixture
def row(made_up):
    return made_up[0][5:6].copy()


@pytest.fixture
def settings(bundle):
    return Settings(bundle=bundle.path)


def judged(bundle, row, tier, asked=False):
    transaction = {
        "transaction_id": "t",
        "user_id": "u",
        "amount": "1",
        "currency": "EUR",
        "timestamp": 0,
        "merchant": {"id": "m"},
    }
    judge, one = Judge(bundle, Rules((), "none")), Transaction.model_validate(transaction | {"merchant": {"id": "m"}})
    return judge.judge([one], row, tier, np.array([asked]))


@pytest.mark.parametrize("tier", [Tier.FULL, Tier.NO_ENTITIES, Tier.LEAD_MODEL])
def test_it_is_what_the_decision_would_have_said(bundle, row, settings, tier):
    decision, evidence = published(judged(bundle, row, tier), row, bundle.version)
    reasons = explained(decision, evidence, settings)
    assert reasons
    assert reasons == judged(bundle, row, tier, asked=True).reasons[0]


def test_without_a_score_there_is_nothing_to_explain(bundle, row, settings):
    assert explained(*published(judged(bundle, row, Tier.RULES_ONLY), row, None), settings) == []


def test_another_bundle_explains_nothing(bundle, row, settings):
    with pytest.raises(BundleError, match="another version"):
        explained(*published(judged(bundle, row, Tier.FULL), row, "0" * 64), settings)


def test_evidence_that_is_gone_or_of_other_features_is_said(bundle, row, settings):
    decision, evidence = published(judged(bundle, row, Tier.FULL), row, bundle.version)
    with pytest.raises(InputError, match="not there"):
        explained(decision, None, settings)
    with pytest.raises(InputError, match="another feature list"):
        explained(decision, evidence | {"features_digest": "0" * 64}, settings)


def test_why_it_can_not_be_explained_is_said_beside_the_decision(bundle, row, settings):
    decision, _ = published(judged(bundle, row, Tier.FULL), row, bundle.version)
    assert "its evidence is not there" in explanation({"decision": decision, "evidence": None}, settings)["not_explained"]


def test_what_a_rule_decided_is_explained_by_the_score_too_and_what_is_explained_stays(bundle, row, settings):
    decision, evidence = published(judged(bundle, row, Tier.FULL), row, bundle.version)
    by_rule = {"code": "rule_x", "text": "on the allow list", "weight": 0.0}
    found = {"decision": decision | {"explanation": [by_rule]}, "evidence": evidence}
    first, *others = explanation(found, settings)["explained"]
    assert first == by_rule
    assert others
    found["decision"] |= {"explanation": others}
    assert explanation(found, settings) == {}


def test_a_decision_that_can_not_be_explained_is_shown_and_ends_with_2(bundle, row, settings, monkeypatch):
    decision, _ = published(judged(bundle, row, Tier.FULL), row, bundle.version)

    async def find(*_: object) -> dict[str, Any]:
        return {"decision": decision, "evidence": None, "at": {}}

    monkeypatch.setattr(decision_command, "_find", find)
    done = CliRunner().invoke(cli.app, ["decision", "u", "t", "--explain", "--json"])
    assert (done.exit_code, orjson.loads(done.stdout)["decision"]) == (2, decision)
    assert "its evidence is not there" in done.stderr
