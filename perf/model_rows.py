"""What benchmarks of models stand on: a bundle trained on simulated history, and later payments of other people."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from assay.models.bundle import Bundle
from assay.models.training import DAY_MS, LABEL_DELAY_DAYS, train_on_features
from assay.schemas.transaction import Transaction
from assay.streams.simulator import simulate
from assay.tables.changes import changes_of_labels
from assay.tables.rates import SHIPPED_RATES, Rates
from assay.tables.replay import events_of, replay_events

START_MS = 1_767_225_600_000
HISTORY_SEED, LATER_SEED = 11, 2_027
DAYS = 30.0

Features = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]


def simulated(seed: int, count: int) -> tuple[Features, npt.NDArray[np.int64], Flags]:
    """(features float32 (n, F), times in epoch ms, fraud) of so many simulated payments; labels become known later."""
    payments = list(simulate(seed=seed, transactions=count, start_ms=START_MS, days=DAYS))
    fraud = np.array([payment.fraud for payment in payments])
    transactions = (Transaction.model_validate(payment.transaction) for payment in payments)
    events = events_of(transactions, Rates.load(SHIPPED_RATES))
    changes, known_before = changes_of_labels(events, fraud, round(LABEL_DELAY_DAYS * DAY_MS))
    features = replay_events(events, changes=changes, known_before=known_before)
    return features, events["time_ms"].astype(np.int64), fraud


@contextmanager
def bundle_of(given: Path | None, history: int) -> Iterator[Bundle]:
    """The bundle at `given`, or one trained for the run on so many simulated payments. Raises BundleError."""
    if given is not None:
        yield Bundle.load(given)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield train_on_features(*simulated(HISTORY_SEED, history), Path(folder) / "bundle")
