"""Bad training data is refused with its reason, or repaired and counted."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from assay.deploy import cli
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


@pytest.mark.parametrize("written", ["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S+00:00", None])
def test_the_bundle_does_not_depend_on_how_times_are_written(rows, tmp_path, written):
    moments = pl.from_epoch(pl.col("timestamp"), "ms")
    other = rows.with_columns(moments if written is None else moments.dt.to_string(written).alias("timestamp"))
    assert trained(other, tmp_path, "other").version == trained(rows, tmp_path, "milliseconds").version


def test_payments_that_tell_no_local_hour_are_counted_and_said_where_they_are_many(rows, tmp_path):
    rows.write_parquet(tmp_path / "rows.parquet")
    done = CliRunner().invoke(cli.app, ["train", str(tmp_path / "rows.parquet"), "--out", str(tmp_path / "told")])
    assert f"{COUNT:,} transactions had no local hour" in done.output.replace("\n", " ")
    local = rows.with_columns(pl.from_epoch("timestamp", "ms").dt.to_string("%Y-%m-%dT%H:%M:%S+01:00"))
    assert trained(local, tmp_path).report["without_hour"] == 0


def test_amounts_of_a_currency_without_a_rate_are_learnt_without_and_counted(rows, tmp_path):
    few = pl.when(pl.int_range(pl.len()) % 50 == 0).then(pl.lit("XTS")).otherwise(pl.col("currency"))
    assert trained(rows.with_columns(few.alias("currency")), tmp_path).report["without_rate"] == COUNT // 50
