"""The score: XGBoost's own margins, calibrated, whatever the batch."""

import numpy as np
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.models.calibration import fit_calibration
from assay.models.ensemble import Ensemble
from assay.models.forest import explain_margins, read_forest, walk
from assay.schemas.decision import Tier
from assay.schemas.limits import MAX_TREE_DEPTH
from assay.tables.features import MODEL_FEATURES


def _boosters(bundle):
    return [xgboost.Booster({"nthread": 1}, model_file=bundle.path / member.file) for member in bundle.manifest.members]


def test_margins_are_xgboosts_to_the_bit(bundle, made_up):
    features = made_up[0][:1001, :MODEL_FEATURES].copy()
    expected = np.stack([model.inplace_predict(features, predict_type="margin") for model in _boosters(bundle)], axis=1)
    assert np.array_equal(walk(bundle.ensemble.forest, features), expected)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38])
def test_margins_are_xgboosts_for_special_values(bundle, special):
    features = np.full((9, len(bundle.manifest.features)), special, np.float32)
    # XGBoost refuses infinities; the largest finite values go the same way.
    finite = np.clip(features, -3.4e38, 3.4e38)
    matrix = xgboost.DMatrix(finite)
    expected = np.stack([model.predict(matrix, output_margin=True) for model in _boosters(bundle)], axis=1)
    assert np.array_equal(walk(bundle.ensemble.forest, features), expected)


def test_a_value_equal_to_a_threshold_goes_where_xgboost_sends_it(bundle):
    forest = bundle.ensemble.forest
    thresholds = np.unique(forest.slots["threshold"])[:200]
    features = np.repeat(thresholds[:, None], len(bundle.manifest.features), axis=1).astype(np.float32)
    expected = np.stack([model.inplace_predict(features, predict_type="margin") for model in _boosters(bundle)], axis=1)
    assert np.array_equal(walk(forest, features), expected)


@pytest.mark.parametrize("tier", [Tier.FULL, Tier.NO_ENTITIES, Tier.LEAD_MODEL])
def test_a_score_is_the_same_bits_whatever_the_batch(bundle, made_up, tier):
    features = made_up[0][:300]
    whole = bundle.ensemble.score(features, tier)
    for size in (1, 2, 7, 8, 9, 64, 256):
        parts = [bundle.ensemble.score(features[at : at + size], tier) for at in range(0, 300, size)]
        for values, pieces in zip(whole, zip(*parts, strict=True), strict=True):
            assert values.tobytes() == np.concatenate(pieces).tobytes()


def test_a_score_is_the_calibrated_mean_of_the_members_margins(bundle, made_up):
    features = made_up[0][:50]
    calibration = bundle.manifest.tiers[Tier.FULL].calibration
    mean = walk(bundle.ensemble.forest, features).astype(np.float64).mean(axis=1)
    expected = 1 / (1 + np.exp(-(calibration.slope * mean + calibration.intercept)))
    assert bundle.ensemble.score(features, Tier.FULL)[0] == pytest.approx(expected, abs=1e-6)


def test_the_lead_answers_alone_in_its_tier(bundle, made_up):
    score, members = bundle.ensemble.score(made_up[0][:20], Tier.LEAD_MODEL)
    assert np.isnan(members[:, 1:]).all()
    assert np.array_equal(score, members[:, 0])


def test_a_tier_without_a_score_has_none(bundle, made_up):
    with pytest.raises(KeyError):
        bundle.ensemble.score(made_up[0][:1], Tier.RULES_ONLY)


def test_a_feature_list_that_is_not_contiguous_gives_the_same_score(bundle, made_up):
    features = made_up[0][:64]
    assert np.array_equal(
        bundle.ensemble.score(np.asfortranarray(features), Tier.FULL)[0], bundle.ensemble.score(features, Tier.FULL)[0]
    )


def test_more_of_what_can_only_be_suspicious_never_lowers_a_score(bundle, made_up):
    features = np.nan_to_num(made_up[0][:200])
    column = bundle.manifest.features.index("instrument_users_24h")
    more = features.copy()
    more[:, column] += 50
    assert (bundle.ensemble.score(more, Tier.FULL)[0] >= bundle.ensemble.score(features, Tier.FULL)[0]).all()


@settings(max_examples=30, deadline=None)
@given(depth=st.integers(1, MAX_TREE_DEPTH), trees=st.integers(1, 12), seed=st.integers(0, 1000))
def test_any_forest_is_walked_and_explained_as_xgboost_does(depth, trees, seed):
    random = np.random.default_rng(seed)
    features = random.normal(size=(300, 5)).astype(np.float32)
    features[random.random(features.shape) < 0.2] = np.nan
    labels = random.random(300) < 0.3
    model = xgboost.train(
        {"objective": "binary:logistic", "max_depth": depth, "nthread": 1, "seed": seed},
        xgboost.DMatrix(features, labels),
        trees,
    )
    forest = read_forest([bytes(model.save_raw("ubj"))], 5)
    assert np.array_equal(walk(forest, features)[:, 0], model.inplace_predict(features, predict_type="margin"))
    expected = model.predict(xgboost.DMatrix(features), pred_contribs=True)[:, :-1]
    assert explain_margins(forest, features) == pytest.approx(expected, abs=1e-4)


def test_calibration_makes_margins_mean_what_they_say():
    random = np.random.default_rng(3)
    margins = random.normal(size=50_000)
    fraud = random.random(50_000) < 1 / (1 + np.exp(-(1.7 * margins - 2.0)))
    calibration = fit_calibration(margins, fraud)
    assert calibration.slope == pytest.approx(1.7, abs=0.1)
    assert calibration.intercept == pytest.approx(-2.0, abs=0.1)


@pytest.mark.parametrize(
    "margins", [[-1.0, -1.0, 1.0, 1.0], [1.0, 1.0, -1.0, -1.0], [0.0, 0.0, 0.0, 0.0], [1e6, -1e6, 3.0, 0.0]]
)
def test_calibration_is_finite_and_keeps_the_order(margins):
    calibration = fit_calibration(np.array(margins), np.array([False, False, True, True]))
    assert 0 < calibration.slope < np.inf
    assert np.isfinite(calibration.intercept)


def test_an_ensemble_without_calibrations_still_tells_margins(bundle, made_up):
    plain = Ensemble(bundle.ensemble.forest, {})
    assert np.array_equal(plain.margin(made_up[0][:9], Tier.FULL), bundle.ensemble.margin(made_up[0][:9], Tier.FULL))


def test_columns_for_rules_alone_change_no_score_and_no_reason(bundle, made_up):
    features = made_up[0][:300, :MODEL_FEATURES].copy()
    wider = np.hstack([features, np.full((300, 2), 9.0, np.float32)])
    for asked in (bundle.ensemble.contributions, lambda rows, tier: bundle.ensemble.score(rows, tier)[0]):
        assert asked(wider, Tier.FULL).tobytes() == asked(features, Tier.FULL).tobytes()
