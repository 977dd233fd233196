"""Genuine payments: what users do when nobody robs them, oddities included.

Genuine life overlaps with fraud on purpose: trips abroad, new and borrowed devices, large purchases, sleepless nights, refunds,
subscriptions and verifications of 0 all happen to honest people, and far more often than fraud does.
"""

from collections.abc import Iterator

import numpy as np

from assay.streams.simulated_payment import Payment
from assay.streams.simulated_world import (
    CASH,
    CURRENCIES,
    DAY_MS,
    HELD_FIRST,
    HOUR_MS,
    LOCAL_FAVOURITES,
    ONLINE_FAVOURITES,
    PLACES,
    TRADES,
    Flags,
    Floats,
    Ints,
    World,
    words,
)

BLOCK = 8_192  # payments drawn at once
KINDS = ("purchase", "verification", "preauth", "recurring", "refund", "reversal")
CHANNELS = ("pos", "atm", "ecom", "transfer")
_LEVEL = np.array([trade.level for trade in TRADES])
_CURRENCY = np.array([list(CURRENCIES).index(place.currency) for place in PLACES])
_TRANSFER = [trade.category for trade in TRADES].index("4829")


class Rhythm:
    """Arrival times: even gaps on average, stretched so that each hour of the day (UTC) has its share."""

    def __init__(self, start_ms: int, gap_ms: float, share_by_hour: Floats) -> None:
        self._gap_ms = gap_ms
        self._hours = np.arange(25) * float(HOUR_MS)
        self._busy = np.concatenate([[0.0], np.cumsum(share_by_hour / share_by_hour.sum() * DAY_MS)])
        day, within = divmod(start_ms, DAY_MS)
        self._at = day * DAY_MS + float(np.interp(within, self._hours, self._busy))

    def draw(self, rng: np.random.Generator, count: int) -> Ints:
        """The next `count` times, epoch milliseconds, ascending."""
        at = self._at + np.cumsum(rng.exponential(self._gap_ms, count))
        self._at = float(at[-1])
        day = np.floor(at / DAY_MS)
        times: Ints = (day * DAY_MS + np.interp(at - day * DAY_MS, self._busy, self._hours)).astype(np.int64)
        return times


def genuine_payments(world: World, rng: np.random.Generator, rhythm: Rhythm) -> Iterator[Payment]:
    """Without end, ordered by time."""
    while True:
        yield from _block(world, rng, rhythm.draw(rng, BLOCK))


def _who(world: World, rng: np.random.Generator, times: Ints) -> Ints:
    """A user for each time, by their hours."""
    chosen, hours = np.empty(len(times), dtype=np.int64), times // HOUR_MS % 24
    share = rng.random(len(times))
    for hour in np.unique(hours):
        cumulated, here = world.users.hourly[hour], hours == hour
        chosen[here] = np.searchsorted(cumulated, share[here] * cumulated[-1], side="right")
    return np.minimum(chosen, len(world.users.id) - 1)


def _where(world: World, rng: np.random.Generator, user: Ints, place: Ints, away: Flags, online: Flags) -> Ints:
    """A merchant for each payment: mostly favourites, else by popularity at that place or on the web."""
    users, merchants, count = world.users, world.merchants, len(user)
    skewed, explores = rng.random(count) ** 2, rng.random(count) < 0.25
    local = users.local_favourites[user, np.floor(skewed * LOCAL_FAVOURITES).astype(np.int64)]
    web = users.online_favourites[user, np.floor(skewed * ONLINE_FAVOURITES).astype(np.int64)]
    sizes = np.array([len(them) for them in merchants.in_person])
    starts = np.cumsum(sizes) - sizes
    fresh = np.floor(rng.random(count) ** 1.7 * sizes[place]).astype(np.int64)
    local = np.where(explores | away, np.concatenate(merchants.in_person)[starts[place] + fresh], local)
    searched = merchants.web[np.floor(rng.random(count) ** 1.7 * len(merchants.web)).astype(np.int64)]
    return np.where(online, np.where(explores, searched, web), local)


def _block(world: World, rng: np.random.Generator, times: Ints) -> Iterator[Payment]:
    users, merchants, count = world.users, world.merchants, len(times)
    user = _who(world, rng, times)
    away = (users.trip_from_ms[user] <= times) & (times < users.trip_until_ms[user])
    place = np.where(away, users.trip[user], users.home[user])
    online = rng.random(count) < users.online[user]
    recurring = rng.random(count) < 0.04
    online |= recurring
    merchant = np.where(recurring, users.subscription[user], _where(world, rng, user, place, away, online))
    trade = merchants.trade[merchant]

    euro = np.exp(users.log_amount[user] + users.spread[user] * rng.normal(size=count)) * _LEVEL[trade]
    euro *= np.where(rng.random(count) < 0.012, rng.uniform(2, 8, count), 1.0)  # once in a while, something large
    euro = np.where(rng.random(count) < 0.25, np.floor(euro) + 0.99, euro)  # prices as shops like them
    euro = np.where(trade == CASH, np.maximum(10, np.round(euro / 10) * 10), euro)
    euro = np.where(recurring, users.subscription_amount[user], np.minimum(euro, 20_000))

    odd = rng.random(count)
    kind = np.where(recurring, 3, 0)
    kind = np.where((kind == 0) & (odd < 0.015), 4, kind)
    kind = np.where((kind == 0) & (odd > 0.996), 5, kind)
    kind = np.where((kind == 0) & online & (odd > 0.985), 1, kind)
    kind = np.where((kind == 0) & np.isin(trade, HELD_FIRST) & (odd > 0.7), 2, kind)
    channel = np.where(trade == CASH, 1, np.where(online, np.where(trade == _TRANSFER, 3, 2), 0))
    foreign_currency = ~online | (rng.random(count) < 0.3)
    currency = _CURRENCY[np.where(foreign_currency, merchants.place[merchant], users.home[user])]

    device = np.where(users.changes_device_ms[user] <= times, 1, 0)
    draw = rng.random(count)
    device = np.where(draw < 0.15, 2, np.where(draw > 0.98, 3, device))  # 3: borrowed, never seen again
    device = np.where(~online | recurring | (rng.random(count) < 0.08), -1, device)
    address = np.where(away, 2, np.where(rng.random(count) < 0.4, 1, 0))
    card = (rng.random(count) < 0.2).astype(np.int64)
    borrowed = [f"d-{word}" for word in words(rng, count, 10)]
    names, homes, kinds, channels = list(CURRENCIES), users.addresses, KINDS, CHANNELS
    rows = zip(user.tolist(), device.tolist(), borrowed, strict=True)
    devices = [None if d < 0 else other if d == 3 else users.devices[u][d] for u, d, other in rows]
    columns = zip(
        times.tolist(),
        user.tolist(),
        merchant.tolist(),
        euro.tolist(),
        [names[c] for c in currency.tolist()],
        [kinds[k] for k in kind.tolist()],
        [channels[c] for c in channel.tolist()],
        place.tolist(),
        devices,
        [homes[u][a] for u, a in zip(user.tolist(), address.tolist(), strict=True)],
        card.tolist(),
        (rng.random(count) < 0.7).tolist(),
        strict=True,
    )
    for row in columns:
        yield Payment(*row)
