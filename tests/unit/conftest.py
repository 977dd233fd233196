"""What several unit tests need: made-up features with labels, and a small bundle trained on them."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from assay.models.bundle import Bundle
from assay.models.training import train_on_features
from assay.tables.features import FEATURE_COUNT, NAMES

MADE_UP_ROWS = 4_000


@pytest.fixture(scope="session")
def made_up() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """(features float32 (n, F) with values missing, times in epoch ms, fraud): large amounts at busy instruments are fraud."""
    random = np.random.default_rng(11)
    features = random.gamma(1.0, 20.0, (MADE_UP_ROWS, FEATURE_COUNT)).astype(np.float32).round(2)
    features[random.random(features.shape) < 0.05] = np.nan
    features[:, 0] = random.gamma(1.0, 80.0, MADE_UP_ROWS)
    signal = features[:, 0] / 80 + np.nan_to_num(features[:, NAMES.index("instrument_users_24h")]) / 20
    fraud = signal + random.normal(0.0, 0.5, MADE_UP_ROWS) > 5.5
    return features, np.arange(MADE_UP_ROWS, dtype=np.int64) * 60_000, fraud


@pytest.fixture(scope="session")
def bundle_path(
    made_up: tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.bool_]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A bundle trained on `made_up`. Copy it before you change it."""
    path = tmp_path_factory.mktemp("bundles") / "bundle"
    train_on_features(*made_up, path)
    return path


@pytest.fixture(scope="session")
def bundle(bundle_path: Path) -> Bundle:
    """The same, loaded."""
    return Bundle.load(bundle_path)
