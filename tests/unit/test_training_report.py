"""What a training says of itself, and that it says the same each time."""

from html.parser import HTMLParser

import numpy as np
import pytest

from assay.agents.steer import InForce
from assay.models import quality
from assay.models.costs import NEVER, Costs, best_thresholds
from assay.models.evaluate import at_thresholds, ranking
from assay.models.feature_rows import FeatureRows
from assay.models.quality import against_members, calibration, curves
from assay.models.training import Split, train_on_features
from assay.schemas.errors import InputError
from assay.streams.settings import Settings
from assay.tables.features import FEATURE_COUNT, FEATURES, NAMES


@pytest.fixture
def told():
    """Scores, amounts and labels of 400 payments."""
    random = np.random.default_rng(3)
    fraud = random.random(400) < 0.1
    return np.clip(0.5 * fraud + random.random(400) * 0.7, 0, 1), random.gamma(1, 80, 400), fraud


def test_more_threads_give_the_same_bundle(made_up, bundle, tmp_path):
    assert train_on_features(*made_up, tmp_path / "one", nthread=1).version == bundle.version
    assert train_on_features(*made_up, tmp_path / "three", nthread=3).version == bundle.version


def test_no_more_is_reviewed_than_people_can_do(told):
    scores, amounts, fraud = told
    for most in (0, 1, 7, 40, 400):
        review, decline = best_thresholds(scores, amounts, fraud, Costs(), most)
        assert ((scores >= review) & (scores < decline)).sum() <= most


def test_thresholds_within_a_capacity_are_the_best_of_all_pairs(told):
    scores, amounts, fraud = (each[:60] for each in told)
    scores = np.round(scores, 1)
    cuts = [*np.unique(scores), NEVER]
    for most in (0, 5, 12):
        pairs = [(r, d) for r in cuts for d in cuts if r <= d and ((scores >= r) & (scores < d)).sum() <= most]
        saved = {pair: at_thresholds(scores, amounts, fraud, *pair, Costs())["money_saved"] for pair in pairs}
        assert saved[best_thresholds(scores, amounts, fraud, Costs(), most)] == pytest.approx(max(saved.values()), abs=0.01)


def test_a_bundle_keeps_its_label_delay_and_tells_where_it_is_longer_than_the_streams(made_up, bundle, tmp_path):
    assert bundle.manifest.label_delay_days == 7
    assert bundle.manifest.label_delay_differs is None
    late = train_on_features(*made_up, tmp_path / "late", label_delay_days=30)
    assert "after 30 days" in str(late.manifest.label_delay_differs)


def test_the_page_holds_tables_and_plots_and_asks_for_nothing_from_elsewhere(bundle):
    page = (bundle.path / "report.html").read_text()
    seen: list[tuple[str, dict[str, str | None]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            seen.append((tag, dict(attrs)))

    Reader().feed(page)
    assert sum(tag == "svg" for tag, _ in seen) == 4
    assert not [tag for tag, attributes in seen if {"src", "href"} & attributes.keys() or tag in ("script", "link")]
    assert bundle.report["ensemble"]["best_member"] in page


def test_segments_are_called_by_what_they_are(bundle):
    names = {one["name"] for one in bundle.report["segments"]}
    assert "user seen less than 7 days" in names
    segments = quality.segments(np.zeros(4), FeatureRows.all_of(_of_channels(0, 1, 3, 1)), np.zeros(4), np.zeros(4, np.bool_))
    assert {"channel: not said", "channel: ecom", "channel: atm"} <= {one["name"] for one in segments}


def _of_channels(*channels):
    features = np.zeros((len(channels), FEATURE_COUNT), np.float32)
    features[:, NAMES.index("channel")] = channels
    return features


def test_curves_end_where_everything_is_stopped(told):
    found = curves(*told)
    for name in ("stopped", "recall", "false_alarms", "fraud_amount"):
        assert found[name][-1] == 1
        assert found[name] == sorted(found[name])


def test_calibration_counts_every_payment_once(told):
    scores, _, fraud = told
    bins = calibration(scores, fraud)
    assert sum(one["transactions"] for one in bins) == len(fraud)
    assert sum(one["true"] * one["transactions"] for one in bins) == pytest.approx(fraud.sum(), abs=0.01)


def test_an_ensemble_of_one_model_beats_it_by_nothing(told):
    scores, _, fraud = told
    found = against_members(np.stack([scores] * 3, axis=1), ("a", "b", "c"), fraud, seed=1)
    assert found["above_best"] == [0, 0]
    assert not found["beats_best"]
    assert found["together"] == pytest.approx(ranking(scores, fraud)["average_precision"], abs=1e-6)


def test_an_ensemble_whose_members_err_differently_beats_the_best():
    random = np.random.default_rng(4)
    fraud = random.random(4_000) < 0.1
    margins = fraud[:, None] + random.normal(0, 1, (4_000, 3))
    assert against_members(margins, ("a", "b", "c"), fraud, seed=1)["beats_best"]


def test_only_fraud_is_no_history_to_learn_from(made_up, tmp_path):
    features, times, fraud = made_up
    with pytest.raises(InputError, match="genuine payments"):
        train_on_features(features, times, np.ones_like(fraud), tmp_path / "bundle", split=Split(holdout=0))


def test_the_share_of_fraud_of_a_month_may_fall_again():
    signs = {feature.name: feature.sign for feature in FEATURES}
    assert (signs["merchant_fraud_share_7d"], signs["merchant_fraud_share_30d"]) == (1, 0)


def test_a_worker_says_that_its_bundle_was_trained_with_a_longer_label_delay(made_up, bundle, tmp_path, caplog):
    train_on_features(*made_up, tmp_path / "late", label_delay_days=30)
    InForce.load(Settings.load(bundle=bundle.path))
    assert not caplog.records
    InForce.load(Settings.load(bundle=tmp_path / "late"))
    assert "after 30 days" in caplog.text
