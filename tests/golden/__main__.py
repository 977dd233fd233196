"""Makes the golden vectors of the entity windows anew: `python -m tests.golden`, when a window has come to mean something else.

The file names its events and windows, so that a feature more changes nothing in it. Both sides are held to it: the offline
fold in `tests/unit/test_entity_fold.py`, Redis in `tests/integration/test_entities.py`.
"""

import json
from pathlib import Path

import numpy as np

from assay.tables.entity_columns import WINDOWS
from assay.tables.entity_fold import EntityWindows
from assay.tables.events import EVENT, Events

FILE = Path(__file__).with_name("entity_windows.json")
COLUMNS = ("offset", "time_ms", "amount", "kind", "user", "instrument", "bin", "merchant", "device", "address")
START_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_760_000_000_000, 60_000, 3_600_000, 86_400_000
STEPS_MS = (
    0,
    700,
    9_000,
    61_000,
    -45_000,
    5 * MINUTE_MS,
    HOUR_MS,
    -2 * HOUR_MS,
    26 * HOUR_MS,
    8 * DAY_MS,
    -3 * DAY_MS,
    39 * DAY_MS,
)
COUNT = 96


def events() -> Events:
    """Few entities that return after seconds and after weeks, late ones, absent ones, every kind and small amounts."""
    chance = np.random.default_rng(20)
    made = np.zeros(COUNT, EVENT)
    often = np.array([8, 8, 8, 8, 2, 4, 3, 2, 3, 2, 1, 0.5])
    made["offset"] = np.arange(COUNT)
    made["time_ms"] = START_MS + np.cumsum(chance.choice(STEPS_MS, COUNT, p=often / often.sum()))
    made["amount"] = np.where(chance.random(COUNT) < 0.3, 1.5, np.round(chance.lognormal(4, 1, COUNT), 2))
    made["kind"] = chance.choice(6, COUNT, p=[0.6, 0.2, 0.05, 0.05, 0.05, 0.05])
    made["user"] = chance.integers(1, 2**63, 9)[chance.integers(0, 9, COUNT)]
    for name in COLUMNS[5:]:
        digests = np.concatenate([[0], chance.integers(1, 2**63, 4)])
        made[name] = digests[chance.choice(5, COUNT, p=[0.1, 0.4, 0.2, 0.2, 0.1])]
    return made


def main() -> None:
    """Write the file."""
    made = events()
    values, sequences = EntityWindows().observe(made)
    document = {
        "about": "Entity windows of these events in order: float32 little-endian in hexadecimal, one line for each event. "
        "Made by: python -m tests.golden",
        "columns": COLUMNS,
        "windows": [feature.name for feature in WINDOWS],
        "events": [[made[name][i].item() for name in COLUMNS] for i in range(COUNT)],
        "values": [row.astype("<f4").tobytes().hex() for row in values],
        "sequences": sequences.tolist(),
    }
    lines = []
    for name, value in document.items():
        rows = isinstance(value, list) and name not in ("columns", "windows")
        text = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]" if rows else json.dumps(value)
        lines.append(f" {json.dumps(name)}: {text}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
