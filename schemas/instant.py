"""When something happened, as its sender wrote it: a moment, and the offset of local time where one was given."""

import re
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import GetCoreSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

from assay.schemas.limits import MAX_CACHED_TEXTS

MAX_EPOCH_MS = 253_402_300_799_999  # the end of the year 9999, the last that RFC 3339 can write
EXPECTED = "RFC 3339 with an offset, or integer epoch milliseconds, from 1970 to 9999"

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY_AND_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ]([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)", re.ASCII)
_REST = re.compile(r"(?:\.(\d{1,18}))?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))", re.ASCII)


class Instant(NamedTuple):
    """A moment: epoch milliseconds, and minutes east of UTC where the sender told its local time.

    "Z" says that the local time is not known (RFC 9557, 2), and "+00:00" is what many programs write for that. So an offset
    is never 0, and a moment means the same however it was written.

    >>> Instant.parse("2026-03-01T12:00:00.250+01:00")
    Instant(ms=1772362800250, offset_minutes=60)
    >>> str(Instant(1772362800250, 60))
    '2026-03-01T12:00:00.250+01:00'
    """

    ms: int
    offset_minutes: int | None = None

    @staticmethod
    def parse(text: str) -> "Instant":
        """Read RFC 3339; what is finer than a millisecond is cut. Raises ValueError.

        A blank may stand for the "T" (RFC 3339, 5.6, note). ":60" is the moment after ":59".
        """
        return _parse(text)

    def __str__(self) -> str:
        """RFC 3339 in the local time that was given; in UTC, with a "Z", where none was."""
        offset = self.offset_minutes or 0
        seconds, ms = divmod(self.ms + offset * 60_000, 1000)
        zone = f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02d}:{abs(offset) % 60:02d}" if offset else "Z"
        return f"{_second_text(seconds)}.{ms:03d}{zone}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _read, serialization=core_schema.plain_serializer_function_ser_schema(str, when_used="json")
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: object, handler: object) -> dict[str, Any]:
        return {
            "anyOf": [
                {"type": "string", "format": "date-time"},
                {"type": "integer", "minimum": 0, "maximum": MAX_EPOCH_MS},
            ]
        }


def _parse(text: str) -> Instant:
    shift, offset = _rest(text[19:])
    ms = _second_ms(text[:19]) + shift
    if not 0 <= ms <= MAX_EPOCH_MS:
        raise ValueError("before 1970 or after 9999")
    return Instant(ms, offset)


def _read(value: object) -> Instant:
    if type(value) is str:
        try:
            return _parse(value)
        except ValueError:
            pass
    elif type(value) is int:
        if 0 <= value <= MAX_EPOCH_MS:
            return Instant(value, None)
    elif isinstance(value, Instant):
        return value
    raise PydanticCustomError("instant", EXPECTED)


# Payments that are scored together happened within seconds, from few zones: both halves of a text were nearly always
# seen before.


@lru_cache(MAX_CACHED_TEXTS)
def _second_ms(text: str) -> int:
    """Milliseconds of "2026-03-01T12:00:00", without regard to an offset."""
    match = _DAY_AND_TIME.fullmatch(text)
    if match is None:
        raise ValueError("not RFC 3339")
    day, hour, minute, second = match.groups()
    days = date.fromisoformat(day).toordinal() - _EPOCH_DAY
    return ((days * 24 + int(hour)) * 60 + int(minute)) * 60_000 + int(second) * 1000


@lru_cache(MAX_CACHED_TEXTS)
def _rest(text: str) -> tuple[int, int | None]:
    """Milliseconds to add for ".250+01:00", and the minutes of the offset."""
    match = _REST.fullmatch(text)
    if match is None:
        raise ValueError("not RFC 3339 with an offset")
    fraction, sign, hours, minutes = match.groups()
    ms = int(fraction[:3].ljust(3, "0")) if fraction else 0
    if sign is None:
        return ms, None
    offset = (int(hours) * 60 + int(minutes)) * (1 if sign == "+" else -1)
    return ms - offset * 60_000, offset or None


@lru_cache(MAX_CACHED_TEXTS)
def _second_text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
