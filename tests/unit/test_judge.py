"""The judge: score, rules, policy and reasons of a micro-batch, in every tier."""

import numpy as np
import pytest

from assay.agents.steer import InForce
from assay.models.judge import Judge
from assay.models.reasons import Catalogue
from assay.models.rules import Rules
from assay.schemas.decision import Action, Tier
from assay.schemas.limits import MAX_BATCH_TRANSACTIONS
from assay.schemas.transaction import Transaction
from assay.tables.features import FEATURES, NAMES, PROFILE_FEATURES
from assay.tables.rates import Rates


@pytest.fixture(scope="module")
def judge(bundle):
    return Judge(bundle, Rules.load())


@pytest.fixture(scope="module")
def transactions():
    return [
        Transaction.model_validate(
            {
                "transaction_id": f"t{number}",
                "user_id": f"u{number % 7}",
                "amount": "12.50",
                "currency": "EUR",
                "timestamp": 1_767_225_600_000 + number,
                "merchant": {"id": "m", "category": "5411"},
            }
        )
        for number in range(256)
    ]


@pytest.fixture
def features(made_up):
    return made_up[0][:256].copy()


@pytest.mark.parametrize("tier", [tier for tier in Tier if tier is not Tier.REFUSED])
def test_a_verdict_is_the_same_alone_and_in_a_batch(judge, transactions, features, tier):
    whole = judge.judge(transactions, features, tier)
    for row in (0, 1, 8, 100, 255):
        alone = judge.judge(transactions[row : row + 1], features[row : row + 1], tier)
        assert alone.score.tobytes() == whole.score[row : row + 1].tobytes()
        assert alone.members.tobytes() == whole.members[row : row + 1].tobytes()
        assert (alone.action[0], alone.reasons[0], alone.rules[0]) == (whole.action[row], whole.reasons[row], whole.rules[row])


def test_judging_changes_nothing(judge, transactions, features):
    before = features.tobytes()
    for tier in Tier:
        if tier is not Tier.REFUSED:
            judge.judge(transactions, features, tier)
    assert features.tobytes() == before


def test_without_entities_what_stands_in_their_columns_does_not_matter(judge, transactions, features):
    emptied = features.copy()
    emptied[:, PROFILE_FEATURES:] = np.nan
    first, second = (judge.judge(transactions, rows, Tier.NO_ENTITIES) for rows in (features, emptied))
    assert np.array_equal(first.score, second.score)
    assert (first.action, first.reasons) == (second.action, second.reasons)


def test_a_feature_for_rules_alone_fires_a_rule_and_moves_no_score(bundle, transactions, features, tmp_path):
    name = next(feature.name for feature in FEATURES if not feature.for_models)
    path = tmp_path / "rules.yaml"
    path.write_text(f"rules: [{{id: ours, when: {name} > 2, then: decline, reason: declined before}}]")
    judge, declined = Judge(bundle, Rules.load(path)), features.copy()
    features[:, NAMES.index(name)], declined[:, NAMES.index(name)] = 0.0, 3.0
    before, after = (judge.judge(transactions, rows, Tier.FULL) for rows in (features, declined))
    assert np.array_equal(before.score, after.score)
    assert (set(before.rules), set(after.rules)) == ({()}, {("ours",)})


def test_thresholds_are_those_of_the_tier(bundle, transactions, features):
    judge = Judge(bundle, Rules((), "none"))
    for tier, (review, decline) in bundle.thresholds.items():
        verdicts = judge.judge(transactions, features, tier)
        for score, action in zip(verdicts.score, verdicts.action, strict=True):
            assert action is (Action.DECLINE if score >= decline else Action.REVIEW if score >= review else Action.APPROVE)


@pytest.mark.parametrize(("tier", "action"), [(Tier.RULES_ONLY, Action.APPROVE), (Tier.DEFAULT, Action.REVIEW)])
def test_without_a_model_there_is_no_score(judge, transactions, features, tier, action):
    features[:] = 0.0
    verdicts = judge.judge(transactions, features, tier)
    assert np.isnan(verdicts.score).all()
    assert np.isnan(verdicts.members).all()
    assert set(verdicts.action) == {action}
    assert verdicts.reasons == [[]] * 256


def test_rules_still_decide_without_a_model(judge, transactions, features):
    features[:, NAMES.index("amount")] = 20_000
    features[:, NAMES.index("count_1m")] = 1
    verdicts = judge.judge(transactions, features, Tier.RULES_ONLY)
    assert all(
        "large_amount" in rules or action is Action.DECLINE
        for rules, action in zip(verdicts.rules, verdicts.action, strict=True)
    )
    assert Action.APPROVE not in verdicts.action


def test_a_rule_that_decided_is_the_first_reason(judge, transactions, features):
    features[:] = 0.0
    features[3, NAMES.index("amount")] = 20_000
    verdicts = judge.judge(transactions, features, Tier.RULES_ONLY)
    assert verdicts.rules[3] == ("large_amount",)
    assert verdicts.reasons[3][0].code == "RULE_LARGE_AMOUNT"
    assert verdicts.rules[4] == ()


def test_there_are_at_most_four_reasons(judge, transactions, features):
    verdicts = judge.judge(transactions, features, Tier.FULL)
    lengths = {len(reasons) for reasons in verdicts.reasons}
    assert max(lengths) == 4
    assert any(rules for rules in verdicts.rules)


def test_reviews_and_declines_are_explained_and_approvals_where_it_is_asked_for(bundle, transactions, features):
    asked = np.arange(256) % 2 == 0
    verdicts = Judge(bundle, Rules((), "none")).judge(transactions, features, Tier.FULL, asked)
    assert {Action.APPROVE, Action.DECLINE} <= set(verdicts.action)
    assert [bool(reasons) for reasons in verdicts.reasons] == [
        action is not Action.APPROVE or row % 2 == 0 for row, action in enumerate(verdicts.action)
    ]


def test_asking_for_reasons_changes_nothing_else(judge, transactions, features):
    plain, asked = (judge.judge(transactions, features, Tier.FULL, np.full(256, value)) for value in (False, True))
    assert (plain.action, plain.rules, plain.score.tobytes()) == (asked.action, asked.rules, asked.score.tobytes())
    assert all(
        mine in (theirs, []) or mine[0].code.startswith("RULE_")
        for mine, theirs in zip(plain.reasons, asked.reasons, strict=True)
    )


def test_the_weights_of_features_do_not_grow(judge, transactions, features):
    for reasons in judge.judge(transactions, features, Tier.FULL).reasons:
        weights = [abs(reason.weight) for reason in reasons if not reason.code.startswith("RULE_")]
        assert weights == sorted(weights, reverse=True)


def test_no_transactions_no_verdicts(judge, features):
    for tier in Tier:
        if tier is not Tier.REFUSED:
            assert judge.judge([], features[:0], tier).action == []


def test_warming_up_explains_too_so_that_the_first_decline_compiles_nothing(bundle, monkeypatch):
    explained = []
    plain = Catalogue.reasons
    monkeypatch.setattr(Catalogue, "reasons", lambda self, *rows: explained.append(len(rows[0])) or plain(self, *rows))
    InForce(bundle, Rules((), "none"), Rates.load()).warm()
    assert explained == [1, MAX_BATCH_TRANSACTIONS]
