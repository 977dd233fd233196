"""The fold: (rows, events) -> (features, new rows), one event after another, compiled by numba.

Pure: no clock and no randomness, so that the stream, training and a replay get the same bits, whatever the batches
(invariant I4). All that is compiled stands in this one file, and sizes and columns come from the types of the arguments:
numba's cache on disk knows a change of either, and would not know one of another file.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.tables.compiled import compiled
from assay.tables.events import EVENT, NO_OFFSET, Events
from assay.tables.features import FEATURE_COUNT, FEATURE_ROW
from assay.tables.profile import NEVER_MS, Rows, new_rows
from assay.tables.recall import NEW, recall

__all__ = ["fold", "recall", "warm"]

# Kinds that count as spending: purchase, preauth, recurring, by their position in `schemas.transaction.Kind`.
SPENDING = (0, 2, 3)

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
MINUTE_S, DAY_S, WEEK_S = 60, 86_400, 604_800
MONTH_DAYS, WEEK_DAYS, DAY_HOURS = 30, 7, 24
COUNT_LIMIT = 65_535  # of a 16-bit counter: it stops there
SECOND_LIMIT = 2**32 - 1

DEVIATION_FLOOR = 1.0  # major units: users who always spend the same are not surprising by a cent
AMOUNT_FLOOR = 0.01  # a mean below this says nothing
EARTH_RADIUS_KM = 6_371.0088  # mean radius of the IUGG
NIGHT_ENDS = 7  # o'clock
MONDAY_OFFSET = 3  # 1970-01-01 was a Thursday
ABSENT = -1.0  # as declared in `tables.features`

Array = npt.NDArray[Any]


# --- the event alone -----------------------------------------------------------------------------------------------


@compiled
def _spends(kind: Any, amount: Any) -> Any:
    """Whether it counts as spending: not a refund, a reversal or a verification, nor an amount without a rate."""
    return kind in SPENDING and not math.isnan(amount)


@compiled
def _differ(country: Any, issuer: Any) -> Any:
    if country == 0 or issuer == 0:
        return ABSENT
    return 1.0 if country != issuer else 0.0


@compiled
def _describe(event: Any, out: Any) -> None:
    out.amount = event.amount
    out.kind = event.kind
    out.channel = event.channel
    out.category = event.category
    out.issuer_abroad = _differ(event.country, event.issuer_country)
    out.merchant_abroad = _differ(event.merchant_country, event.issuer_country)


@compiled
def _calendar(event: Any, out: Any) -> None:
    """Local hour, weekend and night; absent where neither a zone nor an offset is known."""
    if event.utc_offset_minutes == NO_OFFSET:
        out.local_hour = out.weekend = out.night = ABSENT
        return
    hours = (event.time_ms + np.int64(event.utc_offset_minutes) * 60_000) // HOUR_MS
    hour = hours % 24
    out.local_hour = hour
    out.weekend = 1.0 if (hours // 24 + MONDAY_OFFSET) % 7 >= 5 else 0.0
    out.night = 1.0 if hour < NIGHT_ENDS else 0.0


# --- windows -------------------------------------------------------------------------------------------------------


@compiled
def _from_ring(row: Any, after_ms: Any) -> Any:
    """Attempts, spends and the sum spent among the recent events later than `after_ms`."""
    attempts, spends, spent = 0.0, 0.0, 0.0
    for i in range(min(row.attempts, len(row.recent_ms))):
        if row.recent_ms[i] > after_ms:
            attempts += 1.0
            if _spends(row.recent_kind[i], row.recent_amount[i]):
                spends += 1.0
                spent += row.recent_amount[i]
    return attempts, spends, spent


@compiled
def _from_tiles(tiles: Any, now_ms: Any, tile_ms: Any, count: Any) -> Any:
    """The same over `count` tiles' time up to now: the oldest tile is apportioned by time."""
    size = len(tiles.spent)
    index = now_ms // tile_ms
    attempts, spends, spent = 0.0, 0.0, 0.0
    for age in range(count + 1):
        behind = index - age
        # Tiles up to the head are this user's; those after it have not begun, and hold an older turn.
        if behind <= tiles.head and behind > tiles.head - size:
            share = 1.0 if age < count else 1.0 - (now_ms - index * tile_ms) / tile_ms
            attempts += share * tiles.attempts[behind % size]
            spends += share * tiles.spends[behind % size]
            spent += share * tiles.spent[behind % size]
    return attempts, spends, spent


