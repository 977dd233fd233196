"""Training and scoring from files see batch features as of the time of each payment."""

import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from assay.deploy import cli
from assay.models.bundle import read_manifest

START_MS = 1_767_225_600_000
STEP_MS = 20_000  # a day and a half in all: what is loaded at its beginning stays allowed
COUNT, MERCHANTS = 6_000, 60
DISPUTED = range(12)  # merchants where half of the payments are fraud
LOADED_AT_MS = START_MS - 3_600_000


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Payments that nothing tells apart but where they were made."""
    chance = random.Random(5)
    merchants = [chance.randrange(MERCHANTS) for _ in range(COUNT)]
    path = tmp_path_factory.mktemp("batch") / "history.parquet"
    frame = pl.DataFrame(
        {
            "transaction_id": [f"t-{number}" for number in range(COUNT)],
            "user_id": [f"u-{number}" for number in range(COUNT)],
            "amount": [f"{chance.randrange(1_000, 9_000) / 100:.2f}" for _ in range(COUNT)],
            "currency": ["EUR"] * COUNT,
            "timestamp": [START_MS + number * STEP_MS for number in range(COUNT)],
            "merchant.id": [f"m-{merchant}" for merchant in merchants],
            "fraud": [merchant in DISPUTED and chance.random() < 0.5 for merchant in merchants],
        }
    )
    frame.write_parquet(path)
    return path


def rates(folder: Path, as_of_ms: int) -> Path:
    """A dispute rate for each merchant."""
    path = folder / f"rates-{as_of_ms}.csv"
    lines = [f"m-{merchant},{0.2 if merchant in DISPUTED else 0.001},{as_of_ms}" for merchant in range(MERCHANTS)]
    path.write_text("\n".join(["shop,rate,at", *lines]))
    return path


def ran(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli.app, [*arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout.splitlines()[-1])


def test_what_had_been_loaded_is_learnt_and_scored_with(history: Path, tmp_path: Path) -> None:
    values = pl.read_csv(rates(tmp_path, LOADED_AT_MS)).select(
        entity=pl.lit("merchant"), id="shop", name=pl.lit("merchant_dispute_rate_90d"), value="rate", as_of="at"
    )
    values.write_parquet(tmp_path / "values.parquet")
    bundle, given = str(tmp_path / "bundle"), ("--batch-features", str(tmp_path / "values.parquet"))
    report = ran("train", str(history), "--out", bundle, "--threads", "1", *given)
    assert report["tiers"]["full"]["average_precision"] > 0.35
    informed = ran("score", str(history), "--bundle", bundle, *given)
    assert read_manifest(tmp_path / "bundle").batch_coverage == {
        "merchant_dispute_rate_90d": 1.0,
        "merchant_onboarded_days": 0.0,
    }
    late = ran("score", str(history), "--bundle", bundle, *given, "--batch-delay", "1000")
    unaware = ran("score", str(history), "--bundle", bundle)
    assert informed["average_precision"] > 1.5 * unaware["average_precision"]
    assert late == unaware
