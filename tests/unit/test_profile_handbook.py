"""Profile features on the Fraud Detection Handbook's transactions: what Polars makes of them, by totals, joins and shifts."""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from assay.tables.events import Events
from assay.tables.features import NAMES

from .folded import events_of, run

HANDBOOK = Path(__file__).parents[3] / "shared" / "data" / "handbook-transactions.parquet"
HOUR_S, DAY_S = 3_600, 86_400
ONE_CUSTOMER_IN = 50
RECENT = 32  # events that a profile has one by one; before those, windows are made of tiles
MERCHANTS = 18  # that a profile knows; the one that was not visited for longest makes room

pytestmark = pytest.mark.skipif(not HANDBOOK.exists(), reason="the Handbook's transactions are not here")


@pytest.fixture(scope="module")
def payments() -> pl.DataFrame:
    """All payments of 100 customers over half a year, in their order, with the running totals of each customer."""
    columns = ["tx_time", "customer_id", "terminal_id", "amount_minor"]
    some = pl.scan_parquet(HANDBOOK).select(columns).filter(pl.col("customer_id") % ONE_CUSTOMER_IN == 0)
    amount = pl.col("amount_minor") / 100
    return (
        some.collect()
        .sort("tx_time", maintain_order=True)
        .with_columns(amount=amount, count=pl.int_range(1, pl.len() + 1).over("customer_id"))
        .with_columns(
            spent=pl.col("amount").cum_sum().over("customer_id"),
            squares=(pl.col("amount") ** 2).cum_sum().over("customer_id"),
            largest=pl.col("amount").cum_max().over("customer_id"),
        )
    )


@pytest.fixture(scope="module")
def folded(payments: pl.DataFrame) -> dict[str, np.ndarray]:
    events: Events = events_of(*[{}] * payments.height)
    events["time_ms"] = payments["tx_time"].to_numpy() * 1000
    events["amount"] = payments["amount"].to_numpy()
    events["merchant"] = payments["terminal_id"].to_numpy() + 1
    events["user"] = payments["customer_id"].to_numpy() + 1
    features, _, _ = run(events)
    return dict(zip(NAMES, features.T, strict=True))


def earlier(payments: pl.DataFrame, column: str, back: int = 1) -> np.ndarray:
    """A column of the customer's payment so many before; NaN where there is none."""
    return payments.select(pl.col(column).shift(back).over("customer_id").cast(pl.Float64).fill_null(np.nan))[column].to_numpy()


def total_before(payments: pl.DataFrame, moment: pl.Expr, total: str, *, included: bool) -> np.ndarray:
    """What the customer had in all before a moment (s), or up to it and included."""
    asked = payments.select("customer_id", moment=moment).with_row_index().sort("moment")
    totals = payments.select("customer_id", pl.col("tx_time").alias("moment"), total)
    found = asked.join_asof(totals, on="moment", by="customer_id", allow_exact_matches=included, check_sortedness=False)
    return found.sort("index")[total].fill_null(0).to_numpy().astype(float)


