"""Outcomes on a real Kafka and Redis: what becomes of a transaction is in the next evidence of its entities."""

import asyncio
import json
import os
import subprocess
import sys
from itertools import count
from typing import Any

import orjson
import pytest

from assay.schemas.evidence import ChangeEvidence
from assay.schemas.source import Source

from .logged import assert_profiles_as_replayed, feature, made_from_each
from .topics import Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]
PAID_MS = 1_767_225_600_000
DAY_MS = 86_400_000
numbers = count(1)


class Shop:
    """A merchant, a user and an instrument that no other test has."""

    def __init__(self, topics: Topics) -> None:
        self.topics, self.name = topics, f"shop-{next(numbers)}"
        self._paid, self._said = count(1), count(1)
        self.bodies: list[dict[str, Any]] = []
        self.sources: list[Source] = []

    def payment(self, *, later_ms: int = 0, **changes: Any) -> dict[str, Any]:
        """A payment of 12.50, so many milliseconds after the first."""
        plain = {"merchant": {"id": self.name}, "instrument": {"id": f"tok-{self.name}"}, "timestamp": PAID_MS + later_ms}
        return transaction(f"{self.name}-{next(self._paid)}", f"user-{self.name}", **plain | changes)

    async def pay(self, body: dict[str, Any] | None = None, **changes: Any) -> Source:
        self.bodies.append(body or self.payment(**changes))
        self.sources.append(await self.topics.send(self.bodies[-1]))
        return self.sources[-1]

    def outcome(self, status: str, *, payment: int = 1, **changes: Any) -> dict[str, Any]:
        """The next outcome, about the payment of that number."""
        number = next(self._said)
        plain = {"transaction_id": f"t-{self.name}-{payment}", "user_id": f"user-{self.name}", "status": status}
        return plain | {"outcome_id": f"o-{self.name}-{number}", "known_at": PAID_MS + number} | changes

    async def tell(self, *outcomes: dict[str, Any]) -> None:
        """Return once they are learnt."""
        await self.topics.tell(*outcomes)
        await self.topics.learnt()

    async def seen(self, *names: str, later_ms: int) -> list[float]:
        """Features of one more payment."""
        return await feature(self.topics, await self.pay(later_ms=later_ms), *names)

    def changes(self) -> list[ChangeEvidence]:
        """Evidence of changes of this user's transactions so far, in their order."""
        values = [orjson.loads(record.value) for record in self.topics.seen["changes"]]
        return [ChangeEvidence.model_validate(value) for value in values if value["user_id"] == f"user-{self.name}"]


@pytest.fixture
def shop(topics: Topics) -> Shop:
    return Shop(topics)


async def test_an_issuer_decline_is_in_the_next_evidence_of_its_merchant_and_its_user(shop: Shop) -> None:
    names = "merchant_issuer_declines_10m", "user_issuer_declines_24h", "instrument_issuer_declines_1h"
    assert await shop.seen(*names, later_ms=0) == [0, 0, 0]
    await shop.tell(shop.outcome("issuer_declined"))
    assert await shop.seen(*names, later_ms=1_000) == [1, 1, 1]


async def test_fraud_counts_once_the_label_delay_is_over_and_no_earlier(shop: Shop) -> None:
    await shop.pay()
    [before] = await shop.seen("merchant_fraud_share_30d", later_ms=9 * DAY_MS)
    await shop.tell(shop.outcome("fraud"))
    assert await shop.seen("user_frauds_30d", "instrument_frauds_30d", later_ms=6 * DAY_MS) == [0, 0]
    assert await shop.seen("user_frauds_30d", "instrument_frauds_30d", later_ms=9 * DAY_MS) == [1, 1]
    [after] = await shop.seen("merchant_fraud_share_30d", later_ms=9 * DAY_MS)
    assert after > before


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["in order", "the reversal first"])
async def test_a_reversal_takes_back_exactly_its_dispute(shop: Shop, order: tuple[int, int]) -> None:
    await shop.pay()
    await shop.pay()
    other = shop.outcome("disputed", payment=2)
    disputed = shop.outcome("disputed")
    both = disputed, shop.outcome("dispute_reversed", supersedes=disputed["outcome_id"])
    await shop.tell(other, disputed)
    assert await shop.seen("user_disputes_30d", later_ms=DAY_MS) == [2]
    again = Shop(shop.topics)
    await again.pay()
    both = [outcome | {"user_id": f"user-{again.name}", "transaction_id": f"t-{again.name}-1"} for outcome in both]
    await again.tell(*(both[i] for i in order))
    assert await again.seen("user_disputes_30d", later_ms=DAY_MS) == [0]
    await shop.tell(shop.outcome("dispute_reversed", supersedes=disputed["outcome_id"]))
    assert await shop.seen("user_disputes_30d", later_ms=2 * DAY_MS) == [1]


async def test_partial_superseding_and_repeated_outcomes_add_up_in_the_evidence_of_changes(shop: Shop) -> None:
    await shop.pay()
    parts = [shop.outcome("fraud", amount="5.00"), shop.outcome("fraud", amount="5.00"), shop.outcome("fraud", amount="5.00")]
    corrected = shop.outcome("fraud", amount="1.25", supersedes=parts[0]["outcome_id"])
    course = [*parts, parts[1], corrected, shop.outcome("genuine")]
    await shop.tell(*course)
    changes = await shop.topics.until(lambda: shop.changes() if len(shop.changes()) == 5 else None, "evidence of changes")
    assert [(each.outcome_id, each.change.frauds, each.change.thousandths) for each in changes] == [
        (parts[0]["outcome_id"], 1, 5_000),
        (parts[1]["outcome_id"], 0, 5_000),
        (parts[2]["outcome_id"], 0, 2_500),
        (corrected["outcome_id"], 0, -1_250),
        (course[-1]["outcome_id"], -1, -11_250),
    ]
    assert [each.risk_sequences[0] for each in changes] == [1, 2, 3, 4, 5]
    assert all(each.risk_sequences[3] for each in changes)
    assert all(each.risk_sequences[2] == 0 for each in changes)  # no BIN was given


