"""The codes of ISO and IANA that a transaction may name: currencies and their digits, countries, time zones."""

from zoneinfo import available_timezones

import pycountry

# ISO 4217, list one (SIX, maintenance agency), column "minor unit": the currencies that don't have two digits.
_OTHER_DIGITS = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
# "N.A." in that list: metals, units of account and the test code have no minor unit, so nothing limits their digits
# but the widest of the table.
_NO_MINOR_UNIT = "XAG XAU XBA XBB XBC XBD XDR XPD XPT XSU XTS XUA XXX"
MAX_CURRENCY_DIGITS = 4

CURRENCY_DIGITS: dict[str, int] = (
    {currency.alpha_3: 2 for currency in pycountry.currencies}
    | {code: digits for digits, codes in _OTHER_DIGITS.items() for code in codes.split()}
    | dict.fromkeys(_NO_MINOR_UNIT.split(), MAX_CURRENCY_DIGITS)
)
"""Digits after the point, by ISO 4217 code."""

COUNTRIES: tuple[str, ...] = tuple(sorted(country.alpha_2 for country in pycountry.countries))
"""ISO 3166-1 alpha-2."""

TIME_ZONES: tuple[str, ...] = tuple(sorted(available_timezones() - {"localtime", "Factory"}))
"""Names of the IANA database; without the two that stand for "this machine" and for "not set"."""


def currency_digits(code: str) -> int:
    """Digits after the point of a currency: 0 to 4. Raises KeyError for what is no ISO 4217 code."""
    return CURRENCY_DIGITS[code]
