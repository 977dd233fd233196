"""Histories that are larger than the memory: read, replayed and learnt from in pieces, with what all at once would give."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.models import matrices, sorted_rows, table_file
from assay.models.feature_rows import FeatureRows
from assay.models.history import read_history
from assay.models.sorted_rows import SortedRows
from assay.models.table_file import read_table
from assay.models.training import train_on_features
from assay.schemas.transaction import Transaction
from assay.streams.simulator import simulate
from assay.tables.rates import Rates
from assay.tables.replay import replay, spilled_events, spilled_features
from assay.tables.spilled import BLOCK, Spilled

COUNT = 3 * BLOCK + 5


@pytest.fixture(scope="module")
def spilled() -> Spilled:
    rows = Spilled(np.dtype(np.float32), 2)
    for part in np.array_split(np.arange(2 * COUNT, dtype=np.float32).reshape(-1, 2), 7):
        rows.append(part)
    return rows


@given(st.lists(st.integers(0, COUNT - 1), max_size=20))
def test_rows_on_disk_are_picked_as_those_of_an_array(spilled: Spilled, numbers: list[int]) -> None:
    picked = spilled[np.array(numbers, np.int64)]
    assert picked.tolist() == [[2.0 * number, 2.0 * number + 1] for number in numbers]


@given(st.integers(0, COUNT), st.integers(0, COUNT + 9))
def test_rows_on_disk_are_sliced_as_those_of_an_array(spilled: Spilled, start: int, stop: int) -> None:
    assert spilled[start:stop][:, 0].tolist() == np.arange(2 * COUNT, dtype=np.float32)[::2][start:stop].tolist()


@pytest.fixture
def unsorted(monkeypatch: pytest.MonkeyPatch) -> pl.DataFrame:
    """Times in no order, with ties and without some; sorted ten at a time."""
    monkeypatch.setattr(sorted_rows, "SORTED_AT_ONCE", 10)
    monkeypatch.setattr(sorted_rows, "WINDOW", 16)
    times = np.random.default_rng(5).integers(0, 40, 200)
    return pl.DataFrame({"time": [None if time == 3 else int(time) for time in times], "row": range(200)})


def test_a_table_in_any_order_is_sorted_in_parts_as_it_would_be_at_once(unsorted: pl.DataFrame) -> None:
    rows = SortedRows(unsorted.lazy(), "time")
    expected = unsorted.sort("time", maintain_order=True)
    assert pl.concat([rows.part(start, start + 7) for start in range(0, 200, 7)]).equals(expected)
    assert rows.columns("row").equals(expected.select("row"))


def test_what_is_left_out_is_in_no_part(unsorted: pl.DataFrame) -> None:
    rows = SortedRows(unsorted.lazy(), "time")
    kept = np.arange(200) % 3 != 0
    assert rows.only(kept).part(20, 40).equals(unsorted.sort("time", maintain_order=True).filter(kept)[20:40])
    assert rows.only(~kept).only(np.zeros(67, np.bool_)).part(0, 5).is_empty()


@pytest.mark.parametrize("written", ["rows.parquet", "rows.csv"])
def test_a_file_that_is_read_in_pieces_gives_its_transactions_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setattr(sorted_rows, "SORTED_AT_ONCE", 50)
    monkeypatch.setattr(sorted_rows, "WINDOW", 64)
    order = np.random.default_rng(2).permutation(300)
    frame = pl.DataFrame(
        {
            "transaction_id": [f"t-{number}" for number in order],
            "user_id": ["u"] * 300,
            "amount": ["1.50"] * 300,
            "currency": ["EUR"] * 300,
            "timestamp": [str(datetime.fromtimestamp(1_767_225_600 + int(number), UTC).isoformat()) for number in order],
            "merchant.id": ["m"] * 300,
        }
    )
    (frame.write_parquet if written.endswith("parquet") else frame.write_csv)(tmp_path / written)
    assert [one.transaction_id for one in read_history(tmp_path / written, {})] == [f"t-{number}" for number in range(300)]


def test_lines_of_json_that_differ_in_their_fields_and_types_are_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 2, "b": {"c": true}}\n{"a": "3.50"}\n{"b": {"c": false}}\n')
    whole = read_table(path)
    monkeypatch.setattr(table_file, "LINES_AT_ONCE", 2)
    assert read_table(path).equals(whole)
    assert whole["a"].to_list() == ["1", "2", "3.50", None]


def test_i4_a_replay_on_disk_equals_one_in_memory() -> None:
    payments = [payment.transaction for payment in simulate(seed=4, transactions=400, users=30, start_ms=1_767_225_600_000)]
    transactions = [Transaction.model_validate(payment) for payment in [*payments, *payments[:50]]]
    rates = Rates.load()
    assert spilled_features(spilled_events(transactions, rates))[:].tobytes() == replay(transactions, rates).tobytes()


def test_features_on_disk_give_the_bundle_of_those_in_memory(made_up, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    features, times_ms, fraud = made_up
    there = Spilled(np.dtype(np.float32), features.shape[1])
    there.append(features)
    expected = train_on_features(features, times_ms, fraud, tmp_path / "memory")
    monkeypatch.setattr(matrices, "MOST_IN_MEMORY", 100)  # so that what trees grow on is on disk, too
    assert train_on_features(there, times_ms, fraud, tmp_path / "disk").version == expected.version


def test_rows_are_taken_evenly_over_all() -> None:
    rows = FeatureRows.all_of(np.arange(20, dtype=np.float32).reshape(10, 2))
    assert rows.evenly(5).column(0).tolist() == [0, 4, 8, 12, 16]
    assert FeatureRows(rows.features, np.arange(0)).column(1).tolist() == []
