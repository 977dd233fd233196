"""From validated transactions to events: digests for identifiers, numbers for codes, one currency, local time.

What repeats is looked up, and each event is packed in one call: 3 us a transaction.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from math import nan
from struct import Struct
from zoneinfo import ZoneInfo

import numpy as np

from assay.schemas.codes import COUNTRIES
from assay.schemas.limits import MAX_CACHED_ZONE_OFFSETS
from assay.schemas.transaction import Channel, Kind, Transaction
from assay.tables.digests import Digests
from assay.tables.events import EVENT, NO_OFFSET, Events
from assay.tables.rates import Rates

_PACKED = Struct("<16s3qd6Q2f4Hh3B3x")  # the fields of EVENT, in its order; a test holds the two together
_QUARTER_HOUR_MS, _DAY_MS = 900_000, 86_400_000

_KINDS = {kind: index for index, kind in enumerate(Kind)}
_CHANNELS: dict[Channel | None, int] = {None: 0} | {channel: 1 + index for index, channel in enumerate(Channel)}
_CARD_PRESENT = frozenset((Channel.POS, Channel.ATM))
_COUNTRIES: dict[str | None, int] = {None: 0} | {code: int.from_bytes(code.encode(), "big") for code in COUNTRIES}


def encode_events(
    transactions: Sequence[Transaction],
    offsets: Sequence[int],
    appended_ms: Sequence[int],
    rates: Rates,
    digests: Digests,
) -> Events:
    """The events of n transactions, (n,) EVENT, with the source offset and append time (epoch ms) of each."""
    events = np.zeros(len(transactions), EVENT)
    buffer, size = events.view(np.uint8), EVENT.itemsize
    for place, (transaction, offset, appended) in enumerate(zip(transactions, offsets, appended_ms, strict=True)):
        _pack(buffer, place * size, transaction, offset, appended, rates, digests)
    return events


def _pack(
    buffer: object, at: int, transaction: Transaction, offset: int, appended_ms: int, rates: Rates, digests: Digests
) -> None:
    digest = digests.of64
    time_ms, utc_offset = transaction.timestamp
    merchant, instrument, device = transaction.merchant, transaction.instrument, transaction.device
    location, channel = transaction.location, transaction.channel
    latitude = longitude = nan
    country = 0
    if location is not None:
        country = _COUNTRIES[location.country]
        if location.latitude is not None and location.longitude is not None:
            latitude, longitude = location.latitude, location.longitude
        if location.time_zone is not None:
            utc_offset = _zone_offset(location.time_zone, time_ms)
    _PACKED.pack_into(
        buffer,  # type: ignore[arg-type]  # numpy arrays are writable buffers, which their stubs don't say
        at,
        digests.of128(transaction.transaction_id),
        offset,
        time_ms,
        appended_ms,
        rates.convert(transaction.amount, transaction.currency, time_ms),
        digest(transaction.user_id),
        0 if instrument is None or instrument.id is None else digest(instrument.id),
        0 if instrument is None or instrument.bin is None else digest(instrument.bin),
        digest(merchant.id),
        0 if device is None or device.id is None else digest(device.id),
        0 if device is None or device.ip is None else digests.of_address(device.ip),
        latitude,
        longitude,
        country,
        _COUNTRIES[merchant.country],
        0 if instrument is None else _COUNTRIES[instrument.issuer_country],
        0 if merchant.category is None else int(merchant.category),
        NO_OFFSET if utc_offset is None else utc_offset,
        _KINDS[transaction.kind],
        _CHANNELS[channel],
        channel in _CARD_PRESENT,
    )


def _zone_offset(time_zone: str, time_ms: int) -> int:
    """Minutes east of UTC in a zone at a time (epoch ms). Clocks are changed on few days, and then on a quarter of an hour."""
    day = time_ms // _DAY_MS
    offset = _offset_all_day(time_zone, day)
    return _offset_at(time_zone, time_ms // _QUARTER_HOUR_MS * _QUARTER_HOUR_MS) if offset is None else offset


@lru_cache(MAX_CACHED_ZONE_OFFSETS)
def _offset_all_day(time_zone: str, day: int) -> int | None:
    """The offset of a day (UTC) on which clocks are not changed; None where they are, or may be."""
    moments = [*range(0, _DAY_MS, _DAY_MS // 24), _DAY_MS - _QUARTER_HOUR_MS]
    offsets = {_offset_at(time_zone, day * _DAY_MS + moment) for moment in moments}
    return offsets.pop() if len(offsets) == 1 else None


@lru_cache(MAX_CACHED_ZONE_OFFSETS)
def _offset_at(time_zone: str, time_ms: int) -> int:
    try:
        offset = datetime.fromtimestamp(time_ms // 1000, ZoneInfo(time_zone)).utcoffset()
    except OverflowError:  # local time is after the year 9999
        return NO_OFFSET
    return NO_OFFSET if offset is None else int(offset.total_seconds() // 60)
