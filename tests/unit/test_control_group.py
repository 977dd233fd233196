"""The control group: who is let through, what says so, and what training makes of it."""

import numpy as np
import pytest

from assay.models.control_group import ControlGroup
from assay.models.history import read_history
from assay.models.judge import Judge
from assay.models.rules import Rules
from assay.models.training import train_on_features
from assay.schemas.decision import Action, Tier
from assay.schemas.errors import InputError
from assay.schemas.transaction import Transaction
from assay.tables.features import NAMES

COUNT = 4_000
DECLINE_ALL = "rules: [{id: all, when: amount_base >= 0, then: decline, reason: all}]"


def let_through(group: ControlGroup) -> set[int]:
    return {number for number in range(COUNT) if group.lets_through("u", f"t-{number}", 10.0)}


@pytest.fixture
def transactions() -> list[Transaction]:
    body = {"user_id": "u", "amount": "1", "currency": "EUR", "timestamp": 0, "merchant": {"id": "m"}}
    return [Transaction.model_validate(body | {"transaction_id": f"t-{number}"}) for number in range(256)]


@pytest.fixture
def features(made_up):
    features = made_up[0][:256].copy()
    features[:, NAMES.index("amount")] = np.arange(256)
    return features


@pytest.fixture
def rules(tmp_path):
    def load(text: str = DECLINE_ALL) -> Rules:
        (tmp_path / "rules.yaml").write_text(text)
        return Rules.load(tmp_path / "rules.yaml")

    return load


def test_about_the_share_is_let_through_and_always_the_same():
    group = ControlGroup.of(0.05, 50.0, b"key")
    assert abs(len(let_through(group)) - 0.05 * COUNT) < 4 * np.sqrt(0.05 * COUNT)
    assert let_through(ControlGroup.of(0.05, 50.0, b"key")) == let_through(group)


def test_who_is_let_through_depends_on_the_key():
    one, other = (let_through(ControlGroup.of(0.05, 50.0, key)) for key in (b"one", b"other"))
    assert len(one & other) < len(one) / 4


def test_a_share_of_nothing_is_no_group():
    assert ControlGroup.of(0.0, 50.0, b"key") is None


def test_only_would_be_declines_up_to_the_amount_pass_and_are_marked_with_the_share(bundle, transactions, features, rules):
    verdicts = Judge(bundle, rules(), ControlGroup.of(1.0, 50.0, b"key")).judge(transactions, features, Tier.FULL)
    assert verdicts.control == dict.fromkeys(range(51), 1.0)
    assert verdicts.action == [Action.APPROVE] * 51 + [Action.DECLINE] * 205
    assert set(verdicts.rules) == {("all",)}


def test_what_is_not_declined_is_no_business_of_the_group(bundle, transactions, features, rules):
    judges = [Judge(bundle, rules("rules: []"), group) for group in (None, ControlGroup.of(1.0, 1e9, b"key"))]
    plain, marked = (judge.judge(transactions, features, Tier.FULL) for judge in judges)
    declined = [row for row, action in enumerate(plain.action) if action is Action.DECLINE]
    assert list(marked.control) == declined
    assert [marked.action[row] for row in range(256) if row not in declined] == [
        plain.action[row] for row in range(256) if row not in declined
    ]


def test_a_block_list_stands_above_the_group(bundle, transactions, features, rules):
    blocked = rules("rules: [{id: listed, when: amount_base >= 0, then: decline, list: block, reason: listed}]")
    verdicts = Judge(bundle, blocked, ControlGroup.of(1.0, 1e9, b"key")).judge(transactions, features, Tier.FULL)
    assert not verdicts.control


@pytest.mark.parametrize("tier", [Tier.NO_ENTITIES, Tier.RULES_ONLY])
def test_in_other_tiers_nobody_is_let_through(bundle, transactions, features, rules, tier):
    verdicts = Judge(bundle, rules(), ControlGroup.of(1.0, 1e9, b"key")).judge(transactions, features, tier)
    assert not verdicts.control


def test_one_that_stands_for_ten_counts_as_often_in_the_calibration(made_up, tmp_path):
    features, times_ms, fraud = made_up
    plain = train_on_features(features, times_ms, fraud, tmp_path / "plain")
    weighted = train_on_features(features, times_ms, fraud, tmp_path / "weighted", counts=np.where(fraud, 10.0, 1.0))
    held = features[-2000:]
    means = [bundle.ensemble.score(held, Tier.FULL)[0].mean() for bundle in (plain, weighted)]
    assert means[1] > 2 * means[0]
    assert weighted.report["control_group"] == fraud.sum()


def test_marks_without_weight_change_nothing(made_up, tmp_path):
    ones = train_on_features(*made_up, tmp_path / "ones", counts=np.ones(len(made_up[2])))
    assert ones.thresholds == train_on_features(*made_up, tmp_path / "none").thresholds


@pytest.mark.parametrize(("share", "counts"), [("0.02", 0.02), ("", np.nan), ("1", 1.0)])
def test_the_share_comes_from_the_column_of_the_decisions_field(tmp_path, share, counts):
    assert read(tmp_path, share).shares == pytest.approx([counts], nan_ok=True)


@pytest.mark.parametrize("share", ["0", "1.5", "-0.1", "few"])
def test_what_is_no_share_is_refused(tmp_path, share):
    with pytest.raises(InputError, match="control_share is no share"):
        read(tmp_path, share)


def read(folder, share: str):
    path = folder / "rows.csv"
    path.write_text(
        f"transaction_id,user_id,amount,currency,timestamp,merchant.id,fraud,control_share\nt,u,1,EUR,0,m,true,{share}\n"
    )
    return read_history(path, {})
