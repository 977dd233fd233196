"""Batch features on a running worker: loaded by the command, used by the next decision, and their age is seen everywhere."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assay.schemas.evidence import Evidence
from assay.tables.features import DAY, FEATURE_COUNT, NAMES

from .topics import Topics, transaction
from .worker_process import WorkerProcess

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]

RATE = "merchant_dispute_rate_90d"
HOUR_MS = 3_600_000


async def command(environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    """The last line of `assay features ... --json`."""
    program = [sys.executable, "-m", "assay.deploy.cli", "features", *arguments, "--json"]
    process = await asyncio.create_subprocess_exec(
        *program, env=os.environ | environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out.decode().splitlines()[-1])


async def paid(topics: Topics, number: str, merchant: str) -> Evidence:
    """The evidence of a payment made now."""
    body = transaction(number, "u-1", merchant={"id": merchant}, timestamp=int(time.time() * 1000) - 1_000)
    source = await topics.send(body)
    return Evidence.model_validate_json((await topics.first(source, "evidence")).value)


async def test_a_loaded_value_is_in_the_next_decision_and_its_age_is_seen(
    topics: Topics, worker: WorkerProcess, environment: dict[str, str], tmp_path: Path
) -> None:
    before = await paid(topics, "before", "m-9")
    assert before.features[NAMES.index(RATE)] == -1.0
    assert "batch" not in before.ages_ms
    as_of_ms = int(time.time() * 1000) - 2 * HOUR_MS
    path = tmp_path / "rates.csv"
    path.write_text(f"entity,id,name,value,as_of\nmerchant,m-9,{RATE},0.25,{as_of_ms}\n")
    assert (await command(environment, "load", str(path)))["rows"] == 1
    after = await paid(topics, "after", "m-9")
    assert after.features[NAMES.index(RATE)] == 0.25
    age_ms = after.ages_ms["batch"]
    assert age_ms is not None
    assert 2 * HOUR_MS - 1_000 <= age_ms < 3 * HOUR_MS
    age_s = worker.metric("assay_batch_feature_age_seconds", feature=RATE)
    assert 7_200 <= age_s < 3 * 3_600
    assert worker.metric("assay_batch_feature_allowed_age_seconds", feature=RATE) == 2 * DAY
    assert worker.metric("assay_batch_feature_reads_total", feature=RATE, result="value") == 1
    assert worker.metric("assay_feature_age_seconds", source="entity") == 0
    told = await command(environment)
    [row] = [row for row in told["features"] if row["name"] == RATE]
    assert row["seen_age_s"] == age_ms / 1000
    assert {row["seen_age_s"] for row in told["features"] if row["source"] == "batch" and row["name"] != RATE} == {None}
    assert (told["decisions"], row["share_never"]) == (2, 0.5)
    for source in ("entity", "risk"):
        assert after.ages_ms[source] == 0  # nothing waits
        assert {row["seen_age_s"] for row in told["features"] if row["source"] == source} == {0}
    assert len(told["features"]) == FEATURE_COUNT
