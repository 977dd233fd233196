"""Features of risk on the Fraud Detection Handbook's transactions, against a computation of its own."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from assay.tables.changes import changes_of_labels
from assay.tables.events import EVENT, Events
from assay.tables.features import DAY, FRAUD_PRIOR, FRAUD_PRIOR_WEIGHT, NAMES
from assay.tables.replay import replay_events

HANDBOOK = Path(__file__).parents[3] / "shared" / "data" / "handbook-transactions.parquet"
DAYS, TERMINALS = 70, 300  # some 20,000 transactions
DELAY_S = 7 * DAY

pytestmark = pytest.mark.skipif(not HANDBOOK.exists(), reason="the Handbook's transactions are not here")


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    read = pl.scan_parquet(HANDBOOK).filter(pl.col("terminal_id") < TERMINALS)
    first = pl.col("tx_time").min()
    return read.filter(pl.col("tx_time") < first + DAYS * DAY).sort("tx_time", maintain_order=True).collect()


def events_of(frame: pl.DataFrame) -> Events:
    events = np.zeros(len(frame), EVENT)
    events["time_ms"] = frame["tx_time"].to_numpy().astype(np.int64) * 1000
    events["user"], events["merchant"] = frame["customer_id"].to_numpy() + 1, frame["terminal_id"].to_numpy() + 1
    events["amount"] = frame["amount_minor"].to_numpy() / 100
    events["id"][:, 0] = np.arange(len(frame))
    return events


def share_plainly(frame: pl.DataFrame, days: int) -> np.ndarray:
    """The smoothed share of fraud of each transaction's terminal in whole days, the days at both ends by their part."""
    time, terminal = frame["tx_time"].to_numpy().astype(np.int64), frame["terminal_id"].to_numpy()
    fraud, shares = frame["is_fraud"].to_numpy().astype(bool), np.empty(len(frame))
    for one in np.unique(terminal):
        rows = np.flatnonzero(terminal == one)
        for at, row in enumerate(rows):
            ends, into = time[row] // DAY - 7, time[row] % DAY / DAY
            day = time[rows] // DAY
            part = np.where(
                day == ends, into, np.where(day == ends - days, 1 - into, ((day > ends - days) & (day < ends)) * 1.0)
            )
            known = fraud[rows] & (time[rows] + DELAY_S <= time[row])
            seen = np.arange(len(rows)) <= at
            frauds, matured = (part * known).sum(), (part * seen).sum()
            shares[row] = (frauds + FRAUD_PRIOR * FRAUD_PRIOR_WEIGHT) / (matured + FRAUD_PRIOR_WEIGHT)
    return shares


def test_fraud_shares_of_terminals_are_what_their_definition_says(frame: pl.DataFrame) -> None:
    events = events_of(frame)
    changes, known_before = changes_of_labels(events, frame["is_fraud"].to_numpy().astype(bool), DELAY_S * 1000)
    features = replay_events(events, changes=changes, known_before=known_before)
    assert len(frame) > 15_000
    for name, days in (("merchant_fraud_share_7d", 7), ("merchant_fraud_share_30d", 30)):
        want = share_plainly(frame, days)
        assert (want > 10 * FRAUD_PRIOR).any()
        np.testing.assert_allclose(features[:, NAMES.index(name)], want, rtol=1e-5)
