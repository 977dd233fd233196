"""Reasons: what moved the score, as exact Shapley values say, in words."""

from pathlib import Path

import numpy as np
import pytest
import xgboost
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.models.attribution import attribute, lay_out_paths
from assay.models.forest import explain_margins
from assay.models.reasons import LEAST_WEIGHT, SHIPPED, Catalogue, heaviest
from assay.models.trees import Tree
from assay.models.wordings import worded
from assay.schemas.decision import Tier
from assay.schemas.errors import BundleError
from assay.schemas.transaction import Channel, Kind
from assay.tables.features import FEATURE_COUNT, FEATURES, MODEL_FEATURES, NAMES, Feature, Origin

CODES = Path(__file__).parents[1] / "golden" / "reason_codes.txt"


@pytest.fixture(scope="module")
def catalogue():
    return Catalogue.shipped()


def _text(catalogue, feature, value):
    return catalogue.word(NAMES.index(feature), value)


def test_contributions_are_the_shapley_values_of_xgboost_for_all_members_together(bundle, made_up):
    features = made_up[0][:500, :MODEL_FEATURES].copy()
    matrix = xgboost.DMatrix(features)
    expected = sum(
        xgboost.Booster({"nthread": 1}, model_file=bundle.path / member.file).predict(matrix, pred_contribs=True)[:, :-1]
        for member in bundle.manifest.members
    )
    assert explain_margins(bundle.ensemble.forest, features) == pytest.approx(expected, abs=1e-4)


def test_a_split_that_no_training_row_reached_is_explained_by_the_rest():
    tree = Tree([1, -1, 3, -1, -1], [2, -1, 4, -1, -1], [0.5, -1.0, 2.0, 3.0, 4.0], [0, 0, 1, 0, 0], [1] * 5, [8, 8, 0, 0, 0])
    paths = lay_out_paths([tree], np.array([1], np.int32))
    rows = np.array([[0, 0], [1, 0], [1, 9], [np.nan, np.nan]], np.float32)
    # Without knowledge the tree says -1, since all rows went there; 1 rows end at 3 or 4.
    assert attribute(paths, rows, 2, 1).sum(axis=1)[[0, 3]] == pytest.approx([0.0, 0.0], abs=1e-6)
    assert np.isfinite(attribute(paths, rows, 2, 1)).all()


@pytest.mark.parametrize("tier", [Tier.FULL, Tier.LEAD_MODEL])
def test_contributions_add_up_to_the_log_odds_of_the_score(bundle, made_up, tier):
    score, contributions = (
        bundle.ensemble.score(made_up[0][:200], tier)[0],
        bundle.ensemble.contributions(made_up[0][:200], tier),
    )
    log_odds = np.log(score / (1 - score))
    common = log_odds - contributions.sum(axis=1, dtype=np.float64)
    sure = (score > 0.001) & (score < 0.999)  # six decimals say little about the rest
    assert common[sure] == pytest.approx(np.full(sure.sum(), common[sure].mean()), abs=2e-3)


@pytest.mark.parametrize("tier", [Tier.FULL, Tier.LEAD_MODEL])
def test_contributions_are_the_same_bits_whatever_the_batch(bundle, made_up, tier):
    features = made_up[0][:40]
    whole = bundle.ensemble.contributions(features, tier)
    for size in (1, 7, 16):
        parts = [bundle.ensemble.contributions(features[at : at + size], tier) for at in range(0, 40, size)]
        assert np.concatenate(parts).tobytes() == whole.tobytes()


ALONE = np.arange(6, dtype=np.int16)  # six features, each its own family


def test_the_heaviest_come_first_with_their_sign():
    contributions = np.array([[0.2, -0.9, 0.0, 0.5, 0.1, 0.3]], np.float32)
    columns, weights = heaviest(contributions, np.ones_like(contributions), ALONE)
    assert columns.tolist() == [[1, 3, 5, 0]]
    assert weights[0] == pytest.approx([-0.9, 0.5, 0.3, 0.2])


