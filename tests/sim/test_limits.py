"""Rate limits under all that goes wrong: what was said stands, limited or not, and profiles know nothing of limits."""

import orjson
import pytest

from assay.streams.settings import Settings

from .campaign import SETTINGS, simulated
from .checks import DECISIONS
from .plan import plan_of
from .world import World

SEEDS = range(5_000, 5_100)


def decisions_of(seed: int) -> list[dict]:
    """Of a run in which each user may pay once in a while."""
    plan = plan_of(seed)
    settings = Settings(
        _env_file=None, batch_transactions=plan.batch, batch_bytes=plan.take_bytes, user_rate=0.2, user_burst=2, **SETTINGS
    )
    world = World(plan, settings, traced=False)
    failure = world.run().failure
    assert failure is None, f"seed {seed}: {failure}"
    logs = (log for (topic, _), log in world.network.broker.logs.items() if topic == DECISIONS)
    return [orjson.loads(record.value) for log in logs for record in log.records if record.value is not None]


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, 50))
def test_i1_to_i4_hold_where_users_are_limited(first: int) -> None:
    with simulated():
        decided = [decision for seed in range(first, first + 50) for decision in decisions_of(seed)]
    limited = [decision for decision in decided if decision["rules"] == ["limit:user"]]
    assert len(limited) > 50
    assert {(each["tier"], each["fraud_score"], each["model"]) for each in limited} == {("default", None, None)}
