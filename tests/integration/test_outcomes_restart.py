"""Workers that are killed and stopped while outcomes come in: each outcome counts once, whoever learns it."""

import asyncio
import signal
from typing import Any

import orjson
import pytest

from assay.tables.features import NAMES

from .logged import made_from_each
from .topics import Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
USERS, EACH = 60, 5
AT_ONCE, EVERY_S = 5, 0.05  # 100 a second
PAID_MS, APART_MS = 1_767_225_600_000, 600_000


@pytest.fixture(scope="module")
def worker(pair: list[WorkerProcess]) -> WorkerProcess:
    return pair[0]


def payment(user: int, number: int) -> dict[str, Any]:
    return transaction(f"{user}-{number}", f"user-{user}", timestamp=PAID_MS + number * APART_MS)


def declined(user: int, number: int) -> dict[str, Any]:
    plain = {"outcome_id": f"o-{user}-{number}", "user_id": f"user-{user}", "transaction_id": f"t-{user}-{number}"}
    return plain | {"status": "issuer_declined", "known_at": PAID_MS + number}


async def told(topics: Topics, outcomes: list[dict[str, Any]], half: asyncio.Event) -> None:
    """Outcomes at their pace, each twice; half is set in the middle."""
    for start in range(0, len(outcomes), AT_ONCE):
        await topics.tell(*outcomes[start : start + AT_ONCE], *outcomes[max(0, start - AT_ONCE) : start])
        if start >= len(outcomes) // 2:
            half.set()
        await asyncio.sleep(EVERY_S)


async def test_each_outcome_counts_once_though_a_worker_is_killed_and_the_other_is_stopped_amid_them(
    topics: Topics, pair: list[WorkerProcess]
) -> None:
    await topics.send_all([payment(user, number) for number in range(EACH) for user in range(USERS)])
    await topics.settled()
    outcomes = [declined(user, number) for number in range(EACH) for user in range(USERS)]
    half = asyncio.Event()
    telling = asyncio.create_task(told(topics, outcomes, half))
    await asyncio.sleep(1)  # amid the first half
    pair[0].signal(signal.SIGKILL)
    while pair[0].running:
        await asyncio.sleep(0.01)
    pair[0].start()
    await half.wait()
    await asyncio.to_thread(pair[0].wait_until_ready)
    assert await asyncio.to_thread(pair[1].stop) == 0
    await telling
    await topics.learnt()
    sources = await topics.send_all([payment(user, EACH) for user in range(USERS)])
    evidence = [orjson.loads(record.value) for record in await made_from_each(topics, sources, "evidence")]
    found = [each["features"][NAMES.index("user_issuer_declines_24h")] for each in evidence]
    assert found == [EACH] * USERS
