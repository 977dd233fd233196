"""What the windows of entities are, by their definition: lists of events and sums over them, nothing shared with the code.

And events to try it with.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from assay.schemas.transaction import Kind
from assay.tables.events import EVENT, Events
from assay.tables.features import FEATURES, Feature, Origin

START_MS = 1_760_000_000_000
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
KINDS = ("instrument", "bin", "merchant", "device", "address")
TILE_MS = {"1m": 10_000, "10m": 10_000, "1h": 5 * MINUTE_MS, "24h": HOUR_MS, "7d": DAY_MS, "30d": DAY_MS}
LENGTH_MS = {"1m": MINUTE_MS, "10m": 10 * MINUTE_MS, "1h": HOUR_MS, "24h": DAY_MS, "7d": 7 * DAY_MS, "30d": 30 * DAY_MS}
PEOPLE = {"users": "user", "instruments": "instrument", "devices": "device"}
SPENDING = {list(Kind).index(kind) for kind in ("purchase", "preauth", "recurring")}
DECLARED = tuple(feature for feature in FEATURES if feature.source is Origin.ENTITY)
GOLDEN_RATIO = 0x9E3779B97F4A7C15


def share(time_ms: int, clock_ms: int, tile_ms: int, length_ms: int, delay_ms: int = 0) -> float:
    """How much of an event at a time is in the window: all, or the part of its tile that is, for the tiles at both ends."""
    passed = clock_ms % tile_ms / tile_ms
    behind = (clock_ms - delay_ms) // tile_ms - time_ms // tile_ms
    if behind == 0:
        return passed if delay_ms else 1.0
    if behind == length_ms // tile_ms:
        return 1.0 - passed
    return 1.0 if 0 < behind < length_ms // tile_ms else 0.0


def window(feature: Feature, history: list[np.void]) -> float:
    """One feature of an entity that has seen these events, the last of them now."""
    measure, length = feature.measure, feature.name.rpartition("_")[2]
    clock_ms = max(int(event["time_ms"]) for event in history)
    if measure in PEOPLE:
        last: dict[int, int] = {}
        for event in history:
            person = int(event[PEOPLE[measure]])
            if person:
                last[person] = max(last.get(person, 0), int(event["time_ms"]))
        return sum(share(time, clock_ms, 10_000, LENGTH_MS[length]) for time in last.values())
    delay_ms, tile_ms = (7 * DAY_MS, DAY_MS) if measure == "matured" else (0, TILE_MS[length])
    total = 0.0
    for event in history:
        kind, amount = int(event["kind"]), float(event["amount"])
        spends, tests = kind in SPENDING, kind in SPENDING or kind == list(Kind).index(Kind.VERIFICATION)
        worth = {
            "count": 1.0,
            "matured": 1.0,
            "sum": round(amount, 3) if spends and amount >= 0 else 0.0,
            "small": 1.0 if tests and amount <= 2 else 0.0,
        }
        total += worth[measure] * share(int(event["time_ms"]), clock_ms, tile_ms, LENGTH_MS[length], delay_ms)
    return total


class Reference:
    """Observes events one by one."""

    def __init__(self, features: Sequence[Feature] = DECLARED) -> None:
        self._features = features
        self._histories: dict[tuple[str, int], list[np.void]] = defaultdict(list)

    def observe(self, event: np.void) -> tuple[list[float], list[int]]:
        """The windows after this event, in the order of the feature list, and the five numbers of the observation."""
        numbers = [0] * len(KINDS)
        for slot, kind in enumerate(KINDS):
            if event[kind]:
                history = self._histories[kind, int(event[kind])]
                clock_ms = max((int(before["time_ms"]) for before in history), default=0)
                if int(event["time_ms"]) // DAY_MS - clock_ms // DAY_MS > 37:
                    history.clear()  # time has passed over all of it
                history.append(event)
                numbers[slot] = len(history)
        seen = {kind: self._histories[kind, int(event[kind])] for kind in KINDS if event[kind]}
        return [window(f, seen[f.entity]) if f.entity in seen else -1.0 for f in self._features], numbers


def referred(events: Events, features: Sequence[Feature] = DECLARED) -> tuple[np.ndarray, np.ndarray]:
    """Windows (n, features) and numbers (n, 5) of events, one after another."""
    reference = Reference(features)
    answers = [reference.observe(event) for event in events]
    return np.array([values for values, _ in answers]), np.array([numbers for _, numbers in answers])


steps_ms = st.one_of(
    st.integers(0, 90_000),
    st.integers(-20 * MINUTE_MS, 20 * MINUTE_MS),
    st.integers(-30 * HOUR_MS, 30 * HOUR_MS),
    st.integers(-20 * DAY_MS, 20 * DAY_MS),
    st.sampled_from([0, 10_000, MINUTE_MS, 5 * MINUTE_MS, HOUR_MS, DAY_MS, 7 * DAY_MS, 30 * DAY_MS, 37 * DAY_MS, 38 * DAY_MS]),
    st.sampled_from([-10_000, -HOUR_MS, -DAY_MS, -30 * DAY_MS, -37 * DAY_MS]),
)
amounts = st.one_of(st.just(float("nan")), st.integers(0, 400), st.integers(0, 10**7)).map(lambda cents: cents / 100)
# 15 users: more would be counted roughly, and from 8 on those long gone give way to newcomers.
drawn_event = st.tuples(steps_ms, amounts, st.integers(0, 5), st.integers(0, 14), st.tuples(*[st.integers(0, 3)] * len(KINDS)))
drawn_events = st.lists(drawn_event, min_size=1, max_size=40)


def built(drawn: list[Any]) -> Events:
    """Events whose times are sums of the steps drawn; entity 0 is absent."""
    events = np.zeros(len(drawn), EVENT)
    time_ms = START_MS
    for i, (step, amount, kind, user, entities) in enumerate(drawn):
        time_ms = max(time_ms + step, 60 * DAY_MS)
        events[i]["time_ms"], events[i]["amount"], events[i]["kind"], events[i]["offset"] = time_ms, amount, kind, i
        events[i]["user"] = (user + 1) << 56
        for name, entity in zip(KINDS, entities, strict=True):
            events[name][i] = entity * GOLDEN_RATIO % 2**64
    return events
