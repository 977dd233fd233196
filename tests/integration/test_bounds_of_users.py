"""The measurement of profiles by number of users runs, ends in one line of JSON, and leaves nothing. No figure is judged."""

import json
import subprocess
import sys
from pathlib import Path

USERS = [sys.executable, str(Path(__file__).parents[2] / "perf" / "users.py")]
KEYS = ["us_per_row", "cpu_us_per_row", "ratio_10m_to_1k", "cpu_ratio_10m_to_1k"]


def test_it_ends_in_one_line_with_every_size_and_removes_what_it_made(tmp_path: Path) -> None:
    small = ["--sizes", "2000", "300", "--rounds", "2", "--micro-batches", "2", "--folder", str(tmp_path)]
    ran = subprocess.run([*USERS, *small], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(ran.stdout.splitlines()[-1])
    assert list(figures) == KEYS
    assert list(figures["us_per_row"]) == ["300", "2000"]
    assert figures["ratio_10m_to_1k"] is None
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_is_said_before_anything_is_made(tmp_path: Path) -> None:
    ran = subprocess.run(
        [*USERS, "--sizes", str(10**12), "--folder", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "has no room for so many profiles" in ran.stderr
    assert list(tmp_path.iterdir()) == []
