"""The simulation bites: each of these defects, put into the real code, is found."""

from dataclasses import replace

import pytest

from .campaign import hunt, simulated
from .checks import Violation
from .defects import DEFECTS, fold_twice
from .plan import Kind, Sent, plan_of
from .shrink import shrink


@pytest.mark.timeout(400)
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect):
    found = hunt(defect)
    assert found.seed is not None, f"no seed finds {defect}"


def test_a_plan_that_fails_is_shrunk_to_what_makes_it_fail():
    plan = plan_of(3)
    needed = {plan.sent[5], plan.sent[20]}
    shortest = shrink(plan, lambda tried: needed <= set(tried.sent))
    assert set(shortest.sent) == needed
    assert not shortest.faults


def test_a_shrunk_plan_still_fails():
    with simulated() as run, fold_twice():
        seed = next(seed for seed in range(100) if isinstance(run(plan_of(seed)).failure, Violation))
        plan = plan_of(seed)
        shortest = shrink(plan, lambda tried: isinstance(run(tried).failure, Violation), runs=60)
        assert isinstance(run(shortest).failure, Violation)
    assert len(shortest.sent) < len(plan.sent)


def test_a_quiet_plan_holds():
    plan = replace(plan_of(1), faults=(), sent=tuple(Sent(1.0, 0, f"t{i}", 0, Kind.PAYMENT, reply=True) for i in range(3)))
    with simulated() as run:
        assert run(plan).failure is None
