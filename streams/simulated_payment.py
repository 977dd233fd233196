"""One simulated payment, and its wire form (`wire.md`: a transaction)."""

from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from assay.streams.simulated_world import CURRENCIES, PLACES, World

_ZONES = tuple(ZoneInfo(place.time_zone) for place in PLACES)
_SEEN = tuple((p.country, round(p.latitude, 1), round(p.longitude, 1), p.time_zone) for p in PLACES)


class Payment(NamedTuple):
    """Who pays what, where and with what. Users, merchants and places are row numbers of the world."""

    time_ms: int
    user: int
    merchant: int
    euro: float  # what it is worth; the wire has it in `currency`
    currency: str
    kind: str
    channel: str
    place: int  # where the payer is, or seems to be
    device: str | None
    address: str | None
    card: int  # which of the user's two instruments
    located: bool  # coordinates are known
    pattern: str | None = None  # of fraud; None: genuine


def amount_text(euro: float, currency: str) -> str:
    """An exact decimal with the digits of its currency, and never 0.

    >>> amount_text(12.5, "EUR"), amount_text(12.5, "JPY")
    ('12.50', '2000')
    """
    per_euro, digits = CURRENCIES[currency]
    minor = max(1, round(euro * per_euro * 10**digits))
    return f"{minor // 100}.{minor % 100:02d}" if digits else str(minor)


def to_wire(world: World, payment: Payment, transaction_id: str) -> dict[str, Any]:
    """The transaction as a dict ready for JSON; fields that this payment does not have are left out.

    The objects of merchants and instruments are shared between transactions: copy before you change one.
    """
    time_ms, user, merchant, euro, currency, kind, channel, place, device, address, card, located, _ = payment
    merchant_on_wire, latitude, longitude = world.merchants.described[merchant]
    country, about_latitude, about_longitude, time_zone = _SEEN[place]
    location: dict[str, Any] = {"country": country}
    if channel in ("pos", "atm"):
        location["latitude"], location["longitude"] = latitude, longitude
    elif located:  # of a network address: a rough guess
        location["latitude"], location["longitude"] = about_latitude, about_longitude
    location["time_zone"] = time_zone
    wire: dict[str, Any] = {
        "transaction_id": transaction_id,
        "user_id": world.users.id[user],
        "kind": kind,
        "amount": amount_text(euro, currency) if kind != "verification" else "0",
        "currency": currency,
        "timestamp": datetime.fromtimestamp(time_ms / 1000, _ZONES[place]).isoformat(timespec="milliseconds"),
        "merchant": merchant_on_wire,
        "instrument": world.users.instruments[user][card],
        "location": location,
        "channel": channel,
    }
    if device is not None:
        wire["device"] = {"id": device, "ip": address, "type": "mobile" if device[-1] < "j" else "browser"}
    return wire
