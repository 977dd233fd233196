"""A file of batch features: every form that is taken, and for each thing that is wrong the row, the column and what to do."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from assay.models.batch_file import entity_digest, read_batch_file
from assay.schemas.errors import InputError
from assay.schemas.transaction import Transaction
from assay.tables.batch_history import BatchValues
from assay.tables.batch_rows import BATCH_LIST
from assay.tables.digests import OFFLINE
from assay.tables.encode import encode_events
from assay.tables.rates import Rates

NOW_MS = 1_772_323_200_000  # 2026-03-01
GOOD: dict[str, Any] = {
    "entity": "merchant",
    "id": "m-1",
    "name": "merchant_dispute_rate_90d",
    "value": 0.25,
    "as_of": "2026-02-28T12:00:00Z",
}
GOOD_MS = 1_772_280_000_000


def written(folder: Path, *rows: dict[str, Any], ending: str = ".parquet", **columns: Any) -> Path:
    path = folder / f"values{ending}"
    frame = pl.DataFrame([GOOD | row for row in rows] or [GOOD], strict=False, infer_schema_length=None)
    frame = frame.with_columns(**{name: pl.Series(name, values) for name, values in columns.items()})
    frame.write_parquet(path) if ending == ".parquet" else frame.write_csv(path)
    return path


def taken(path: Path, *options: str) -> BatchValues:
    return read_batch_file(path, options, now_ms=NOW_MS, digests=OFFLINE)


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_a_value_is_taken_with_its_entity_and_its_time(tmp_path: Path, ending: str) -> None:
    values = taken(written(tmp_path, {}, {"id": "m-2", "value": 1}, ending=ending))
    assert [BATCH_LIST[feature].name for feature in values.feature] == ["merchant_dispute_rate_90d"] * 2
    assert values.digest.tolist() == [OFFLINE.of64("m-1"), OFFLINE.of64("m-2")]
    assert values.value.tolist() == [0.25, 1.0]
    assert values.as_of_ms.tolist() == [GOOD_MS] * 2


@pytest.mark.parametrize(
    ("form", "expected_ms"),
    [
        ("2026-02-28", 1_772_236_800_000),
        ("2026-02-28T13:00:00+01:00", GOOD_MS),
        (str(GOOD_MS), GOOD_MS),
        (GOOD_MS, GOOD_MS),
        (date(2026, 2, 28), 1_772_236_800_000),
        (datetime(2026, 2, 28, 12, tzinfo=UTC), GOOD_MS),
    ],
)
def test_a_time_may_have_many_forms(tmp_path: Path, form: Any, expected_ms: int) -> None:
    assert taken(written(tmp_path, as_of=[form])).as_of_ms.tolist() == [expected_ms]


def test_columns_of_other_names_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text("shop,percent,day\nm-1,2.5,1772280000\n")
    mapping = ("entity=merchant", "id=shop", "name=merchant_dispute_rate_90d", "value=percent/100", "as_of=day*1000")
    values = taken(path, *mapping)
    assert (values.digest.tolist(), values.as_of_ms.tolist()) == ([OFFLINE.of64("m-1")], [GOOD_MS])
    assert values.value.tolist() == [np.float32(0.025)]


@pytest.mark.parametrize(
    ("change", "column", "expected"),
    [
        ({"entity": "shop"}, "entity", "one of"),
        ({"entity": None}, "entity", "one of"),
        ({"name": "merchant_dispute_rate"}, "name", "merchant_dispute_rate_90d"),
        ({"name": None}, "name", "one of"),
        ({"id": None}, "id", "printable"),
        ({"id": ""}, "id", "printable"),
        ({"id": "m" * 129}, "id", "printable"),
        ({"value": None}, "value", "finite"),
        ({"value": float("nan")}, "value", "finite"),
        ({"value": float("inf")}, "value", "finite"),
        ({"value": 1e39}, "value", "finite"),
        ({"value": 25}, "value", "0 to 1"),
        ({"value": -0.5}, "value", "0 to 1"),
        ({"value": -1, "name": "merchant_onboarded_days"}, "value", "0 or more"),
        ({"as_of": None}, "as_of", "RFC 3339"),
        ({"as_of": "yesterday"}, "as_of", "RFC 3339"),
        ({"as_of": "2026-02-28 12:00:00"}, "as_of", "RFC 3339"),
        ({"as_of": "1772280000"}, "as_of", "RFC 3339"),
        ({"as_of": "2026-03-02"}, "as_of", "not in the future"),
    ],
)
def test_what_is_wrong_is_named_with_its_row_and_column(tmp_path: Path, change: Any, column: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        taken(written(tmp_path, {}, change))
    assert "row 2: " + column in caught.value.what
    assert expected in caught.value.expected
    assert caught.value.mend
    assert caught.value.got


def test_two_values_of_one_id_name_and_time_are_an_error_and_the_same_twice_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="row 2: value") as caught:
        taken(written(tmp_path, {"id": "m-3"}, {}, {"value": 0.5}))
    assert "one value" in caught.value.expected
    assert len(taken(written(tmp_path, {}, {}))) == 2


def test_the_first_row_that_is_wrong_is_the_one_that_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="row 2: value"):
        taken(written(tmp_path, {}, {"value": None}, {"entity": "shop"}))


def test_a_card_number_for_an_id_is_refused_and_never_shown(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="row 1: id") as caught:
        taken(written(tmp_path, {"id": "4111111111111111"}))
    assert "4111" not in str(caught.value)


def test_ids_that_were_read_as_floats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="row 1: id"):
        taken(written(tmp_path, id=[12.0]))


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "values.csv"
    path.write_text("entity,id,name,value\nmerchant,m-1,merchant_dispute_rate_90d,0.1\n")
    with pytest.raises(InputError, match="as_of"):
        taken(path)


def test_a_field_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no field amount"):
        taken(written(tmp_path), "amount=value")


def test_a_file_without_rows_has_no_values(tmp_path: Path) -> None:
    path = tmp_path / "values.csv"
    path.write_text("entity,id,name,value,as_of\n")
    assert len(taken(path)) == 0


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("user", "u-1"),
        ("instrument", "i-1"),
        ("bin", "411111"),
        ("merchant", "m-1"),
        ("device", "d-1"),
        ("address", "2001:db8::1:2"),
    ],
)
def test_an_id_has_the_digest_that_transactions_have(kind: str, text: str) -> None:
    payment = Transaction.model_validate(
        {
            "transaction_id": "t-1",
            "user_id": "u-1",
            "amount": "1",
            "currency": "EUR",
            "timestamp": NOW_MS,
            "merchant": {"id": "m-1"},
            "instrument": {"id": "i-1", "bin": "411111"},
            "device": {"id": "d-1", "ip": "2001:db8::1:2"},
        }
    )
    events = encode_events([payment], [0], [NOW_MS], Rates.load(), OFFLINE)
    assert entity_digest(kind, text, OFFLINE) == events[kind][0]
