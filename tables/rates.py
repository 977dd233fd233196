"""Exchange rates by event date: what an amount was worth in the base currency on the day of the payment.

A rates file is text: a comment `# base: EUR`, a heading line `from,currency,rate`, then one line for each rate: the day
(UTC) from which it holds, the ISO 4217 code, and what one unit of it is worth in the base currency.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cached_property
from hashlib import sha256
from math import isfinite, nan
from pathlib import Path
from typing import Self

from assay.schemas.codes import CURRENCY_DIGITS
from assay.schemas.errors import RatesError

SHIPPED_RATES = Path(__file__).with_name("rates.csv")
_DAY_MS = 86_400_000
_HEADING = "from,currency,rate"


@dataclass(frozen=True, slots=True)
class _Course:
    """The rates of one currency: from each day (since the epoch, ascending) on."""

    days: list[int]
    rates: list[float]

    def at(self, day: int) -> float:
        """The last rate at or before the day; before the first, the first."""
        return self.rates[max(bisect_right(self.days, day) - 1, 0)]


@dataclass(frozen=True)
class Rates:
    """`digest` is the SHA-256 of the file, in hexadecimal; `currencies` all that can be converted, the base included."""

    base: str
    digest: str
    courses: dict[str, _Course]

    @classmethod
    def load(cls, path: Path = SHIPPED_RATES) -> Self:
        """Read a rates file. Raises RatesError, which names the file and the line."""
        try:
            content = path.read_bytes()
            text = content.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise RatesError(f"{path} can't be read", expected="a text file of rates", got=str(error)) from error
        base, courses = _parse(path, text)
        return cls(base, sha256(content).hexdigest(), courses)

    @cached_property
    def currencies(self) -> frozenset[str]:
        return frozenset(self.courses)

    def rate(self, currency: str, time_ms: int) -> float:
        """What one unit is worth in the base currency at an event time (epoch ms); NaN for a currency without rates."""
        course = self.courses.get(currency)
        return nan if course is None else course.at(time_ms // _DAY_MS)

    def convert(self, amount: Decimal, currency: str, time_ms: int) -> float:
        """An amount in major units of the base currency at an event time (epoch ms); NaN without a rate."""
        return float(amount) * self.rate(currency, time_ms)


def _parse(path: Path, text: str) -> tuple[str, dict[str, _Course]]:
    """The base, and the course of each currency."""
    mark = "# base:"
    base = next((line.removeprefix(mark).strip() for line in text.splitlines() if line.startswith(mark)), "")
    if base not in CURRENCY_DIGITS:
        raise RatesError(f"{path} names no base currency", expected="a comment line '# base: EUR'", got=repr(base or "none"))
    found: dict[str, dict[int, float]] = {}
    for number, line in _lines(path, text):
        day, currency, rate = _line(path, number, line)
        if currency == base:
            raise _wrong(path, number, "no line for the base currency, which is always 1", line)
        if day in found.setdefault(currency, {}):
            raise _wrong(path, number, f"one rate of {currency} from that day", line)
        found[currency][day] = rate
    courses = {currency: _Course(sorted(by_day), [by_day[day] for day in sorted(by_day)]) for currency, by_day in found.items()}
    courses[base] = _Course([0], [1.0])
    return base, courses


def _lines(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Lines of rates with their numbers: without comments, blank lines, and the heading, which must be there."""
    heading = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if heading:
            yield number, line
        elif line.replace(" ", "") != _HEADING:
            raise _wrong(path, number, f"the heading {_HEADING!r}", line)
        heading = True


def _line(path: Path, number: int, line: str) -> tuple[int, str, float]:
    """Day since the epoch, currency, rate."""
    parts = [part.strip() for part in line.split(",")]
    if len(parts) != 3:
        raise _wrong(path, number, "three fields: from, currency, rate", line)
    try:
        day = (date.fromisoformat(parts[0]) - date(1970, 1, 1)).days
    except ValueError:
        raise _wrong(path, number, "a day like 2024-01-31", parts[0]) from None
    if parts[1] not in CURRENCY_DIGITS:
        raise _wrong(path, number, "an ISO 4217 code in capitals", parts[1])
    try:
        rate = float(parts[2])
    except ValueError:
        rate = nan
    if not (isfinite(rate) and rate > 0):
        raise _wrong(path, number, "a rate above 0", parts[2])
    return day, parts[1], rate


def _wrong(path: Path, number: int, expected: str, got: str) -> RatesError:
    return RatesError(f"{path}, line {number}: not a rate", expected=expected, got=got, mend="correct that line")
