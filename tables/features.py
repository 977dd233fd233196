"""The features: one line each, in the order of the columns that the models see.

The list is also the map of freshness: documentation, the metric of observed age and the fallback come from it.
Three things stay apart all the way to the model:

- absent: the transaction does not say (no device, no time zone, card not present): the declared value `absent`;
- never: nothing came before, a true zero unless said otherwise: the declared value `never`;
- unavailable: it exists but can't be had (no rate for the currency, no Redis): `unavailable`, not a number.

Means and ratios are of what came before the transaction; counts and sums include it. Refunds, reversals and
verifications count as attempts and never as spending. Windows end at the user's clock: the latest event time so far.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from hashlib import sha256
from math import inf, nan

import numpy as np

REVISION = 3  # raise it when a feature comes to mean something else under the same name

MINUTE, HOUR, DAY = 60, 3_600, 86_400  # seconds
TEN_MINUTES, WEEK, MONTH = 10 * MINUTE, 7 * DAY, 30 * DAY
LABEL_DELAY_S = WEEK  # by then most fraud is known: fraud is counted, and what it is a share of, up to so long before
WINDOW_NAMES = {MINUTE: "1m", TEN_MINUTES: "10m", HOUR: "1h", DAY: "24h", WEEK: "7d", MONTH: "30d"}
ENTITIES = ("instrument", "bin", "merchant", "device", "address")  # columns of EVENT
ALWAYS_THERE = ("user", "merchant")  # every transaction has one


class Origin(StrEnum):
    """Where a feature is computed from."""

    EVENT = "event"
    PROFILE = "profile"
    ENTITY = "entity"  # in Redis: what an entity has seen
    BATCH = "batch"  # in Redis: computed elsewhere, loaded with its as-of time
    RISK = "risk"  # in Redis: what became of an entity's transactions


@dataclass(frozen=True, slots=True)
class Feature:
    """One column of the feature matrix.

    `window_s` and `allowed_age_s` are seconds (0: always current); `sign` is the monotone constraint: +1 where more can
    only be more suspicious, -1 where it can only be less, 0 where the model may decide. `measure` says what is counted
    of an entity, so that the windows are found by it. `for_models`: False where only rules may see it. `lowest` and
    `highest`: what a batch feature may be.
    """

    name: str
    measures: str
    entity: str
    window_s: int | None
    source: Origin
    allowed_age_s: int
    sign: int
    absent: float
    never: float
    unavailable: float = nan
    measure: str = ""
    for_models: bool = True
    lowest: float = -inf
    highest: float = inf


def _event(name: str, measures: str, *, absent: float = nan) -> Feature:
    return Feature(name, measures, "transaction", None, Origin.EVENT, 0, 0, absent, nan)


def _user(
    name: str, measures: str, window_s: int | None = None, *, sign: int = 0, absent: float = nan, never: float = 0.0
) -> Feature:
    return Feature(name, measures, "user", window_s, Origin.PROFILE, 0, sign, absent, never)


_PROFILE = (
    _event("amount", "amount in the base currency, major units"),
    _event("kind", "index of the kind of payment"),
    _event("channel", "1 + index of the channel", absent=0.0),
    _event("category", "merchant category code as a number", absent=0.0),
    _event(
        "local_hour",
        "hour of the day at the place of payment, 0-23: of its time zone, else of the timestamp's offset, if not Z or +00:00",
        absent=-1.0,
    ),
    _event("weekend", "1 on a local Saturday or Sunday", absent=-1.0),
    _event("night", "1 from local midnight to 06:59", absent=-1.0),
    _event("issuer_abroad", "1 where the location is not in the issuer's country", absent=-1.0),
    _event("merchant_abroad", "1 where the merchant is not in the issuer's country", absent=-1.0),
    _user("count_1m", "attempts, this one included (at most 33)", MINUTE, sign=1),
    _user("count_1h", "attempts, this one included", HOUR, sign=1),
    _user("count_24h", "attempts, this one included", DAY),
    _user("count_7d", "attempts, this one included", WEEK),
    _user("count_30d", "attempts, this one included", MONTH),
    _user("sum_1m", "spending, this one included (of at most 33)", MINUTE, sign=1),
    _user("sum_1h", "spending, this one included", HOUR, sign=1),
    _user("sum_24h", "spending, this one included", DAY),
    _user("sum_7d", "spending, this one included", WEEK),
    _user("sum_30d", "spending, this one included", MONTH),
    _user("since_last_s", "seconds since the latest attempt before; 0 out of order", never=-1.0),
    _user("user_age_s", "seconds since the user was first seen"),
    _user("user_count", "attempts before this one"),
    _user("amount_mean", "mean of the amounts spent before"),
    _user("amount_deviation", "standard deviation of the amounts spent before; 0 for fewer than two"),
    _user("amount_z", "amount less the mean, in deviations (at least 1 unit); 0 for fewer than two"),
    _user("amount_ratio", "amount over the mean of the amounts spent before"),
    _user("amount_ratio_7d", "amount over the mean of the amounts spent before", WEEK),
    _user("amount_ratio_30d", "amount over the mean of the amounts spent before", MONTH),
    _user("amount_to_max", "amount over the largest amount spent before"),
    _user("merchants_24h", "distinct merchants, this one included (at most 19)", DAY, sign=1),
    _user("merchants_7d", "distinct merchants, this one included (at most 19)", WEEK),
    _user("devices_24h", "distinct devices, this one included (at most 7)", DAY, sign=1),
    _user("instruments_24h", "distinct instruments, this one included (at most 7)", DAY, sign=1),
    _user("countries_24h", "distinct countries, this one included (at most 7)", DAY, sign=1),
    _user("device_age_s", "seconds since the user's first attempt with this device", absent=-1.0),
    _user("device_count", "the user's attempts with this device before", absent=-1.0),
    _user("merchant_age_s", "seconds since the user's first attempt at this merchant", absent=-1.0),
    _user("merchant_count", "the user's attempts at this merchant before", absent=-1.0),
    _user("country_age_s", "seconds since the user's first attempt in this country", absent=-1.0),
    _user("country_count", "the user's attempts in this country before", absent=-1.0),
    _user("instrument_age_s", "seconds since the user's first attempt with this instrument", absent=-1.0),
    _user("instrument_count", "the user's attempts with this instrument before", absent=-1.0),
    _user("distance_km", "great circle from where the card was last present", absent=-1.0),
    _user("speed_kmh", "that distance over the time between (at least a minute), card present", sign=1, absent=-1.0),
)

_MEASURES = {
    "count": "attempts",
    "sum": "spending",
    "small": "small attempts (spending or verification, at most 2 units of the base currency)",
    "users": "distinct users",
    "instruments": "distinct instruments",
    "devices": "distinct devices",
    "matured": "attempts up to a label delay ago,",
}


def _seen(entity: str, measure: str, window_s: int, *, sign: int = 0) -> Feature:
    name, included = f"{entity}_{measure}_{WINDOW_NAMES[window_s]}", "" if measure == "matured" else ", this one included"
    measures = f"{_MEASURES[measure]} of this {entity}{included}"
    return Feature(name, measures, entity, window_s, Origin.ENTITY, MINUTE, sign, -1.0, 0.0, measure=measure)


_ENTITY = (
    _seen("instrument", "count", MINUTE, sign=1),
    _seen("instrument", "count", TEN_MINUTES, sign=1),
    _seen("instrument", "count", HOUR),
    _seen("instrument", "count", DAY),
    _seen("instrument", "count", WEEK),
    _seen("instrument", "sum", HOUR),
    _seen("instrument", "sum", DAY),
    _seen("instrument", "small", TEN_MINUTES, sign=1),
    _seen("instrument", "small", DAY, sign=1),
    _seen("instrument", "users", HOUR, sign=1),
    _seen("instrument", "users", DAY, sign=1),
    _seen("instrument", "users", MONTH, sign=1),
    _seen("instrument", "devices", DAY, sign=1),
    _seen("instrument", "matured", WEEK),
    _seen("instrument", "matured", MONTH),
    _seen("bin", "count", TEN_MINUTES),
    _seen("bin", "count", HOUR),
    _seen("bin", "small", TEN_MINUTES, sign=1),
    _seen("bin", "small", HOUR, sign=1),
    _seen("bin", "instruments", TEN_MINUTES, sign=1),
    _seen("bin", "instruments", HOUR, sign=1),
    _seen("bin", "matured", WEEK),
    _seen("bin", "matured", MONTH),
    _seen("merchant", "count", TEN_MINUTES),
    _seen("merchant", "count", HOUR),
    _seen("merchant", "count", DAY),
    _seen("merchant", "count", MONTH),
    _seen("merchant", "sum", HOUR),
    _seen("merchant", "sum", DAY),
    _seen("merchant", "sum", MONTH),
    _seen("merchant", "small", TEN_MINUTES, sign=1),
    _seen("merchant", "small", HOUR, sign=1),
    _seen("merchant", "users", HOUR),
    _seen("merchant", "users", DAY),
    _seen("merchant", "matured", WEEK),
    _seen("merchant", "matured", MONTH),
    _seen("device", "count", TEN_MINUTES, sign=1),
    _seen("device", "count", HOUR),
    _seen("device", "count", DAY),
    _seen("device", "sum", HOUR),
    _seen("device", "sum", DAY),
    _seen("device", "small", HOUR, sign=1),
    _seen("device", "users", HOUR, sign=1),
    _seen("device", "users", DAY, sign=1),
    _seen("device", "users", WEEK, sign=1),
    _seen("device", "users", MONTH, sign=1),
    _seen("device", "instruments", HOUR, sign=1),
    _seen("device", "instruments", DAY, sign=1),
    _seen("device", "instruments", WEEK, sign=1),
    _seen("device", "instruments", MONTH, sign=1),
    _seen("device", "matured", WEEK),
    _seen("device", "matured", MONTH),
    _seen("address", "count", HOUR),
    _seen("address", "count", DAY),
    _seen("address", "sum", HOUR),
    _seen("address", "sum", DAY),
    _seen("address", "small", HOUR, sign=1),
    _seen("address", "users", HOUR, sign=1),
    _seen("address", "users", DAY, sign=1),
    _seen("address", "users", WEEK, sign=1),
    _seen("address", "users", MONTH, sign=1),
    _seen("address", "instruments", HOUR, sign=1),
    _seen("address", "instruments", DAY, sign=1),
    _seen("address", "instruments", WEEK, sign=1),
    _seen("address", "instruments", MONTH, sign=1),
    _seen("address", "devices", DAY, sign=1),
    _seen("address", "matured", WEEK),
    _seen("address", "matured", MONTH),
)


def _batch(
    name: str,
    measures: str,
    entity: str,
    *,
    allowed_age_s: int,
    measure: str = "",
    sign: int = 0,
    never: float = -1.0,
    lowest: float = 0.0,
) -> Feature:
    """Loaded by `assay features load`, from `lowest` on; a share up to 1. Where an entity may be absent, `never` can't be -1,
    which says so."""
    absent, highest = nan if entity in ALWAYS_THERE else -1.0, 1.0 if measure == "share" else inf
    place = name, measures, entity, None, Origin.BATCH, allowed_age_s
    return Feature(*place, sign, absent, never, measure=measure, lowest=lowest, highest=highest)


_BATCH = (
    _batch(
        "merchant_dispute_rate_90d", "share of the merchant's payments of 90 days that were disputed", "merchant",
        allowed_age_s=2 * DAY, measure="share", sign=1,
    ),
    _batch("merchant_onboarded_days", "days since the merchant was taken on", "merchant", allowed_age_s=MONTH),
)  # fmt: skip
FRAUD_PRIOR, FRAUD_PRIOR_WEIGHT = 0.005, 10.0  # the share of fraud where there is no history, and how many attempts it weighs
_BECAME = {
    "issuer_declines": "attempts that the issuer declined, as known by now",
    "declined": "attempts that we declined in the tier full",
    "disputes": "payments that were disputed, as known by now",
    "frauds": "payments that were confirmed as fraud, up to the label delay ago and known by now",
    "fraud_sum": "amount that was confirmed as fraud, up to the label delay ago and known by now",
    "fraud_share": "smoothed share of confirmed fraud, up to the label delay ago and known by now",
}


def _risk(entity: str, measure: str, window_s: int, *, sign: int = 1, for_models: bool = True) -> Feature:
    name, measures = f"{entity}_{measure}_{WINDOW_NAMES[window_s]}", f"{_BECAME[measure]}, of this {entity}"
    absent, never = nan if entity in ALWAYS_THERE else -1.0, FRAUD_PRIOR if measure == "fraud_share" else 0.0
    place = (entity, window_s, Origin.RISK, HOUR)
    if measure == "fraud_share" and window_s == MONTH:
        sign = 0  # given the share of the week, that of the month also tells what is over
    return Feature(name, measures, *place, sign, absent, never, measure=measure, for_models=for_models)


_RISK = (
    _risk("user", "issuer_declines", DAY),
    _risk("user", "disputes", MONTH),
    _risk("user", "frauds", MONTH),
    _risk("instrument", "issuer_declines", HOUR),
    _risk("instrument", "issuer_declines", DAY),
    _risk("bin", "issuer_declines", TEN_MINUTES, sign=0),
    _risk("device", "issuer_declines", HOUR),
    _risk("address", "issuer_declines", HOUR),
    _risk("merchant", "issuer_declines", TEN_MINUTES, sign=0),
    _risk("instrument", "frauds", MONTH),
    _risk("device", "frauds", MONTH),
    _risk("instrument", "fraud_share", WEEK),
    _risk("instrument", "fraud_share", MONTH),
    _risk("bin", "fraud_share", WEEK),
    _risk("bin", "fraud_share", MONTH),
    _risk("merchant", "fraud_share", WEEK),
    _risk("merchant", "fraud_share", MONTH),
    _risk("device", "fraud_share", WEEK),
    _risk("device", "fraud_share", MONTH),
    _risk("address", "fraud_share", WEEK),
    _risk("address", "fraud_share", MONTH),
    # Our own verdicts: for rules alone, since a model must not learn from itself. They come last.
    _risk("instrument", "declined", HOUR, for_models=False),
    _risk("bin", "declined", TEN_MINUTES, for_models=False),
    _risk("device", "declined", HOUR, for_models=False),
    _risk("address", "declined", HOUR, for_models=False),
)

FEATURES: tuple[Feature, ...] = _PROFILE + _ENTITY + _BATCH + _RISK
NAMES: tuple[str, ...] = tuple(feature.name for feature in FEATURES)
PROFILE_FEATURES = len(_PROFILE)  # the first columns: from the event and the profile
ENTITY_FEATURES, BATCH_FEATURES, RISK_FEATURES = len(_ENTITY), len(_BATCH), len(_RISK)  # the rest, in this order: from Redis
FEATURE_COUNT = len(FEATURES)
MODEL_FEATURES = sum(feature.for_models for feature in FEATURES)  # the first columns: those that models see

# A row of the matrix with its columns by name: how the compiled fold writes it.
FEATURE_ROW = np.dtype([(name, "<f4") for name in NAMES])


def features_digest() -> str:
    """SHA-256, in hexadecimal, of all that the columns mean: the list without its prose, and its revision."""
    return _digest(FEATURES)


def model_features_digest() -> str:
    """The same of what models see: one more feature for rules alone leaves bundles as they are."""
    return _digest(FEATURES[:MODEL_FEATURES])


@cache
def _digest(features: tuple[Feature, ...]) -> str:
    lines = [f"revision {REVISION}"]
    for f in features:
        values = (f.absent, f.never, f.unavailable, f.for_models)
        lines.append(repr((f.name, f.entity, f.window_s, f.source.value, f.allowed_age_s, f.sign, *values)))
    return sha256("\n".join(lines).encode()).hexdigest()
