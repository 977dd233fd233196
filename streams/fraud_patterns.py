"""What fraudsters do: one function a pattern. Each returns the payments of one episode, genuine ones of the victim among them.

A pattern takes the world, a generator, when it starts (epoch milliseconds) and its pace (1: as in life; less: faster, for
short simulations), and must leave room for doubt: amounts, hours and places overlap with honest life.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from assay.streams.simulated_payment import Payment
from assay.streams.simulated_world import HOUR_MS, PLACES, RESOLD, TRADES, Ints, World, words

MINUTE_MS = 60_000.0


@dataclass
class Scene:
    """What all patterns need: the world, chance, and a clock that they move on."""

    world: World
    rng: np.random.Generator
    now_ms: float
    pace: float

    def wait(self, mean_ms: float) -> None:
        """Let a random time pass, so long on average."""
        self.now_ms += self.rng.exponential(mean_ms) * self.pace

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def victim(self) -> int:
        return int(self.rng.integers(len(self.world.users.id)))

    def abroad(self, user: int) -> int:
        """A place in another country than the user's home."""
        home = PLACES[self.world.users.home[user]].country
        return int(self.rng.choice([i for i, place in enumerate(PLACES) if place.country != home]))

    def merchant(self, among: Ints, *, resold: bool) -> int:
        """One of them; of a trade whose goods are easily sold on, if asked for and there."""
        fitting = among[np.isin(self.world.merchants.trade[among], RESOLD)] if resold else among
        return int(self.rng.choice(fitting if len(fitting) else among))

    def euro(self, user: int, merchant: int, shift: float) -> float:
        """An amount from the victim's own distribution, `shift` higher in the logarithm."""
        users, trade = self.world.users, TRADES[self.world.merchants.trade[merchant]]
        logarithm = users.log_amount[user] + shift + max(0.6, users.spread[user]) * self.rng.normal()
        return float(min(20_000, np.exp(logarithm) * trade.level))

    def device(self) -> str:
        """One that nobody has seen before."""
        return f"d-{words(self.rng, 1, 10)[0]}"

    def address(self, place: int) -> str:
        return f"10.{place}.{self.rng.integers(1, 255)}.{self.rng.integers(1, 255)}"

    def pays(
        self, user: int, merchant: int, euro: float, pattern: str | None, *, online: bool, place: int,
        device: str | None = None, address: str | None = None, kind: str = "purchase", card: int = 0,
    ) -> Payment:  # fmt: skip
        trade = TRADES[self.world.merchants.trade[merchant]].category
        channel = ("transfer" if trade == "4829" else "ecom") if online else ("atm" if trade == "6011" else "pos")
        here = self.world.merchants.place[merchant] if not online else self.world.users.home[user]
        return Payment(
            int(self.now_ms), user, merchant, euro, PLACES[here].currency, kind, channel, place, device, address, card,
            self.chance(0.7), pattern,
        )  # fmt: skip


def stolen_card(scene: Scene) -> Iterator[Payment]:
    """A card used until it is blocked: goods to sell on, at home or abroad, sometimes tried with a small amount first."""
    user, card = scene.victim(), int(scene.chance(0.2))
    place = int(scene.world.users.home[user]) if scene.chance(0.6) else scene.abroad(user)
    online, device, address = scene.chance(0.45), scene.device() if scene.chance(0.6) else None, scene.address(place)
    among = scene.world.merchants.web if online else scene.world.merchants.in_person[place]
    for number in range(int(scene.rng.integers(3, 8))):
        merchant = scene.merchant(among, resold=scene.chance(0.7))
        tried = number == 0 and scene.chance(0.3)
        euro = float(scene.rng.uniform(1, 6)) if tried else scene.euro(user, merchant, 1.8)
        yield scene.pays(
            user, merchant, euro, "stolen_card", online=online, place=place, card=card,
            device=device if online else None, address=address if online else None,
        )  # fmt: skip
        scene.wait(25 * MINUTE_MS)


def account_takeover(scene: Scene) -> Iterator[Payment]:
    """A stranger in the user's account: usually a new device and network, goods or transfers that are gone at once."""
    user = scene.victim()
    home = int(scene.world.users.home[user])
    place = scene.abroad(user) if scene.chance(0.5) else home
    device = scene.device() if scene.chance(0.8) else scene.world.users.devices[user][0]
    address = scene.address(place)
    for _ in range(int(scene.rng.integers(1, 5))):
        merchant = scene.merchant(scene.world.merchants.web, resold=scene.chance(0.8))
        yield scene.pays(
            user, merchant, scene.euro(user, merchant, 1.8), "account_takeover", online=True, place=place,
            device=device, address=address, card=int(scene.chance(0.3)),
        )  # fmt: skip
        scene.wait(12 * MINUTE_MS)


