"""The benchmark of entities runs from its command line and ends in one line of JSON. No figure is judged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = ["--users", "50", "--merchants", "10", "--days", "1", "--rounds", "1", "--payments", "256", "--shards", "3"]

pytestmark = pytest.mark.services


def test_it_ends_in_one_line_with_every_figure_and_leaves_nothing_behind(redis_url: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "perf" / "entities.py"), *SMALL]
    environment = os.environ | {"ASSAY_REDIS_URL": redis_url, "TMPDIR": str(tmp_path)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(ran.stdout.splitlines()[-1])
    assert {"us_per_entity", "ms_per_batch_64", "cluster_ms_per_batch_64"} <= figures.keys()
    assert all(figure > 0 for figure in figures.values())
    assert not list(tmp_path.iterdir())
