"""The list of features made visible: the page, the command, and what a running system has seen."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
from typer.testing import CliRunner

from assay.deploy import cli
from assay.deploy.feature_map import Seen, differing_coverage
from assay.deploy.features_page import features_page
from assay.deploy.features_seen import Tally
from assay.tables.features import FEATURE_COUNT, FEATURES, NAMES, features_digest

PAGE = Path(__file__).parents[2] / "docs" / "features.md"
RATE = NAMES.index("merchant_dispute_rate_90d")


def test_the_page_of_features_is_up_to_date() -> None:
    assert PAGE.read_text() == features_page(), "run `make docs`"


def test_every_feature_is_on_the_page_once() -> None:
    assert all(features_page().count(f"| `{name}` |") == 1 for name in NAMES)


def shown(*arguments: str) -> tuple[str, dict[str, Any]]:
    """What is said to people, and to machines: to those alone on stdout."""
    done = CliRunner().invoke(cli.app, ["features", *arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stderr, json.loads(done.stdout)


def test_without_kafka_the_list_is_shown_and_a_note_says_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    text, machine = shown()
    assert all(name in text for name in NAMES)
    assert "left out" in machine["note"]
    assert [row["name"] for row in machine["features"]] == list(NAMES)
    assert {row["seen_age_s"] for row in machine["features"]} == {None}


def evidence(features: list[float | None], ages_ms: dict[str, float], **changes: Any) -> SimpleNamespace:
    body = {"features": features, "ages_ms": ages_ms, "features_digest": features_digest(), **changes}
    return SimpleNamespace(value=orjson.dumps(body), headers=[])


def test_what_was_seen_is_the_oldest_age_and_the_shares_of_what_was_missing() -> None:
    tally = Tally()
    values: list[list[float | None]] = [[1.0] * FEATURE_COUNT for _ in range(4)]
    values[0][RATE], values[1][RATE] = None, FEATURES[RATE].never
    ages = (
        {"entity": 0.0, NAMES[RATE]: 5_000.0},
        {"entity": 0.0, NAMES[RATE]: 60_000.0, "batch": 90_000.0},
        {"entity": 0.0},
        {},
    )
    tally.add([evidence(*one) for one in zip(values, ages, strict=True)])
    seen = tally.seen()
    assert seen is not None
    assert (seen[RATE].age_s, seen[RATE].missing, seen[RATE].never) == (60.0, 0.25, 0.25)
    assert (seen[0].age_s, seen[0].missing) == (0.0, 0.0)


@pytest.mark.parametrize(("learnt", "said"), [(1.0, True), (0.5, False), (0.0, True)])
def test_batch_values_that_decisions_have_far_more_or_less_often_than_training_are_said(learnt: float, said: bool) -> None:
    seen = [Seen(0.0, 0.25, 0.0, 0.25)] * FEATURE_COUNT
    assert bool(differing_coverage({NAMES[RATE]: learnt}, seen)) == said


def test_an_absent_value_is_a_missing_one() -> None:
    column = NAMES.index("device_count_1h")
    tally, values = Tally(), [1.0] * FEATURE_COUNT
    values[column] = FEATURES[column].absent
    tally.add([evidence(values, {})])
    [*_, seen] = [(tally.seen() or [])[column]]
    assert seen.missing == 1.0


def test_what_is_no_evidence_of_a_decision_of_this_list_is_left_out() -> None:
    tally = Tally()
    change = SimpleNamespace(value=b"{}", headers=[("assay-change", b"outcomes")])
    tally.add([SimpleNamespace(value=None, headers=[]), change, evidence([], {}, features_digest="another")])
    assert (tally.records, tally.others, tally.seen()) == (0, 1, None)


def test_a_file_can_be_checked_without_being_loaded(tmp_path: Path) -> None:
    path = tmp_path / "values.csv"
    path.write_text("entity,id,name,value,as_of\nmerchant,m-1,merchant_dispute_rate_90d,0.1,2001-01-02\n")
    done = CliRunner().invoke(cli.app, ["features", "load", str(path), "--dry-run", "--json"], catch_exceptions=False)
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "dry_run": True, "rows": 0, "values": 1, "outdated": 0, "too_old": 0, "forgotten": 1,
    }  # fmt: skip
    assert "so long ago that nobody will see them" in done.stderr


def test_values_that_decisions_take_for_unavailable_are_said(tmp_path: Path) -> None:
    path = tmp_path / "values.csv"
    days_ago = np.datetime64("today") - 10
    path.write_text(f"entity,id,name,value,as_of\nmerchant,m-1,merchant_dispute_rate_90d,0.1,{days_ago}\n"
                    f"merchant,m-1,merchant_onboarded_days,7,{days_ago}\n")  # fmt: skip
    done = CliRunner().invoke(cli.app, ["features", "load", str(path), "--dry-run", "--json"], catch_exceptions=False)
    assert json.loads(done.stdout.splitlines()[-1])["too_old"] == 1
    assert "1 values are older than their feature allows" in done.stderr


@pytest.mark.services
def test_a_file_is_loaded_into_redis(tmp_path: Path, redis_url: str, topic_prefix: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("ASSAY_REDIS_URL", redis_url)
    monkeypatch.setenv("ASSAY_TOPIC_PREFIX", topic_prefix)
    path = tmp_path / "values.csv"
    today = np.datetime64("today")
    path.write_text(f"shop,rate,day\nm-1,10,{today}\nm-2,20,{today}\nm-1,30,{today - 1}\n")
    mapping = ["entity=merchant", "id=shop", "name=merchant_dispute_rate_90d", "value=rate/100", "as_of=day"]
    options = [part for one in mapping for part in ("--map", one)]
    done = CliRunner().invoke(cli.app, ["features", "load", str(path), *options, "--json"], catch_exceptions=False)
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "dry_run": False,
        "rows": 2,
        "values": 3,
        "outdated": 1,
        "too_old": 0,
        "forgotten": 0,
    }