def test_a_family_takes_one_place_with_the_weight_of_all_and_the_words_of_its_heaviest():
    contributions = np.array([[0.4, 0.5, -0.3, 0.8, 0.1, -0.7]], np.float32)
    columns, weights = heaviest(contributions, np.ones_like(contributions), np.array([0, 0, 0, 1, 2, 2], np.int16))
    assert columns.tolist() == [[3, 1, 5, -1]]
    assert weights[0] == pytest.approx([0.8, 0.6, -0.6, 0.0])


def test_what_is_not_known_is_no_reason():
    contributions = np.array([[3.0, 1.0, 0.0, 0.0, 0.0, 0.0]], np.float32)
    features = np.zeros_like(contributions)
    features[0, 0] = np.nan
    assert heaviest(contributions, features, ALONE)[0].tolist() == [[1, -1, -1, -1]]
    assert heaviest(contributions, features, np.zeros(6, np.int16))[1].tolist() == [[1.0, 0.0, 0.0, 0.0]]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.floats(-5, 5, width=32), min_size=6, max_size=6), min_size=1, max_size=5))
def test_the_heaviest_are_those_of_a_sort(rows):
    contributions = np.array(rows, np.float32)
    columns, weights = heaviest(contributions, np.zeros_like(contributions), ALONE)
    for row, (found, weight) in enumerate(zip(columns, weights, strict=True)):
        expected = np.argsort(-np.abs(contributions[row]), kind="stable")[:4]
        expected = [column for column in expected if contributions[row, column] != 0]
        assert found[: len(expected)].tolist() == expected
        assert (found[len(expected) :] == -1).all()
        assert weight[: len(expected)].tolist() == contributions[row, expected].tolist()


def test_what_hardly_weighs_is_left_out(catalogue):
    features, contributions = np.zeros((1, FEATURE_COUNT), np.float32), np.zeros((1, MODEL_FEATURES), np.float32)
    contributions[0, :3] = LEAST_WEIGHT * 2, -LEAST_WEIGHT * 1.5, LEAST_WEIGHT / 2
    reasons = catalogue.reasons(contributions, features)[0]
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


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[",
        b"amount: 3",
        b"amount: {code: lower, as: money, text: x}",
        b"\xff",
        b"- a",
        b"version: 0",
        b"families: {a: b}",
    ],
)
def test_a_catalogue_that_is_none_is_refused(content, tmp_path):
    with pytest.raises(BundleError, match="reasons"):
        Catalogue.parse(content, tmp_path / "reasons.yaml")


def test_the_shipped_families_name_features_that_exist_and_each_once():
    written = yaml.safe_load(SHIPPED.read_bytes())["families"]
    named = [name for names in written.values() for name in names]
    assert sorted(named) == sorted(set(named))
    assert set(named) <= set(NAMES[:MODEL_FEATURES])


def test_a_catalogue_without_families_groups_what_measures_the_same_of_the_same_entity(tmp_path):
    plain = Catalogue.parse(b"amount: {code: AMOUNT, as: money, text: x}", tmp_path / "reasons.yaml")
    of = dict(zip(NAMES, plain.families.tolist(), strict=False))
    assert plain.version == 1
    assert of["bin_count_10m"] == of["bin_count_1h"] == of["bin_matured_7d"]
    assert of["bin_count_1h"] != of["device_count_1h"] != of["device_users_1h"]


def test_codes_are_never_reused(catalogue):
    """The codes of released catalogues; add to the file, never change it."""
    golden = dict(line.split() for line in CODES.read_text().splitlines())
    now = {name: catalogue.word(index, 2.0)[0] for index, name in enumerate(NAMES)}
    assert {name: now[name] for name in golden if name in now} == {name: code for name, code in golden.items() if name in now}
    taken = {code: name for name, code in golden.items()}
    assert all(taken.get(code, name) == name for name, code in now.items())
