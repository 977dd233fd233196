"""Bad training data is refused with its reason, or repaired and counted."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from assay.models.history import read_history
from assay.models.training import train
from assay.schemas.errors import InputError
from assay.tables.rates import Rates

START_MS, COUNT = 1_767_225_600_000, 1_200


@pytest.fixture
def rows() -> pl.DataFrame:
    """Payments whose fraud is their amount."""
    random = np.random.default_rng(6)
    fraud = random.random(COUNT) < 0.15
    return pl.DataFrame(
        {
            "transaction_id": [f"t-{number}" for number in range(COUNT)],
            "user_id": [f"u-{number % 90}" for number in range(COUNT)],
            "amount": [f"{amount:.2f}" for amount in random.uniform(5, 50, COUNT) + 200 * fraud],
            "currency": ["EUR"] * COUNT,
            "timestamp": START_MS + 600_000 * np.arange(COUNT),
            "merchant.id": [f"m-{number % 7}" for number in range(COUNT)],
            "fraud": fraud,
        }
    )


def trained(rows: pl.DataFrame, folder: Path, name: str = "bundle"):
    path = folder / f"{name}.parquet"
    rows.write_parquet(path)
    history = read_history(path, {}, need_labels=True)
    assert history.labels is not None
    return train(history, history.labels, folder / name, rates=Rates.load(), labelled=history.labelled, nthread=1)


def test_unsorted_rows_give_the_bundle_of_sorted_ones(rows, tmp_path):
    shuffled = rows.sample(fraction=1, shuffle=True, seed=3)
    assert trained(shuffled, tmp_path, "shuffled").version == trained(rows, tmp_path, "sorted").version


def test_what_comes_twice_is_learnt_once_and_counted(rows, tmp_path):
    twice = pl.concat([rows, rows.tail(100)])
    assert trained(twice, tmp_path).report["left_out"] == 100


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("fraud", False, "0 fraud"),
        ("fraud", True, "genuine payments"),
        ("fraud", None, "0 fraud in 0"),
        ("currency", "XXX", "currency"),
        ("amount", "NaN", "amount"),
    ],
)
def test_a_column_that_can_not_be_learnt_from_is_refused_with_its_reason(rows, tmp_path, column, value, says):
    with pytest.raises(InputError, match=says):
        trained(rows.with_columns(pl.lit(value, rows.schema[column]).alias(column)), tmp_path)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("column", ["user_id", "amount", "currency", "timestamp", "merchant.id", "fraud"])
def test_a_column_that_is_missing_is_named(rows, tmp_path, column):
    with pytest.raises(InputError, match=column):
        trained(rows.drop(column), tmp_path)
