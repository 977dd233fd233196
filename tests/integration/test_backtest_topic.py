"""`assay backtest` over the topics of a running deployment."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from .conftest import Run
from .topics import Topics, transaction

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]
NOW = time.time_ns() // 1_000_000
HUNDRED_DAYS_MS = 100 * 86_400_000


async def test_labels_are_what_outcomes_say_and_a_past_decline_is_unknown(topics: Topics, assay: Run, tmp_path: Path) -> None:
    old = NOW - HUNDRED_DAYS_MS
    payments = [
        transaction("fraud", "user-a", timestamp=old),
        transaction("disputed", "user-b", timestamp=old),
        transaction("silent", "user-c", timestamp=old),
        transaction("young", "user-d", timestamp=NOW),
        transaction("declined", "user-e", timestamp=old, amount="999999.00", merchant={"id": "m-1", "category": "7995"}),
    ]
    await topics.send_all(payments)
    await topics.send(b"no payment", key=b"user-f")
    await topics.settled()
    told = {"fraud": "user-a", "disputed": "user-b"}
    await topics.tell(
        *(
            {"outcome_id": f"o-{status}", "user_id": user, "transaction_id": f"t-{status}", "status": status, "known_at": NOW}
            for status, user in told.items()
        )
    )
    await topics.learnt()
    declined = {
        json.loads(record.value)["transaction_id"]
        for record in topics.seen["decisions"]
        if json.loads(record.value)["action"] == "decline"
    }
    assert "t-declined" in declined
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules:\n  - {id: all, when: amount_base > 0, then: review, reason: all}\n")
    arguments = ("backtest", "--rules", str(rules), "--json", "--from", topics.name("transactions"))
    done = await asyncio.to_thread(assay, *arguments)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["transactions"] == 5
    labels = {one["transaction_id"]: one["label"] for one in found["examples"]}
    expected = {"t-fraud": "fraud", "t-disputed": "unknown", "t-silent": "genuine", "t-young": "unknown"}
    expected |= dict.fromkeys(declined, "unknown")
    assert labels == {name: label for name, label in expected.items() if name in labels}
    assert found["unlabelled"] == len({name for name, label in expected.items() if label == "unknown"})

    file = tmp_path / "outcomes.jsonl"  # in place of the topic
    said = {"outcome_id": "o", "user_id": "user-c", "transaction_id": "t-silent", "status": "fraud", "known_at": NOW}
    file.write_text(json.dumps(said) + "\n")
    done = await asyncio.to_thread(assay, *arguments, "--outcomes", str(file))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["before"]["fraud"] == 1


async def test_an_empty_topic_is_an_error(topics: Topics, assay: Run, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules:\n  - {id: all, when: amount_base > 0, then: review, reason: all}\n")
    done = await asyncio.to_thread(assay, "backtest", "--rules", str(rules), "--from", topics.name("control"))
    assert done.returncode == 2
    assert "holds no transactions" in done.stderr
