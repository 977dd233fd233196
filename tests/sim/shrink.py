"""From a plan that fails to a short one that fails in the same way: what can be left out, is."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from .plan import Plan

Item = TypeVar("Item")


def shrink(plan: Plan, fails: Callable[[Plan], bool], runs: int = 400) -> Plan:
    """The shortest plan found within so many runs. `fails`: whether a plan fails in the way that is looked for."""
    left = runs

    def still(tried: Plan) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(tried)

    for _ in range(3):  # what one pass leaves out may let the next one leave out more
        before = plan
        plan = replace(plan, faults=_fewer(plan.faults, lambda faults, plan=plan: still(replace(plan, faults=faults))))
        plan = replace(plan, sent=_fewer(plan.sent, lambda sent, plan=plan: still(replace(plan, sent=sent))))
        for simpler in (replace(plan, workers=1), replace(plan, slow=""), replace(plan, partitions=1), *_plain(plan)):
            if simpler != plan and still(simpler):
                plan = simpler
        if plan == before:
            break
    return plan


def _plain(plan: Plan) -> Sequence[Plan]:
    return [replace(plan, sent=tuple(replace(sent, reply=False, variant=0) for sent in plan.sent))]


def _fewer(items: tuple[Item, ...], fails: Callable[[tuple[Item, ...]], bool]) -> tuple[Item, ...]:
    """Leave out halves, quarters ... and single ones, for as long as it still fails without them."""
    size = len(items)
    while size:
        begins = 0
        while begins < len(items):
            without = items[:begins] + items[begins + size :]
            if fails(without):
                items = without
            else:
                begins += size
        size //= 2
    return items
