"""Reasons: what moved the score, as XGBoost's approximate contributions say, in words."""

import numpy as np
import pytest
import xgboost

from assay.models.forest import walk
from assay.models.reasons import LEAST_WEIGHT, Catalogue, explain
from assay.models.wordings import worded
from assay.schemas.decision import Tier
from assay.schemas.errors import BundleError
from assay.schemas.transaction import Channel, Kind
from assay.tables.features import FEATURE_COUNT, FEATURES, MODEL_FEATURES, NAMES, Feature, Origin


@pytest.fixture(scope="module")
def catalogue():
    return Catalogue.shipped()


def _text(catalogue, feature, value):
    return catalogue.word(NAMES.index(feature), value)


def test_contributions_are_those_of_xgboost_for_all_members_together(bundle, made_up):
    features = made_up[0][:500, :MODEL_FEATURES].copy()
    matrix = xgboost.DMatrix(features)
    expected = sum(
        xgboost.Booster({"nthread": 1}, model_file=bundle.path / member.file).predict(
            matrix, pred_contribs=True, approx_contribs=True
        )[:, :-1]
        for member in bundle.manifest.members
    )
    assert walk(bundle.ensemble.forest, features)[1] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("tier", [Tier.FULL, Tier.LEAD_MODEL])
def test_contributions_add_up_to_the_log_odds_of_the_score(bundle, made_up, tier):
    score, _, contributions = bundle.ensemble.explained(made_up[0][:200], tier)
    log_odds = np.log(score / (1 - score))
    common = log_odds - contributions.sum(axis=1, dtype=np.float64)
    sure = (score > 0.001) & (score < 0.999)  # six decimals say little about the rest
    assert common[sure] == pytest.approx(np.full(sure.sum(), common[sure].mean()), abs=2e-3)


def test_the_heaviest_come_first_with_their_sign():
    contributions = np.zeros((1, FEATURE_COUNT), np.float32)
    contributions[0, [3, 5, 8, 9, 20]] = 0.2, -0.9, 0.5, 0.1, 0.3
    columns, weights = explain(contributions, np.ones_like(contributions))
    assert columns.tolist() == [[5, 8, 20, 3]]
    assert weights[0] == pytest.approx([-0.9, 0.5, 0.3, 0.2])


def test_what_is_not_known_is_no_reason(catalogue):
    contributions = np.full((1, FEATURE_COUNT), 0.0, np.float32)
    contributions[0, :2] = 3.0, 1.0
    features = np.zeros_like(contributions)
    features[0, 0] = np.nan
    columns, weights = explain(contributions, features)
    assert columns.tolist() == [[1, -1, -1, -1]]
    assert [reason.code for reason in catalogue.reasons(columns, weights, features)[0]] == ["KIND"]


def test_what_hardly_weighs_is_left_out(catalogue):
    features = np.zeros((1, FEATURE_COUNT), np.float32)
    contributions = features.copy()
    contributions[0, :3] = LEAST_WEIGHT * 2, -LEAST_WEIGHT * 1.5, LEAST_WEIGHT / 2
    reasons = catalogue.reasons(*explain(contributions, features), features)[0]
    assert [(reason.code, reason.weight) for reason in reasons] == [("AMOUNT", 0.1), ("KIND", -0.075)]


@pytest.mark.parametrize(
    ("feature", "value", "code", "text"),
    [
        ("amount_z", 8.3, "AMOUNT_Z_SCORE", "amount is 8.3 deviations above this user's mean"),
        ("amount_z", -1.25, "AMOUNT_Z_SCORE", "amount is 1.2 deviations below this user's mean"),
        ("sum_1h", 12345.5, "SPENT_1_HOUR", "this user spent 12,345.50 in the last hour"),
        ("count_1m", 1.0, "ATTEMPTS_1_MINUTE", "only attempt by this user in the last minute"),
        ("count_1m", 9.0, "ATTEMPTS_1_MINUTE", "9 attempts by this user in the last minute"),
        ("device_count", 0.0, "DEVICE_HISTORY", "user never paid with this device before"),
        ("device_count", -1.0, "DEVICE_HISTORY", "no device is given"),
        ("since_last_s", 90_000.0, "TIME_SINCE_LAST", "25 hours since this user's last attempt"),
        ("since_last_s", 4.0, "TIME_SINCE_LAST", "4 seconds since this user's last attempt"),
        ("local_hour", 3.0, "LOCAL_HOUR", "it is 03:00 local time"),
        ("category", 742.0, "MERCHANT_CATEGORY", "merchant category is 0742"),
        ("speed_kmh", 2000.4, "TRAVEL_SPEED", "2,000 km an hour since the card was last present"),
        ("instrument_users_1h", 7.0, "INSTRUMENT_USERS_1_HOUR", "7 users with this instrument in the last hour"),
    ],
)
def test_a_text_holds_the_value(catalogue, feature, value, code, text):
    assert _text(catalogue, feature, value) == (code, text)


def test_every_feature_has_a_code_of_its_own_and_a_text_for_absent(catalogue):
    codes = [catalogue.word(index, 2.0)[0] for index in range(FEATURE_COUNT)]
    assert len(set(codes)) == FEATURE_COUNT
    for index, feature in enumerate(FEATURES):
        for value in {feature.absent, feature.never} & {-1.0}:
            assert "-1" not in catalogue.word(index, value)[1], feature.name


@pytest.mark.parametrize(
    ("measure", "window_s", "value", "text"),
    [
        ("sum", 86_400, 1234.5, "what it measures, in 24 hours: 1,234.50"),
        ("fraud_share", 7 * 86_400, 0.0312, "what it measures, in 7 days: 3.1%"),
        ("users", 60, 4.0, "what it measures, in 1 minute: 4"),
        ("", None, 0.25, "what it measures: 0.25"),
        ("", None, -1.0, "no bin is given"),
    ],
)
def test_a_feature_without_a_text_is_worded_by_what_it_measures(measure, window_s, value, text):
    feature = Feature("a", "what it measures", "bin", window_s, Origin.ENTITY, 0, 0, -1.0, 0.0, measure=measure)
    assert worded(feature).word(value) == text


def test_kinds_and_channels_are_named_in_the_order_of_the_schema(catalogue):
    words = {"preauth": "pre-authorisation", "ecom": "online", "pos": "point of sale", "atm": "cash"}
    for index, kind in enumerate(Kind):
        assert words.get(kind, kind) in _text(catalogue, "kind", float(index))[1]
    for index, channel in enumerate(Channel, 1):
        assert words.get(channel, channel) in _text(catalogue, "channel", float(index))[1]


@pytest.mark.parametrize("content", [b"", b"[", b"amount: 3", b"amount: {code: lower, as: money, text: x}", b"\xff", b"- a"])
def test_a_catalogue_that_is_none_is_refused(content, tmp_path):
    with pytest.raises(BundleError, match="reasons"):
        Catalogue.parse(content, tmp_path / "reasons.yaml")
