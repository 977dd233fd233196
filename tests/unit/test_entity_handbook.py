"""Windows of merchants on the Fraud Detection Handbook's transactions: what Polars makes of them, by as-of joins of totals."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from assay.tables.entity_columns import WINDOWS
from assay.tables.entity_fold import EntityWindows
from assay.tables.events import EVENT, Events

HANDBOOK = Path(__file__).parents[3] / "shared" / "data" / "handbook-transactions.parquet"
HOUR_S, DAY_S, DELAY = 3_600, 86_400, 7  # DELAY in days
ONE_TERMINAL_IN = 25

pytestmark = pytest.mark.skipif(not HANDBOOK.exists(), reason="the Handbook's transactions are not here")


@pytest.fixture(scope="module")
def payments() -> pl.DataFrame:
    """All payments of 400 terminals over half a year, in their order, with the running totals of each terminal."""
    columns = ["tx_time", "customer_id", "terminal_id", "amount_minor"]
    some = pl.scan_parquet(HANDBOOK).select(columns).filter(pl.col("terminal_id") % ONE_TERMINAL_IN == 0)
    running = (pl.int_range(1, pl.len() + 1).alias("count"), pl.col("amount_minor").cum_sum().alias("minor"))
    return some.collect().sort("tx_time", maintain_order=True).with_columns(*(total.over("terminal_id") for total in running))


def events_of(payments: pl.DataFrame) -> Events:
    events = np.zeros(payments.height, EVENT)
    events["time_ms"] = payments["tx_time"].to_numpy() * 1000
    events["amount"] = payments["amount_minor"].to_numpy() / 100
    events["merchant"] = payments["terminal_id"].to_numpy() + 1
    events["user"] = payments["customer_id"].to_numpy() + 1
    return events


def before(payments: pl.DataFrame, tile_s: int, tiles_back: int, total: str) -> np.ndarray:
    """What the terminal had in all before the tile that lies so far behind the payment's own."""
    asked = payments.select("terminal_id", moment=(pl.col("tx_time") // tile_s - tiles_back) * tile_s)
    totals = payments.select("terminal_id", pl.col("tx_time").alias("moment"), total)
    found = asked.with_row_index().sort("moment").join_asof(
        totals, on="moment", by="terminal_id", allow_exact_matches=False, check_sortedness=False
    )  # fmt: skip
    return found.sort("index")[total].fill_null(0).to_numpy()


def window(payments: pl.DataFrame, tile_s: int, tiles: int, total: str) -> np.ndarray:
    """Whole tiles up to the payment itself, and the part of the oldest tile that is still inside."""
    passed = (payments["tx_time"] % tile_s / tile_s).to_numpy()
    inner, outer = (before(payments, tile_s, back, total) for back in (tiles - 1, tiles))
    return payments[total].to_numpy() - inner + (1 - passed) * (inner - outer)


def matured(payments: pl.DataFrame, days: int) -> np.ndarray:
    """The same of days, ending a label delay ago: of the tile that it ends in, the part that is so old."""
    passed = (payments["tx_time"] % DAY_S / DAY_S).to_numpy()
    after, newest, inner, outer = (
        before(payments, DAY_S, back, "count") for back in (DELAY - 1, DELAY, DELAY + days - 1, DELAY + days)
    )
    return newest - inner + passed * (after - newest) + (1 - passed) * (inner - outer)


def test_windows_of_merchants_are_what_polars_makes_of_the_handbooks_transactions(payments: pl.DataFrame) -> None:
    expected = {
        "merchant_count_1h": window(payments, 300, 12, "count"),
        "merchant_count_24h": window(payments, HOUR_S, 24, "count"),
        "merchant_count_30d": window(payments, DAY_S, 30, "count"),
        "merchant_sum_24h": window(payments, HOUR_S, 24, "minor") / 100,
        "merchant_sum_30d": window(payments, DAY_S, 30, "minor") / 100,
        "merchant_matured_7d": matured(payments, 7),
        "merchant_matured_30d": matured(payments, 30),
    }
    names = [feature.name for feature in WINDOWS]
    values, _ = EntityWindows().observe(events_of(payments))
    assert len(values) > 50_000
    for name, column in expected.items():
        np.testing.assert_allclose(values[:, names.index(name)], column, rtol=2e-6, atol=1e-4, err_msg=name)
