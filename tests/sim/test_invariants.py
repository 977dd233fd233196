"""A thousand runs with all that goes wrong: one verdict each, no contradiction, nothing durable ahead of what was said.

`make sim SEEDS=100000` runs more of them; `make sim SEED=17` shows one with its trace.
"""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from .campaign import run_seeds, simulated
from .plan import plan_of

SEEDS, AT_ONCE = 1_000, 100
TRACES = "from tests.sim.test_invariants import traces; print(traces())"


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_i1_to_i5_hold_whatever_happens(first):
    seen = run_seeds(range(first, first + AT_ONCE))
    assert not [f"make sim SEED={each.seed}: {each.failure}" for each in seen if each.failure]
    assert sum(each.crashes for each in seen) > AT_ONCE / 2


def traces() -> str:
    """A digest of the traces of some seeds."""
    with simulated() as run:
        lines = [line for seed in range(20) for line in run(plan_of(seed), traced=True).trace]
    return sha256("\n".join(lines).encode()).hexdigest()


def test_a_seed_replays_exactly_in_another_process():
    environment = {**os.environ, "PYTHONHASHSEED": "17"}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", TRACES], cwd=root, env=environment, capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.strip() == traces()
