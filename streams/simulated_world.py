"""The world that the simulator draws from: places, merchants, and users with habits. All of it follows from one generator.

Everything is a structure of arrays (one row per user, one per merchant), so that a block of payments is drawn in a few calls.
Coordinates and currencies are those of the real cities; merchant categories are ISO 18245 codes; people are made up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LOCAL_FAVOURITES, ONLINE_FAVOURITES = 6, 4
LETTERS = "bcdfghjkmnpqrstv"  # identifiers have no digit in a row: none can pass for a card number


class Place(NamedTuple):
    """A city: degrees, and how much of the population lives there."""

    country: str
    latitude: float
    longitude: float
    time_zone: str
    currency: str
    weight: float


PLACES = (
    Place("DE", 52.52, 13.40, "Europe/Berlin", "EUR", 10),
    Place("DE", 48.14, 11.58, "Europe/Berlin", "EUR", 6),
    Place("DE", 53.55, 9.99, "Europe/Berlin", "EUR", 6),
    Place("FR", 48.86, 2.35, "Europe/Paris", "EUR", 10),
    Place("FR", 45.76, 4.84, "Europe/Paris", "EUR", 4),
    Place("ES", 40.42, -3.70, "Europe/Madrid", "EUR", 7),
    Place("ES", 41.39, 2.17, "Europe/Madrid", "EUR", 5),
    Place("IT", 41.90, 12.50, "Europe/Rome", "EUR", 6),
    Place("IT", 45.46, 9.19, "Europe/Rome", "EUR", 5),
    Place("NL", 52.37, 4.90, "Europe/Amsterdam", "EUR", 5),
    Place("AT", 48.21, 16.37, "Europe/Vienna", "EUR", 4),
    Place("BE", 50.85, 4.35, "Europe/Brussels", "EUR", 3),
    Place("PT", 38.72, -9.14, "Europe/Lisbon", "EUR", 3),
    Place("IE", 53.35, -6.26, "Europe/Dublin", "EUR", 3),
    Place("FI", 60.17, 24.94, "Europe/Helsinki", "EUR", 2),
    Place("GR", 37.98, 23.73, "Europe/Athens", "EUR", 2),
    Place("GB", 51.51, -0.13, "Europe/London", "GBP", 7),
    Place("GB", 53.48, -2.24, "Europe/London", "GBP", 2),
    Place("US", 40.71, -74.01, "America/New_York", "USD", 5),
    Place("US", 41.88, -87.63, "America/Chicago", "USD", 2),
    Place("US", 37.77, -122.42, "America/Los_Angeles", "USD", 3),
    Place("JP", 35.68, 139.69, "Asia/Tokyo", "JPY", 3),
    Place("JP", 34.69, 135.50, "Asia/Tokyo", "JPY", 1),
)
CURRENCIES: dict[str, tuple[float, int]] = {  # roughly what one euro is worth, and the digits after the point
    "EUR": (1.0, 2),
    "USD": (1.1, 2),
    "GBP": (0.86, 2),
    "JPY": (160.0, 0),
}


class Trade(NamedTuple):
    """A kind of merchant: MCC, price level (1: groceries), share that sells online, and how common it is."""

    category: str
    level: float
    online: float
    weight: float


TRADES = (
    Trade("5411", 1.0, 0.1, 22),
    Trade("5812", 0.8, 0.0, 14),
    Trade("5814", 0.35, 0.05, 12),
    Trade("4111", 0.2, 0.3, 8),
    Trade("5541", 1.6, 0.0, 8),
    Trade("5912", 0.7, 0.15, 6),
    Trade("5651", 2.0, 0.5, 7),
    Trade("5999", 1.5, 0.7, 10),
    Trade("5732", 5.0, 0.6, 3),
    Trade("5944", 7.0, 0.3, 1),
    Trade("4511", 6.0, 0.95, 1.2),
    Trade("7011", 4.0, 0.7, 1.5),
    Trade("5816", 0.5, 1.0, 4),
    Trade("5968", 0.5, 1.0, 3),
    Trade("4829", 4.0, 1.0, 1.5),
    Trade("6011", 3.0, 0.0, 2),
)
RESOLD = tuple(i for i, trade in enumerate(TRADES) if trade.category in ("5732", "5944", "5651", "5816", "4829"))
CASH = next(i for i, trade in enumerate(TRADES) if trade.category == "6011")
HELD_FIRST = tuple(i for i, trade in enumerate(TRADES) if trade.category in ("7011", "5541"))


@dataclass(frozen=True)
class Merchants:
    """One row per merchant."""

    id: list[str]
    trade: Ints
    place: Ints
    described: list[tuple[dict[str, str], float, float]]  # as the wire has it; degrees
    in_person: list[Ints]  # of each place, the most popular first
    web: Ints  # all that sell online, the most popular first


@dataclass(frozen=True)
class Users:
    """One row per user: where, how much, when, with what, and what is about to change."""

    id: list[str]
    home: Ints
    log_amount: Floats  # of a payment at level 1, euro
    spread: Floats  # standard deviation of the logarithm
    online: Floats  # share of payments that are online
    hourly: Floats  # (24, users): cumulated over users, how likely each is to pay in that hour of the day in UTC
    local_favourites: Ints  # (users, 6) merchants
    online_favourites: Ints  # (users, 4)
    devices: list[tuple[str, str, str]]  # the usual one, its successor, a second one
    changes_device_ms: Floats  # when the successor takes over; infinity: never
    addresses: list[tuple[str, str, str]]  # at home, on the move, abroad
    instruments: list[tuple[dict[str, str], dict[str, str]]]  # as the wire has them
    trip: Ints  # place
    trip_from_ms: Floats
    trip_until_ms: Floats
    subscription: Ints  # merchant
    subscription_amount: Floats  # euro


@dataclass(frozen=True)
class World:
    """Who pays, and where."""

    tag: str  # differs between seeds; part of every identifier
    merchants: Merchants
    users: Users


def words(rng: np.random.Generator, count: int, length: int) -> list[str]:
    """`count` random identifiers of `length` letters."""
    letters = np.array(list(LETTERS))[rng.integers(0, len(LETTERS), (count, length))]
    return ["".join(row) for row in letters.tolist()]


def utc_offset_minutes(place: int, time_ms: int) -> int:
    """Local time of a place at an instant, as minutes ahead of UTC."""
    offset = datetime.fromtimestamp(time_ms / 1000, UTC).astimezone(ZoneInfo(PLACES[place].time_zone)).utcoffset()
    return int(offset.total_seconds()) // 60 if offset is not None else 0


def build_world(rng: np.random.Generator, *, users: int, start_ms: int, span_ms: float) -> World:
    """A world of so many users, whose trips and new devices fall into the span (milliseconds) after `start_ms`."""
    tag = words(rng, 1, 5)[0]
    merchants = _merchants(rng, tag, 300 + users // 5)
    return World(tag, merchants, _users(rng, tag, merchants, users, start_ms, span_ms))


def _merchants(rng: np.random.Generator, tag: str, count: int) -> Merchants:
    place = _choose(rng, [place.weight for place in PLACES], count)
    trade = _choose(rng, [trade.weight for trade in TRADES], count)
    online = rng.random(count) < np.array([trade.online for trade in TRADES])[trade]
    # each place has at least one merchant of flesh and blood, or nobody there could buy bread
    for needed in range(len(PLACES)):
        place[needed * 3 : needed * 3 + 3], online[needed * 3 : needed * 3 + 3] = needed, False
        trade[needed * 3 : needed * 3 + 3] = (0, 1, CASH)
    popularity = rng.random(count)
    in_person = [np.flatnonzero((place == p) & ~online) for p in range(len(PLACES))]
    web = np.flatnonzero(online)
    names = [f"m-{tag}-{word}" for word in words(rng, count, 6)]
    latitude = np.array([p.latitude for p in PLACES])[place] + rng.normal(0, 0.05, count)
    longitude = np.array([p.longitude for p in PLACES])[place] + rng.normal(0, 0.07, count)
    described = [
        ({"id": name, "category": TRADES[t].category, "country": PLACES[p].country}, round(north, 5), round(east, 5))
        for name, t, p, north, east in zip(
            names, trade.tolist(), place.tolist(), latitude.tolist(), longitude.tolist(), strict=True
        )
    ]
    return Merchants(
        id=names,
        trade=trade,
        place=place,
        described=described,
        in_person=[them[np.argsort(popularity[them])] for them in in_person],
        web=web[np.argsort(popularity[web])],
    )


def _users(rng: np.random.Generator, tag: str, merchants: Merchants, count: int, start_ms: int, span_ms: float) -> Users:
    home = _choose(rng, [place.weight for place in PLACES], count)
    device, spare = (words(rng, count, 10) for _ in range(2))
    second = words(rng, count, 10)
    card, other_card = words(rng, count, 12), words(rng, count, 12)
    issuer = rng.integers(400_000, 499_999, (len(PLACES), 4))
    bins = issuer[home, rng.integers(0, 4, count)]
    carrier = rng.integers(0, 40, count)  # addresses on the move are shared by many
    hosts = rng.integers(1, 255, (count, 2)).tolist()
    changes = np.where(rng.random(count) < 0.25, start_ms + rng.random(count) * span_ms, np.inf)
    leaves = start_ms + rng.random(count) * span_ms
    travels = rng.random(count) < 0.15
    subscriptions = merchants.web[rng.integers(0, len(merchants.web), count)]
    return Users(
        id=[f"u-{tag}-{word}" for word in words(rng, count, 7)],
        home=home,
        log_amount=rng.normal(3.2, 0.5, count),
        spread=rng.uniform(0.35, 0.8, count),
        online=rng.beta(2, 3.5, count),
        hourly=_hourly(rng, home, count, start_ms),
        local_favourites=_favourites(rng, [merchants.in_person[h] for h in range(len(PLACES))], home, LOCAL_FAVOURITES),
        online_favourites=_favourites(rng, [merchants.web] * len(PLACES), home, ONLINE_FAVOURITES),
        devices=[(f"d-{a}", f"d-{b}", f"d-{c}") for a, b, c in zip(device, spare, second, strict=True)],
        changes_device_ms=changes,
        addresses=[
            (f"10.{h}.{a}.{b}", f"100.64.{h}.{c}", f"172.16.{h}.{b}")
            for (a, b), c, h in zip(hosts, carrier.tolist(), home.tolist(), strict=True)
        ],
        instruments=[
            (
                {"id": f"i-{a}", "bin": str(b), "issuer_country": country},
                {"id": f"i-{c}", "bin": str(b), "issuer_country": country},
            )
            for a, c, b, country in zip(
                card, other_card, bins.tolist(), [PLACES[h].country for h in home.tolist()], strict=True
            )
        ],
        trip=_choose(rng, [place.weight for place in PLACES], count),
        trip_from_ms=np.where(travels, leaves, np.inf),
        trip_until_ms=leaves + rng.uniform(0.05, 0.2, count) * span_ms,
        subscription=subscriptions,
        subscription_amount=np.round(rng.choice([4.99, 9.99, 12.99, 17.99, 29.0, 49.0], count), 2),
    )


def _hourly(rng: np.random.Generator, home: Ints, count: int, start_ms: int) -> Floats:
    """(24, users) cumulated: activity times a bump around each user's own hour, over a floor for sleepless nights."""
    activity = rng.lognormal(0, 0.8, count)
    peak = rng.normal(15, 3, count)
    width = rng.uniform(2.5, 5, count)
    offset = np.array([utc_offset_minutes(place, start_ms) / 60 for place in range(len(PLACES))])[home]
    local = (np.arange(24)[:, None] + 0.5 + offset) % 24
    distance = np.abs(local - peak % 24)
    distance = np.minimum(distance, 24 - distance)
    return np.cumsum(activity * (0.03 + np.exp(-0.5 * (distance / width) ** 2)), axis=1)


def _favourites(rng: np.random.Generator, candidates: Sequence[Ints], home: Ints, count: int) -> Ints:
    """(users, count) merchants, popular ones more often."""
    sizes = np.array([len(them) for them in candidates])[home]
    chosen = np.floor(rng.random((len(home), count)) ** 1.7 * sizes[:, None]).astype(np.int64)
    starts = np.cumsum([0, *(len(them) for them in candidates)])[:-1]
    found: Ints = np.concatenate(candidates)[starts[home][:, None] + chosen]
    return found


def _choose(rng: np.random.Generator, weights: Sequence[float], count: int) -> Ints:
    shares = np.array(weights, dtype=np.float64)
    return rng.choice(len(shares), count, p=shares / shares.sum())