async def test_one_for_an_unknown_transaction_is_counted_and_what_follows_it_is_learnt(
    shop: Shop, worker: WorkerProcess
) -> None:
    await shop.pay()
    before = worker.metric("assay_outcomes_total", status="unknown")
    await shop.tell(shop.outcome("fraud", payment=99), shop.outcome("issuer_declined"))
    assert worker.metric("assay_outcomes_total", status="unknown") == before + 1
    assert await shop.seen("user_issuer_declines_24h", later_ms=1_000) == [1]


async def test_one_that_comes_before_its_transaction_finds_it_all_the_same(shop: Shop) -> None:
    await shop.topics.tell(shop.outcome("issuer_declined"))
    await shop.pay()
    await shop.topics.learnt()
    assert await shop.seen("user_issuer_declines_24h", later_ms=1_000) == [1]


async def test_what_cannot_be_read_stops_nothing(shop: Shop) -> None:
    await shop.pay()
    await shop.topics.tell(b"no outcome", b"{}", b"\xff")
    await shop.tell(shop.outcome("issuer_declined"))
    assert await shop.seen("user_issuer_declines_24h", later_ms=1_000) == [1]


async def test_what_cannot_be_read_is_kept_as_a_dead_letter_that_no_transaction_is_taken_for(shop: Shop) -> None:
    value = b"no outcome of " + shop.name.encode()
    await shop.topics.tell(value)
    await shop.topics.learnt()

    def letters() -> list[Any]:
        return [record for record in shop.topics.seen["dead-letters"] if record.value == value]

    [letter] = await shop.topics.until(letters, "the dead letter")
    headers = dict(letter.headers)
    assert headers["assay-error"] == b"malformed"
    assert headers["assay-source"].decode().rsplit(":", 2)[0].endswith("outcomes")
    assert await shop.seen("user_issuer_declines_24h", later_ms=0) == [0]


async def test_the_command_tells_one_and_it_counts(shop: Shop, environment: dict[str, str]) -> None:
    await shop.pay()
    names = shop.bodies[0]["user_id"], shop.bodies[0]["transaction_id"]
    command = [sys.executable, "-m", "assay.deploy.cli", "outcome", *names, "--status", "issuer_declined", "--json"]
    done = await asyncio.to_thread(
        subprocess.run, command, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "issuer_declined"
    await shop.topics.learnt()
    assert await shop.seen("user_issuer_declines_24h", later_ms=1_000) == [1]


async def test_our_own_decline_is_seen_by_rules_in_the_next_payment(shop: Shop) -> None:
    await shop.topics.send_all([shop.payment() for _ in range(7)])  # the rule: more than 5 within a minute
    await shop.topics.settled()
    declines = await shop.topics.until(lambda: [each for each in shop.changes() if each.change.verdicts], "our own decline")
    assert all(each.outcome_id is None for each in declines)
    [found] = await shop.seen("instrument_declined_1h", later_ms=600_000)
    assert found == len([each for each in shop.changes() if each.change.verdicts]) >= 1


async def test_i4_outcomes_never_touch_a_profile_row(shop: Shop) -> None:
    await shop.pay()
    await shop.topics.settled()
    rows = [record.offset for record in shop.topics.seen["assay-profiles-changelog"]]
    await shop.tell(*(shop.outcome(status) for status in ("issuer_declined", "disputed", "fraud", "genuine")))
    await shop.topics.settled()
    assert [record.offset for record in shop.topics.seen["assay-profiles-changelog"]] == rows
    await shop.pay(later_ms=60_000)
    await made_from_each(shop.topics, shop.sources, "evidence")
    await assert_profiles_as_replayed(shop.topics, shop.sources, shop.bodies)


async def test_labels_are_counted_by_what_we_did(shop: Shop, worker: WorkerProcess) -> None:
    await shop.pay()
    record = await shop.topics.first(shop.sources[0], "decisions")
    action = orjson.loads(record.value)["action"]
    before = worker.metrics()
    await shop.tell(shop.outcome("fraud", amount="10.00"))
    after = worker.metrics()
    for name, more in (("assay_labelled_total", 1), ("assay_labelled_amount_total", 10)):
        where = name, frozenset({("action", action), ("label", "fraud")})
        assert after[where] - before.get(where, 0) == pytest.approx(more)


async def test_after_a_restart_outcomes_find_what_was_decided_before_and_nothing_counts_twice(
    shop: Shop, worker: WorkerProcess
) -> None:
    await shop.pay()
    declined = shop.outcome("issuer_declined")
    await shop.tell(declined)
    worker.restart()
    await shop.tell(declined, shop.outcome("disputed"))
    names = "user_issuer_declines_24h", "user_disputes_30d"
    assert await shop.seen(*names, later_ms=1_000) == [1, 1]


async def test_i4_features_of_risk_follow_from_the_evidence_of_changes(shop: Shop, environment: dict[str, str]) -> None:
    """Those of all tests above: no decision was made from anything that the log does not tell."""
    await shop.pay()
    await shop.tell(shop.outcome("disputed"))
    assert await shop.seen("user_disputes_30d", later_ms=1_000) == [1]
    command = [sys.executable, "-m", "assay.deploy.cli", "parity", "--json"]
    ended = await asyncio.to_thread(
        subprocess.run, command, env=os.environ | environment, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["risk_features_differ"] == found["risk_readings_unordered"] == 0
    assert found["with_risk_rows"] == found["transactions"]
