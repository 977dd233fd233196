"""Rates by event date, and files that can't be used."""

import math
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from pathlib import Path

import pytest

from assay.schemas.errors import RatesError
from assay.tables.rates import SHIPPED_RATES, Rates

FILE = """# anything
# base: EUR
from,currency,rate

2024-01-01,USD,0.5
2023-01-01,USD,0.25
2024-01-01,JPY,0.01
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "rates.csv"
    path.write_text(text)
    return path


def day(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("when", "expected"),
    [("2023-06-01", 25), ("2023-12-31T23:59:59.999", 25), ("2024-01-01", 50), ("2030-01-01", 50), ("1999-01-01", 25)],
)
def test_the_rate_is_the_last_at_or_before_the_day_and_before_all_the_first(tmp_path: Path, when: str, expected: float) -> None:
    assert Rates.load(written(tmp_path, FILE)).convert(Decimal(100), "USD", day(when)) == expected


def test_the_base_is_worth_itself_and_an_unknown_currency_is_not_a_number(tmp_path: Path) -> None:
    rates = Rates.load(written(tmp_path, FILE))
    assert rates.base == "EUR"
    assert rates.convert(Decimal("12.34"), "EUR", 0) == 12.34
    assert math.isnan(rates.convert(Decimal(1), "CHF", 0))
    assert rates.currencies == {"EUR", "USD", "JPY"}


def test_the_digest_is_of_the_file(tmp_path: Path) -> None:
    assert Rates.load(written(tmp_path, FILE)).digest == sha256(FILE.encode()).hexdigest()


def test_the_shipped_file_says_that_it_is_no_market_data_and_can_be_used() -> None:
    rates = Rates.load()
    assert "not market data" in SHIPPED_RATES.read_text().splitlines()[0]
    assert rates.base == "EUR"
    assert len(rates.currencies) > 40
    assert 0.7 < rates.convert(Decimal(1), "USD", day("2024-06-01")) < 1.3


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("2024-13-01,USD,0.5", "line 5.*a day like 2024-01-31; got: 2024-13-01"),
        ("2024-01-01,usd,0.5", "line 5.*ISO 4217 code in capitals; got: usd"),
        ("2024-01-01,USD,-1", "line 5.*a rate above 0; got: -1"),
        ("2024-01-01,USD,nan", "line 5.*a rate above 0; got: nan"),
        ("2024-01-01,USD,half", "line 5.*a rate above 0; got: half"),
        ("2024-01-01,USD", "line 5.*three fields"),
        ("2024-01-01,EUR,1", "line 5.*always 1"),
        ("2024-01-01,JPY,1", "line 7.*one rate of JPY from that day"),
    ],
)
def test_an_error_names_the_file_and_the_line(tmp_path: Path, line: str, says: str) -> None:
    path = written(tmp_path, FILE.replace("2024-01-01,USD,0.5", line))
    with pytest.raises(RatesError, match=f"(?s){path}.*{says}"):
        Rates.load(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("from,currency,rate\n", "names no base currency"),
        ("# base: euro\nfrom,currency,rate\n", "names no base currency .*'euro'"),
        ("# base: EUR\n2024-01-01,USD,0.5\n", "line 2.*the heading"),
    ],
)
def test_a_file_without_base_or_heading_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(RatesError, match=says):
        Rates.load(written(tmp_path, text))


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RatesError, match=r"absent\.csv can't be read"):
        Rates.load(tmp_path / "absent.csv")
    noise = tmp_path / "noise.csv"
    noise.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RatesError, match=r"noise\.csv can't be read"):
        Rates.load(noise)
