"""Outcomes: counted by status; nothing that one says stops the learner."""

import pytest

from assay.agents.learn import Learner
from assay.streams.metrics import Metrics

VALID = b'{"outcome_id":"o-1","user_id":"u-1","transaction_id":"t-1","status":"fraud","known_at":"2026-11-30T12:00:00Z"}'


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (VALID, "fraud"),
        (b"", "invalid"),
        (b"{", "invalid"),
        (b"\xff\xfe", "invalid"),
        (b"[]", "invalid"),
        (b'{"status":"cheerful"}', "invalid"),
    ],
)
def test_each_outcome_is_counted(value, status):
    metrics = Metrics()
    Learner(metrics).learn(value)
    assert metrics.registry.get_sample_value("assay_outcomes_total", {"status": status}) == 1


def test_a_tombstone_is_skipped():
    Learner(Metrics()).learn(None)
