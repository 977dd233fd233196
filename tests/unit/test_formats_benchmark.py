"""The benchmark of formats runs, and measures every one."""

import json
import sys

import pytest

from perf import formats


def test_each_format_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["formats", "--repeats", "1"])
    formats.main()
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {f"read_{name}_us" for name in formats.FORMATS} < result.keys()
    assert all(took > 0 for took in result.values())