@compiled
def _before(row: Any, tiles: Any, now_ms: Any, tile_ms: Any, count: Any) -> Any:
    """Attempts, spends and the sum spent before this event: exact while the ring reaches back, else from tiles."""
    after_ms = now_ms - tile_ms * count
    attempts, spends, spent = _from_ring(row, after_ms)
    if row.evicted_ms <= after_ms:
        return attempts, spends, spent
    more_attempts, more_spends, more_spent = _from_tiles(tiles, now_ms, tile_ms, count)
    return max(attempts, more_attempts), max(spends, more_spends), max(spent, more_spent)


@compiled
def _ratio(amount: Any, base: Any) -> Any:
    """The amount over a mean or a largest amount; 0 where that is 0 (nothing was spent), but for an amount unknown."""
    return amount / max(base, AMOUNT_FLOOR) if base > 0 else amount * 0.0


@compiled
def _windows(row: Any, event: Any, now_ms: Any, out: Any) -> None:
    amount = event.amount
    own = amount if _spends(event.kind, amount) else 0.0
    attempts, spends, spent = _from_ring(row, now_ms - MINUTE_S * 1000)
    out.count_1m, out.sum_1m = attempts + 1.0, spent + own
    attempts, spends, spent = _before(row, row.hours, now_ms, HOUR_MS, 1)
    out.count_1h, out.sum_1h = attempts + 1.0, spent + own
    attempts, spends, spent = _before(row, row.hours, now_ms, HOUR_MS, DAY_HOURS)
    out.count_24h, out.sum_24h = attempts + 1.0, spent + own
    attempts, spends, spent = _before(row, row.days, now_ms, DAY_MS, WEEK_DAYS)
    out.count_7d, out.sum_7d = attempts + 1.0, spent + own
    out.amount_ratio_7d = _ratio(amount, spent / spends if spends > 0 else 0.0)
    attempts, spends, spent = _before(row, row.days, now_ms, DAY_MS, MONTH_DAYS)
    out.count_30d, out.sum_30d = attempts + 1.0, spent + own
    out.amount_ratio_30d = _ratio(amount, spent / spends if spends > 0 else 0.0)


@compiled
def _tally(tiles: Any, index: Any, spends: Any, amount: Any) -> None:
    """Counts one event into its tile; one older than all tiles is dropped."""
    size = len(tiles.spent)
    passed = index - tiles.head
    if passed > 0:
        for age in range(min(passed, size)):  # time has passed over these
            place = (index - age) % size
            tiles.attempts[place] = tiles.spends[place] = 0
            tiles.spent[place] = 0.0
        tiles.head = index
    if passed > -size:
        place = index % size
        tiles.attempts[place] = min(tiles.attempts[place] + 1, COUNT_LIMIT)
        if spends:
            tiles.spends[place] = min(tiles.spends[place] + 1, COUNT_LIMIT)
            tiles.spent[place] += amount


# --- what came before ----------------------------------------------------------------------------------------------


@compiled
def _history(row: Any, event: Any, out: Any) -> None:
    seen = row.attempts > 0
    out.since_last_s = max(event.time_ms - row.last_ms, 0) / 1000.0 if seen else -1.0
    out.user_age_s = max(event.time_ms - row.first_ms, 0) / 1000.0 if seen else 0.0
    out.user_count = row.attempts
    deviation = math.sqrt(row.squares / (row.spends - 1)) if row.spends > 1 else 0.0
    out.amount_mean = row.mean
    out.amount_deviation = deviation
    known = 1.0 if row.spends > 1 else 0.0  # an amount without a rate stays not a number
    out.amount_z = known * (event.amount - row.mean) / max(deviation, DEVIATION_FLOOR)
    out.amount_ratio = _ratio(event.amount, row.mean)
    out.amount_to_max = _ratio(event.amount, row.largest)


