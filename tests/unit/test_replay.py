"""Offline features are those of the stream."""

import random
from typing import Any

import numpy as np
import pytest

from assay.schemas.transaction import Transaction
from assay.tables import replay as module
from assay.tables.digests import OFFLINE
from assay.tables.encode import encode_events
from assay.tables.entity_fold import EntityWindows
from assay.tables.features import ENTITY_FEATURES, FEATURE_COUNT, NAMES, PROFILE_FEATURES
from assay.tables.fold import fold, recall
from assay.tables.profile import new_rows
from assay.tables.rates import Rates
from assay.tables.replay import events_of, replay

RATES = Rates.load()
WINDOWS = slice(PROFILE_FEATURES, PROFILE_FEATURES + ENTITY_FEATURES)


def transactions(count: int, seed: int = 1, users: int = 12) -> list[Transaction]:
    """Payments of a few users, some late, some sent again."""
    chance, sent, now = random.Random(seed), [], 1_700_000_000_000
    for number in range(count):
        if sent and chance.random() < 0.08:
            sent.append(chance.choice(sent[-60:]))
            continue
        now += chance.randrange(400_000)
        fields: dict[str, Any] = {
            "transaction_id": f"t-{number}",
            "user_id": f"u-{chance.randrange(users) if chance.random() < 0.6 else 0}",
            "amount": f"{chance.randrange(1, 90_000) / 100:.2f}",
            "currency": chance.choice(["EUR", "USD", "FJD"]),
            "timestamp": now - (3_600_000 if chance.random() < 0.1 else 0),
            "merchant": {"id": f"m-{chance.randrange(20)}"},
            "device": {"id": f"d-{chance.randrange(9)}", "ip": f"192.0.2.{chance.randrange(9)}"},
        }
        sent.append(Transaction.model_validate(fields))
    return sent


def test_i4_a_replay_has_the_features_of_the_stream_bit_for_bit() -> None:
    sent = transactions(900)
    offline = replay(sent, RATES)
    events = encode_events(sent, range(len(sent)), [t.timestamp.ms + 5 for t in sent], RATES, OFFLINE)
    slots = np.array([int(t.user_id[2:]) for t in sent], np.int32)
    rows, entities = new_rows(12), EntityWindows()
    for place in range(len(sent)):  # one at a time
        part = slice(place, place + 1)
        repeats, live = np.empty(1, np.int64), np.empty((1, FEATURE_COUNT), np.float32)
        recall(rows, slots[part], events[part], repeats)
        if repeats[0] == -1:
            fold(rows, slots[part], events[part], repeats, live)
            live[:, WINDOWS] = entities.observe(events[part])[0]
            live[:, WINDOWS.stop :] = offline[part, WINDOWS.stop :]  # what is looked up has tests of its own
            assert live.tobytes() == offline[part].tobytes()


def test_i4_the_size_of_its_steps_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = transactions(500)
    whole = replay(sent, RATES)
    monkeypatch.setattr(module, "CHUNK", 7)
    assert replay(iter(sent), RATES).tobytes() == whole.tobytes()


def test_a_transaction_sent_again_has_the_features_of_its_first_time_and_counts_once() -> None:
    one, two = transactions(40, seed=2, users=1)[:2]
    features = replay([one, one, two, one], RATES)
    assert features[1].tobytes() == features[0].tobytes() == features[3].tobytes()
    assert features[2, NAMES.index("user_count")] == 1


def test_progress_is_told_in_steps_that_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 16)
    steps: list[int] = []
    replay(transactions(40), RATES, steps.append)
    assert steps == [16, 16, 8]


def test_nothing_is_replayed_to_nothing() -> None:
    assert replay([], RATES).shape == (0, FEATURE_COUNT)


def test_transactions_are_taken_to_arrive_when_they_happened() -> None:
    (event,) = events_of(transactions(1), RATES)
    assert event["appended_ms"] == event["time_ms"]
    assert event["user"] == OFFLINE.of64(transactions(1)[0].user_id)
