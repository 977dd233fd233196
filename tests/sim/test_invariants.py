"""A thousand runs with all that goes wrong: one verdict each, no contradiction, nothing durable ahead of what was said.

`make sim SEEDS=100000` runs more of them; `make sim SEED=17` shows one with its trace.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .campaign import run_seeds

SEEDS, AT_ONCE = 1_000, 100
TRACES = """
from hashlib import sha256
from tests.sim.campaign import simulated
from tests.sim.plan import plan_of
with simulated() as run:
    print(sha256("".join("".join(run(plan_of(seed), traced=True).trace) for seed in range(20)).encode()).hexdigest())
"""


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_i1_to_i5_hold_whatever_happens(first):
    seen = run_seeds(range(first, first + AT_ONCE))
    assert not [f"make sim SEED={each.seed}: {each.failure}" for each in seen if each.failure]
    assert sum(each.crashes for each in seen) > AT_ONCE / 2


def test_a_seed_replays_exactly_in_another_process():
    def traces(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        root = Path(__file__).parents[2]
        done = subprocess.run(
            [sys.executable, "-c", TRACES], cwd=root, env=environment, capture_output=True, text=True, check=True, timeout=100
        )
        return done.stdout

    assert traces("1") == traces("2")