@compiled
def _seconds(time_ms: Any) -> Any:
    """Whole seconds that fit a row's 32 bits."""
    return min(max(time_ms // 1000, 0), SECOND_LIMIT)


@compiled
def _distinct(known: Any, digest: Any, after_s: Any) -> Any:
    """Distinct keys later than `after_s`, this one included where there is one."""
    key = np.uint32(digest & SECOND_LIMIT)
    found = 0.0 if digest == 0 else 1.0
    for i in range(len(known.key)):
        if known.count[i] > 0 and known.last_s[i] > after_s and (digest == 0 or known.key[i] != key):
            found += 1.0
    return found


@compiled
def _meet(known: Any, digest: Any, second: Any) -> Any:
    """Age in seconds and count of what is known of this key, which it then updates; absent where there is none."""
    if digest == 0:
        return ABSENT, ABSENT
    key = np.uint32(digest & SECOND_LIMIT)
    oldest = 0
    for i in range(len(known.key)):
        if known.count[i] > 0 and known.key[i] == key:
            age, count = max(second - known.first_s[i], 0), known.count[i]
            known.first_s[i] = min(known.first_s[i], second)
            known.last_s[i] = max(known.last_s[i], second)
            known.count[i] = min(count + 1, COUNT_LIMIT)
            return float(age), float(count)
        if (known.count[i] > 0, known.last_s[i]) < (known.count[oldest] > 0, known.last_s[oldest]):
            oldest = i
    known.key[oldest] = key
    known.first_s[oldest] = known.last_s[oldest] = second
    known.count[oldest] = 1
    return 0.0, 0.0


@compiled
def _company(row: Any, event: Any, now_ms: Any, out: Any) -> None:
    """Distinct merchants, devices, instruments and countries of late, and how well the user knows these."""
    day, week, second = now_ms // 1000 - DAY_S, now_ms // 1000 - WEEK_S, _seconds(event.time_ms)
    country = np.uint64(event.country)
    out.merchants_24h = _distinct(row.merchants, event.merchant, day)
    out.merchants_7d = _distinct(row.merchants, event.merchant, week)
    out.devices_24h = _distinct(row.devices, event.device, day)
    out.instruments_24h = _distinct(row.instruments, event.instrument, day)
    out.countries_24h = _distinct(row.countries, country, day)
    out.merchant_age_s, out.merchant_count = _meet(row.merchants, event.merchant, second)
    out.device_age_s, out.device_count = _meet(row.devices, event.device, second)
    out.instrument_age_s, out.instrument_count = _meet(row.instruments, event.instrument, second)
    out.country_age_s, out.country_count = _meet(row.countries, country, second)


# --- places --------------------------------------------------------------------------------------------------------


@compiled
def _great_circle_km(latitude: Any, longitude: Any, other_latitude: Any, other_longitude: Any) -> Any:
    """Distance on a sphere by the haversine formula; degrees in, kilometres out."""
    a, b = math.radians(np.float64(latitude)), math.radians(np.float64(other_latitude))
    turn = math.radians(np.float64(other_longitude) - np.float64(longitude))
    half = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(turn / 2) ** 2
    return 2.0 * EARTH_RADIUS_KM * math.asin(math.sqrt(min(half, 1.0)))


@compiled
def _travel(row: Any, event: Any, out: Any) -> None:
    """Distance from where the card was last present, and the speed if it is present again; then it is here."""
    out.distance_km = out.speed_kmh = ABSENT
    if math.isnan(event.latitude) or math.isnan(event.longitude):
        return
    known = row.present_ms > NEVER_MS
    distance = 0.0
    if known:
        distance = _great_circle_km(row.present_latitude, row.present_longitude, event.latitude, event.longitude)
    out.distance_km = distance
    if not event.card_present:
        return
    # Both ends are certain, so the time between counts, whichever of the two records came first.
    elapsed_s = max(abs(event.time_ms - row.present_ms) / 1000.0, MINUTE_S) if known else MINUTE_S
    out.speed_kmh = distance / elapsed_s * 3600.0
    if event.time_ms >= row.present_ms:
        row.present_ms = event.time_ms
        row.present_latitude, row.present_longitude = event.latitude, event.longitude


# --- the row -------------------------------------------------------------------------------------------------------


@compiled
def _spend(row: Any, amount: Any) -> None:
    """Running mean and squared differences by Welford's method (Technometrics 4, 1962)."""
    row.spends += 1
    difference = amount - row.mean
    row.mean += difference / row.spends
    row.squares += difference * (amount - row.mean)
    row.largest = max(row.largest, amount)


@compiled
def _remember(row: Any, event: Any, now_ms: Any) -> None:
    """The event into the rings, the tiles and the header. The clock is `now_ms`: a late event does not turn it back."""
    spends = _spends(event.kind, event.amount)
    _tally(row.hours, event.time_ms // HOUR_MS, spends, event.amount)
    _tally(row.days, event.time_ms // DAY_MS, spends, event.amount)
    if spends:
        _spend(row, event.amount)
    place = row.attempts % len(row.recent_ms)
    if row.attempts >= len(row.recent_ms):
        row.evicted_ms = max(row.evicted_ms, row.recent_ms[place])
    row.recent_ms[place] = event.time_ms
    row.recent_amount[place] = event.amount
    row.recent_kind[place] = event.kind
    place = row.attempts % len(row.decision_offset)
    row.decision_id[place, 0], row.decision_id[place, 1] = event.id[0], event.id[1]
    row.decision_offset[place] = event.offset
    row.decision_appended_ms[place] = event.appended_ms
    row.first_ms = event.time_ms if row.attempts == 0 else min(row.first_ms, event.time_ms)
    row.last_ms = now_ms
    row.last_offset = max(row.last_offset, event.offset)
    row.attempts += 1


@compiled
def _fold(rows: Array, slots: Array, events: Array, repeats: Array, features: Array) -> None:
    for i in range(len(events)):
        if repeats[i] == NEW:
            row, event, out = rows[slots[i]], events[i], features[i]
            now_ms = max(event.time_ms, row.last_ms)
            _describe(event, out)
            _calendar(event, out)
            _windows(row, event, now_ms, out)
            _history(row, event, out)
            _company(row, event, now_ms, out)
            _travel(row, event, out)
            _remember(row, event, now_ms)


def fold(
    rows: Rows,
    slots: npt.NDArray[np.int32],
    events: Events,
    repeats: npt.NDArray[np.int64],
    features: npt.NDArray[np.float32],
) -> None:
    """Folds the new events into their rows, in place and in order, and writes their profile features.

    `rows` (users,) ROW; `slots` (n,) int32: the row of each event; `events` (n,) EVENT; `repeats` (n,) int64 from
    `recall`; `features` (n, FEATURE_COUNT) float32, C-contiguous: of an event that is not new nothing is written,
    and of none the columns after PROFILE_FEATURES.
    """
    _fold(rows, slots, events, repeats, features.view(FEATURE_ROW).reshape(len(events)))


def warm() -> None:
    """Compiles recall and fold, or loads them from numba's cache on disk (seconds, or half of one)."""
    rows, slots, events = new_rows(1), np.zeros(1, np.int32), np.zeros(1, EVENT)
    repeats = np.empty(1, np.int64)
    recall(rows, slots, events, repeats)
    fold(rows, slots, events, repeats, np.zeros((1, FEATURE_COUNT), np.float32))
