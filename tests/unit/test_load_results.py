"""What a load run counts: lost, duplicate and contradictory answers, and percentiles of all latencies."""

import numpy as np
import pytest

from assay.streams.load import prepare
from assay.streams.load_results import Results


def test_what_was_never_answered_is_lost() -> None:
    results = Results(3)
    results.sent = 3
    results.reply(0, b"a")
    results.arrived([0], np.array([0.010]))
    summary = results.summary()
    assert (summary["transactions"], summary["decisions"], summary["lost"]) == (3, 1, 2)
    assert summary["within_deadline"] == pytest.approx(1 / 3)


def test_the_same_reply_again_is_a_duplicate_and_no_contradiction() -> None:
    results = Results(1)
    assert results.reply(0, b"a")
    assert not results.reply(0, b"a")
    assert (results.duplicate, results.contradictory, results.answered) == (1, 0, 1)


def test_a_reply_that_differs_in_anything_is_a_contradiction_counted_once_for_its_transaction() -> None:
    results = Results(2)
    results.reply(0, b"a")
    results.reply(0, b"b")
    results.reply(0, b"c")
    assert (results.duplicate, results.contradictory) == (2, 1)


@pytest.mark.parametrize("reply_first", [True, False])
def test_a_decision_that_differs_from_its_reply_is_a_contradiction(reply_first: bool) -> None:
    results = Results(1)
    steps = [lambda: results.reply(0, b"a"), lambda: results.decision(0, b"b")]
    for step in steps if reply_first else steps[::-1]:
        step()
    assert (results.contradictory, results.duplicate, results.undecided) == (1, 0, 0)


def test_a_second_decision_record_is_seen() -> None:
    results = Results(2)
    results.decision(0, b"a")
    results.decision(0, b"a")
    assert (results.undecided, results.decided_again, results.contradictory) == (1, 1, 0)


def test_actions_and_refusals_are_told_apart() -> None:
    results = Results(4)
    for number, value in enumerate(
        [
            b'{"action":"approve","tier":"full"}',
            b'{"action":"review","tier":"full","deadline_missed":true}',
            b'{"action":"decline","tier":"full"}',
            b'{"action":"review","tier":"refused"}',
        ]
    ):
        results.reply(number, value)
    results.sent = 4
    summary = results.summary()
    assert [summary[name] for name in ("approve", "review", "decline", "refused", "deadline_missed")] == [1] * 5
    assert summary["decisions"] == 3
    assert [decline["action"] for decline in results.snapshot(1.0).declines] == ["decline"]


def test_percentiles_are_latencies_that_occurred_and_leave_the_warm_up_out() -> None:
    results = Results(1_100)
    results.sent = 1_100
    latencies = np.concatenate([np.full(100, 9.0), np.arange(1, 1_001) / 1_000])
    for number in range(1_100):
        results.reply(number, b"a")
    results.arrived(range(1_100), latencies)
    summary = results.summary(measured_from=100)
    assert summary["max_ms"] == 1_000
    assert (summary["p50_ms"], summary["p99_ms"], summary["p999_ms"]) == (501, 991, 1_000)


def test_a_snapshot_covers_what_came_since_the_last_one() -> None:
    results = Results(30)
    results.sent = 30
    for number in range(10):
        results.reply(number, b"a")
    results.arrived(range(10), np.full(10, 0.01))
    assert results.snapshot(1.0).rate == 10
    for number in range(10, 30):
        results.reply(number, b"a")
    results.arrived(range(10, 30), np.full(20, 0.02))
    second = results.snapshot(2.0)
    assert (second.rate, second.p50_ms, second.answered) == (20, 20, 30)


def test_nothing_answered_has_no_percentiles() -> None:
    results = Results(1)
    results.sent = 1
    assert results.summary()["p99_ms"] is None
    assert results.snapshot(1.0).p50_ms is None


def test_stamped_payloads_lack_only_their_time() -> None:
    [payload] = prepare([{"user_id": "u", "timestamp": "2026-01-01T00:00:00Z", "amount": "1.00"}], stamped=True)
    assert payload == (b"u", b'{"user_id":"u","amount":"1.00",', True)
