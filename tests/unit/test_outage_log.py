"""An outage of Redis is told once when it begins and once when it is over."""

import logging

import pytest

from assay.agents.outage_log import OutageLog


def test_an_outage_is_told_when_it_begins_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    outages = OutageLog(lambda: now)
    with caplog.at_level(logging.INFO, "assay.worker"):
        outages.note(8, "")
        outages.note(8, "deadline")
        now += 7
        outages.note(5, "resting")
        outages.note(8, "")
        outages.note(8, "")
    began, over = caplog.messages
    assert "(deadline)" in began
    assert "7.0 s and 13 decisions" in over