def compromised_merchant(scene: Scene) -> Iterator[Payment]:
    """Copied cards of many people at one merchant who is in on it, over days, for amounts that are usual there."""
    merchants = scene.world.merchants
    online = scene.chance(0.4)
    place = int(merchants.place[int(scene.rng.integers(len(merchants.id)))])
    merchant = scene.merchant(merchants.web if online else merchants.in_person[place], resold=False)
    devices = [scene.device() for _ in range(3)]
    for _ in range(int(scene.rng.integers(12, 30))):
        user = scene.victim()
        seen_at = int(scene.world.users.home[user]) if online else place
        yield scene.pays(
            user, merchant, scene.euro(user, merchant, 0.3), "compromised_merchant", online=online, place=seen_at,
            device=str(scene.rng.choice(devices)) if online else None,
            address=scene.address(seen_at) if online else None,
        )  # fmt: skip
        scene.wait(2.5 * HOUR_MS)


def card_testing(scene: Scene) -> Iterator[Payment]:
    """A list of cards tried out by a script: many small amounts or verifications, few devices; some are then used."""
    merchant = scene.merchant(scene.world.merchants.web, resold=False)
    devices = [scene.device() for _ in range(int(scene.rng.integers(1, 4)))]
    place = int(scene.rng.integers(len(PLACES)))
    addresses = [scene.address(place) for _ in devices]
    for _ in range(int(scene.rng.integers(10, 30))):
        user, script = scene.victim(), int(scene.rng.integers(len(devices)))
        kind = "verification" if scene.chance(0.25) else "purchase"
        seen = {"online": True, "place": place, "device": devices[script], "address": addresses[script]}
        yield scene.pays(user, merchant, float(scene.rng.uniform(0.5, 5)), "card_testing", kind=kind, **seen)  # type: ignore[arg-type]
        if scene.chance(0.1):
            scene.wait(2 * MINUTE_MS)
            shop = scene.merchant(scene.world.merchants.web, resold=True)
            yield scene.pays(user, shop, scene.euro(user, shop, 1.6), "card_testing", **seen)  # type: ignore[arg-type]
        scene.wait(0.5 * MINUTE_MS)


def impossible_travel(scene: Scene) -> Iterator[Payment]:
    """A copied card abroad while its owner pays at home: each alone looks ordinary."""
    user = scene.victim()
    home, place = int(scene.world.users.home[user]), scene.abroad(user)

    def at_home() -> Payment:
        bakery = int(scene.rng.choice(scene.world.users.local_favourites[user]))
        return scene.pays(user, bakery, scene.euro(user, bakery, 0.0), None, online=False, place=home)

    yield at_home()
    for _ in range(int(scene.rng.integers(1, 5))):
        scene.wait(30 * MINUTE_MS)
        merchant = scene.merchant(scene.world.merchants.in_person[place], resold=scene.chance(0.4))
        euro = scene.euro(user, merchant, 1.0)
        yield scene.pays(user, merchant, euro, "impossible_travel", online=False, place=place)
    if scene.chance(0.6):
        scene.wait(40 * MINUTE_MS)
        yield at_home()


Pattern = Callable[[Scene], Iterator[Payment]]
PATTERNS: dict[str, tuple[Pattern, float]] = {  # with the share of all fraudulent payments
    "stolen_card": (stolen_card, 0.25),
    "account_takeover": (account_takeover, 0.2),
    "compromised_merchant": (compromised_merchant, 0.2),
    "card_testing": (card_testing, 0.2),
    "impossible_travel": (impossible_travel, 0.15),
}
ALL_PATTERNS = tuple(PATTERNS)


def fraudulent_payments(
    world: World, rng: np.random.Generator, *, start_ms: int, gap_ms: float, pace: float, patterns: Sequence[str]
) -> Iterator[Payment]:
    """Without end, ordered by time: episodes of the patterns in their shares, one fraud each `gap_ms` on average."""
    wanted = {name: PATTERNS[name][1] for name in patterns}
    done = dict.fromkeys(patterns, 0.0)
    pending: list[tuple[int, int, Payment]] = []  # by time; the number keeps equal times in order
    number, next_ms = 0, start_ms + float(rng.uniform(0, 5)) * gap_ms
    while True:
        while not pending or next_ms <= pending[0][0]:
            name = min(wanted, key=lambda name: done[name] / wanted[name])
            episode = list(PATTERNS[name][0](Scene(world, rng, next_ms, pace)))
            frauds = sum(payment.pattern is not None for payment in episode)
            done[name] += frauds
            next_ms += frauds * gap_ms * float(rng.uniform(0.6, 1.4))
            for payment in episode:
                number += 1
                heappush(pending, (payment.time_ms, number, payment))
        yield heappop(pending)[2]
