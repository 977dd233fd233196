"""The declared list holds together, and with what is compiled."""

import math
import subprocess
import sys

from assay.tables import features, fold
from assay.tables.features import (
    BATCH_FEATURES,
    ENTITIES,
    ENTITY_FEATURES,
    FEATURE_COUNT,
    FEATURES,
    MODEL_FEATURES,
    NAMES,
    PROFILE_FEATURES,
    RISK_FEATURES,
    WINDOW_NAMES,
    Origin,
)


def test_names_are_unique_and_counted() -> None:
    assert len(set(NAMES)) == len(NAMES) == FEATURE_COUNT
    assert FEATURE_COUNT == PROFILE_FEATURES + ENTITY_FEATURES + BATCH_FEATURES + RISK_FEATURES


def test_what_models_may_not_see_comes_last() -> None:
    assert all(feature.for_models == (column < MODEL_FEATURES) for column, feature in enumerate(FEATURES))


def test_profile_features_come_before_those_of_redis() -> None:
    assert {feature.source for feature in FEATURES[:PROFILE_FEATURES]} == {Origin.EVENT, Origin.PROFILE}
    order = [Origin.ENTITY] * ENTITY_FEATURES + [Origin.BATCH] * BATCH_FEATURES + [Origin.RISK] * RISK_FEATURES
    assert [feature.source for feature in FEATURES[PROFILE_FEATURES:]] == order


def test_a_window_of_an_entity_is_named_after_what_it_is() -> None:
    for feature in FEATURES[PROFILE_FEATURES : PROFILE_FEATURES + ENTITY_FEATURES]:
        assert feature.entity in ENTITIES
        assert feature.window_s is not None
        assert feature.name == f"{feature.entity}_{feature.measure}_{WINDOW_NAMES[feature.window_s]}"


def test_absent_never_and_unavailable_are_told_apart() -> None:
    for feature in FEATURES:
        assert math.isnan(feature.unavailable)
        declared = [value for value in (feature.absent, feature.never) if not math.isnan(value)]
        assert len(set(declared)) == len(declared)


def test_windows_say_what_their_names_say() -> None:
    seconds = {name: seconds for seconds, name in WINDOW_NAMES.items()}
    for feature in FEATURES:
        assert feature.window_s == seconds.get(feature.name.rpartition("_")[2])


def test_the_compiled_windows_are_those_of_the_list() -> None:
    assert fold.MINUTE_S == features.MINUTE
    assert fold.HOUR_MS == features.HOUR * 1000
    assert fold.DAY_S == features.DAY == fold.DAY_MS // 1000 == fold.DAY_HOURS * features.HOUR
    assert fold.WEEK_S == features.WEEK == fold.WEEK_DAYS * features.DAY
    assert fold.MONTH_DAYS * features.DAY == features.MONTH


def test_the_digest_is_the_same_in_another_process() -> None:
    code = "from assay.tables.features import features_digest; print(features_digest())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == features.features_digest()
    assert len(features.features_digest()) == 64
