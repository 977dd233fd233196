"""The forms of the ensemble: each scores as XGBoost does, or is refused."""

import numpy as np
import pytest
import xgboost

from assay.models.bundle import Bundle
from assay.models.form_parity import MOST_DIFFERENCE, Form, compare
from assay.models.forms import check, margins_in
from assay.schemas.decision import Tier
from assay.schemas.errors import BundleError

THRESHOLDS = (0.5, 0.8)
HAS_CUDA = bool(xgboost.build_info().get("USE_CUDA"))


@pytest.mark.parametrize("tier", [Tier.FULL, Tier.LEAD_MODEL])
def test_xgboost_undoes_the_walk_and_changes_nothing(bundle, made_up, tier):
    plain = Bundle.load(bundle.path, form=Form.XGBOOST)
    for rows in (made_up[0][:0], made_up[0][:1], made_up[0][:300]):
        for ours, theirs in zip(bundle.ensemble.score(rows, tier), plain.ensemble.score(rows, tier), strict=True):
            assert ours.tobytes() == theirs.tobytes()


def test_a_bundle_says_which_form_it_serves_in_and_that_it_holds(bundle):
    assert bundle.manifest.form is Form.COMPILED
    assert set(bundle.manifest.parity) == set(bundle.manifest.tiers)
    for parity in bundle.manifest.parity.values():
        assert parity.holds
        assert parity.rows > 0
        assert parity.average_precision_difference == 0.0


def test_one_changed_action_is_too_much():
    reference = np.array([0.1, 0.5, 0.9])
    nearly = reference - np.array([0.0, 1e-6, 0.0])
    parity = compare(nearly, reference, THRESHOLDS)
    assert (parity.actions_changed, parity.holds) == (1, False)
    with pytest.raises(BundleError, match="1 of 3 actions changed"):
        check(Form.CUDA, {Tier.FULL: parity})


def test_the_last_digit_of_a_score_may_differ_and_no_more():
    reference = np.array([0.1, 0.3])
    assert compare(reference + 1e-6, reference, THRESHOLDS).holds
    assert not compare(reference + 2 * MOST_DIFFERENCE, reference, THRESHOLDS).holds


def test_average_precision_is_compared_where_labels_are_known():
    fraud = np.array([False, True, False])
    parity = compare(np.array([0.2, 0.1, 0.0]), np.array([0.1, 0.2, 0.0]), THRESHOLDS, fraud)
    assert parity.average_precision_difference == pytest.approx(0.5)
    assert compare(np.zeros(2), np.zeros(2), THRESHOLDS, np.zeros(2, bool)).average_precision_difference is None


@pytest.mark.skipif(HAS_CUDA, reason="this XGBoost has CUDA")
def test_cuda_without_it_is_a_clear_error(bundle):
    with pytest.raises(BundleError, match="ASSAY_MODEL_FORM=compiled"):
        Bundle.load(bundle.path, form=Form.CUDA)


@pytest.mark.skipif(not HAS_CUDA, reason="XGBoost is built without CUDA here: install the extra gpu on a machine with a GPU")
def test_a_gpu_scores_as_the_cpu_does(bundle, made_up):
    try:
        on_gpu = Bundle.load(bundle.path, form=Form.CUDA)
    except BundleError as error:
        if "there is no GPU" in str(error):
            pytest.skip("there is no GPU here")
        raise
    scores = [one.ensemble.score(made_up[0][:2_000], Tier.FULL)[0] for one in (on_gpu, bundle)]
    assert compare(scores[0], scores[1], bundle.thresholds[Tier.FULL]).holds


def test_cuda_that_fell_back_to_the_cpu_is_refused(bundle, monkeypatch):
    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": True})
    monkeypatch.setattr(xgboost.Booster, "save_config", lambda self: '{"learner": {"generic_param": {"device": "cpu"}}}')
    members = [(bundle.path / member.file).read_bytes() for member in bundle.manifest.members]
    with pytest.raises(BundleError, match="there is no GPU"):
        margins_in(Form.CUDA, bundle.ensemble.forest, members)