def window(payments: pl.DataFrame, tile_s: int, tiles: int, total: str) -> np.ndarray:
    """Exact where the recent events reach back so far; else by whole tiles and the part of the oldest that is still inside."""
    time, own = pl.col("tx_time"), payments[total].to_numpy()
    exact = own - total_before(payments, time - tiles * tile_s, total, included=True)
    inner, outer = (
        total_before(payments, (time // tile_s - back) * tile_s, total, included=False) for back in (tiles - 1, tiles)
    )
    passed = (payments["tx_time"] % tile_s / tile_s).to_numpy()
    by_tiles = own - inner + (1 - passed) * (inner - outer)
    recent = own - np.nan_to_num(earlier(payments, total, RECENT + 1))
    reaches = ~(earlier(payments, "tx_time", RECENT + 1) > payments["tx_time"].to_numpy() - tiles * tile_s)
    return np.where(reaches, exact, np.maximum(by_tiles, recent))


def acquaintances(payments: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Of each payment: seconds since the customer first paid at this terminal, and how often before; of those still known."""
    known: dict[int, OrderedDict[int, tuple[int, int]]] = {}
    found = []
    for time, customer, terminal in payments.select("tx_time", "customer_id", "terminal_id").iter_rows():
        mine = known.setdefault(customer, OrderedDict())
        first, count = mine.pop(terminal, (time, 0))
        if len(mine) == MERCHANTS:
            mine.popitem(last=False)
        mine[terminal] = first, count + 1
        found.append((time - first, count))
    ages, counts = np.array(found, float).T
    return ages, counts


def distinct(payments: pl.DataFrame, window_s: int) -> np.ndarray:
    """Terminals of the customer's window, this one included."""
    pairs = payments.with_row_index("i").select("i", "customer_id", "tx_time", "terminal_id")
    rolled = pairs.rolling("tx_time", period=f"{window_s}i", group_by="customer_id").agg(
        pl.col("i").last(), pl.col("terminal_id").n_unique().alias("n")
    )
    return rolled.sort("i")["n"].to_numpy()


@pytest.mark.parametrize(
    ("name", "tile_s", "tiles"), [("1h", HOUR_S, 1), ("24h", HOUR_S, 24), ("7d", DAY_S, 7), ("30d", DAY_S, 30)]
)
def test_windows_are_what_polars_makes_of_the_handbooks_transactions(
    payments: pl.DataFrame, folded: dict[str, np.ndarray], name: str, tile_s: int, tiles: int
) -> None:
    assert payments.height > 30_000
    count, spent = (window(payments, tile_s, tiles, total) for total in ("count", "spent"))
    np.testing.assert_allclose(folded[f"count_{name}"], count, rtol=2e-6)
    np.testing.assert_allclose(folded[f"sum_{name}"], spent, rtol=2e-6, atol=1e-3)
    if f"amount_ratio_{name}" in folded:
        amount = payments["amount"].to_numpy()
        mean = (spent - amount) / np.where(count > 1, count - 1, 1.0)
        expected = np.where(mean > 1e-6, amount / np.maximum(mean, 0.01), 0.0)
        np.testing.assert_allclose(folded[f"amount_ratio_{name}"], expected, rtol=1e-5, atol=1e-5)


def test_history_is_what_polars_makes_of_the_handbooks_transactions(
    payments: pl.DataFrame, folded: dict[str, np.ndarray]
) -> None:
    amount, time = payments["amount"].to_numpy(), payments["tx_time"].to_numpy()
    before = payments["count"].to_numpy() - 1.0
    spent, squares = (np.nan_to_num(earlier(payments, name)) for name in ("spent", "squares"))
    mean = spent / np.maximum(before, 1)
    deviation = np.sqrt(np.maximum(squares - before * mean**2, 0) / np.maximum(before - 1, 1)) * (before > 1)
    first = payments.select(pl.col("tx_time").first().over("customer_id"))["tx_time"].to_numpy()
    expected = {
        "user_count": before,
        "user_age_s": time - first,
        "since_last_s": np.where(before > 0, time - np.nan_to_num(earlier(payments, "tx_time")), -1.0),
        "amount_mean": mean,
        "amount_deviation": deviation,
        "amount_z": (before > 1) * (amount - mean) / np.maximum(deviation, 1.0),
        "amount_ratio": np.where(mean > 0, amount / np.maximum(mean, 0.01), 0.0),
        "amount_to_max": np.where(before > 0, amount / np.maximum(np.nan_to_num(earlier(payments, "largest")), 0.01), 0.0),
    }
    for name, column in expected.items():
        np.testing.assert_allclose(folded[name], column, rtol=2e-5, atol=1e-4, err_msg=name)


def test_what_a_customer_knows_of_terminals_is_what_the_handbooks_transactions_say(
    payments: pl.DataFrame, folded: dict[str, np.ndarray]
) -> None:
    age, count = acquaintances(payments)
    np.testing.assert_allclose(folded["merchant_age_s"], age, rtol=1e-6)
    np.testing.assert_array_equal(folded["merchant_count"], count)
    of_a_day, of_a_week = distinct(payments, DAY_S), distinct(payments, 7 * DAY_S)
    alone = earlier(payments, "tx_time", -1) != payments["tx_time"].to_numpy()  # Polars' windows end with the second
    np.testing.assert_array_equal(folded["merchants_24h"][alone], of_a_day[alone])
    few = alone & (of_a_week < MERCHANTS)
    assert few.mean() > 0.5
    np.testing.assert_array_equal(folded["merchants_7d"][few], of_a_week[few])
