"""`assay backtest` over a file: one change at a time, and what is asked wrongly."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assay.deploy import cli
from assay.schemas.errors import InputError, SettingError
from assay.streams.simulation_files import write
from assay.streams.simulator import simulate

RULES = "rules:\n  - id: large\n    when: {when}\n    then: {then}\n    reason: large\n"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "history.jsonl"
    write(simulate(seed=3, transactions=600, users=40, start_ms=1_767_225_600_000), path)
    return path


def run(*arguments: Any, bundle: Path) -> Any:
    return CliRunner().invoke(cli.app, ["backtest", *map(str, arguments)], env={"ASSAY_BUNDLE": str(bundle)})


def summary(*arguments: Any, bundle: Path) -> dict[str, Any]:
    done = run(*arguments, "--json", bundle=bundle)
    assert done.exit_code == 0, f"{done.output} {done.exception}"
    return json.loads(done.stdout.splitlines()[-1])


def test_a_change_of_rules_alone_changes_what_the_rule_names(history: Path, bundle_path: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.format(when="amount_base > 0", then="decline"))
    found = summary("--rules", rules, "--from", history, bundle=bundle_path)
    assert found["transactions"] == 600
    assert found["after"]["declined"] > 590  # what has no rate has no amount
    assert found["what"]["before"]["bundle"] == found["what"]["after"]["bundle"]
    assert sum(one["transactions"] for one in found["changed"]) + found["before"]["declined"] >= found["after"]["declined"]
    assert {one["after"] for one in found["changed"]} == {"decline"}
    assert len(found["rules"]["added"]) == 1
    assert "large_amount" in found["rules"]["removed"]  # a file of one rule has that rule alone


def test_the_deployed_rules_and_models_again_change_nothing(history: Path, bundle_path: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle_path, tmp_path / "copy")
    found = summary("--model", tmp_path / "copy", "--from", history, bundle=bundle_path)
    assert found["changed"] == []
    assert found["before"] == found["after"]
    assert not any(found["rules"].values())


def test_a_page_is_written(history: Path, bundle_path: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.format(when="amount_base > 50", then="review"))
    done = run("--rules", rules, "--from", history, "--html", tmp_path / "page.html", "--examples", 1, bundle=bundle_path)
    assert done.exit_code == 0, done.output
    assert "good customers declined" in done.output
    assert "What a change would have done" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("amount_bse > 1", "amount_base"),
        ("hour < 6", "local_hour?"),
        ("amount_base >", "bad SQL"),
        ("sum(amount_base) > 1", "`sum` can't be used"),
    ],
)
def test_rules_that_can_not_be_used_are_refused_with_the_nearest_names(
    history: Path, bundle_path: Path, tmp_path: Path, when: str, why: str
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.format(when=when, then="review"))
    done = run("--rules", rules, "--from", history, bundle=bundle_path)
    assert done.exit_code != 0
    assert why in str(done.exception)


def test_without_a_change_there_is_nothing_to_test(history: Path, bundle_path: Path) -> None:
    done = run("--from", history, bundle=bundle_path)
    assert "what is the change?" in str(done.exception)


def payments(*rows: tuple[str, str, str, str]) -> str:
    """JSON lines of (transaction_id, card, amount, time)."""
    return "".join(
        json.dumps(
            {
                "transaction_id": name, "user_id": f"u-{name}", "amount": amount, "currency": "EUR", "timestamp": at,
                "merchant": {"id": "m", "category": "5411"}, "instrument": {"id": card}, "fraud": False,
            }
        ) + "\n"
        for name, card, amount, at in rows
    )  # fmt: skip


@pytest.fixture
def history_of_a_decline(tmp_path: Path) -> Path:
    """A card that is declined, and pays again within the hour, and a day later."""
    path = tmp_path / "history.jsonl"
    path.write_text(
        payments(
            ("t-0", "card-a", "20000", "2026-01-01T10:00:00Z"),
            ("t-1", "card-a", "10", "2026-01-01T10:01:00Z"),
            ("t-2", "card-b", "10", "2026-01-01T10:02:00Z"),
            ("t-3", "card-a", "10", "2026-01-02T10:03:00Z"),
        )
    )
    return path


DECLINES = RULES.format(when="amount_base > 10000", then="decline")
ASKS = DECLINES + "  - {id: again, when: instrument_declined_1h > 0, then: review, reason: again}\n"


def test_rules_see_what_the_deployed_way_would_have_declined_before(
    history_of_a_decline: Path, bundle_path: Path, tmp_path: Path
) -> None:
    deployed, asks = tmp_path / "deployed.yaml", tmp_path / "asks.yaml"
    deployed.write_text(DECLINES)
    asks.write_text(ASKS)
    environment = {"ASSAY_BUNDLE": str(bundle_path), "ASSAY_RULES": str(deployed)}
    arguments = ["backtest", "--rules", str(asks), "--from", str(history_of_a_decline), "--json"]
    found = json.loads(CliRunner().invoke(cli.app, arguments, env=environment).stdout.splitlines()[-1])
    assert [(one["transaction_id"], one["rules_after"]) for one in found["examples"]] == [("t-1", ["again"])]


def test_rules_that_are_scored_with_see_what_they_would_have_declined_before(
    history_of_a_decline: Path, bundle_path: Path, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(ASKS)
    arguments = ["score", str(history_of_a_decline), "--bundle", str(bundle_path), "--rules", str(rules), "--json"]
    found = json.loads(CliRunner().invoke(cli.app, arguments).stdout.splitlines()[-1])
    assert found["rules"] == {"large": 1, "again": 1}


def test_money_counts_a_payment_that_came_again_once(bundle_path: Path, tmp_path: Path) -> None:
    history, rules = tmp_path / "history.jsonl", tmp_path / "rules.yaml"
    row = ("t-0", "card-a", "200", "2026-01-01T10:00:00Z")
    history.write_text(payments(row, row, ("t-1", "card-a", "10", "2026-01-01T10:01:00Z")))
    rules.write_text(RULES.format(when="amount_base > 100", then="decline"))
    found = summary("--rules", rules, "--from", history, bundle=bundle_path)
    assert (found["transactions"], found["repeated"], found["after"]["declined"]) == (2, 1, 1)


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        (["--warm-up", 400], InputError, "nothing comes after 400 days"),
        (["--html", "no-such-folder/page.html"], SettingError, "no no-such-folder"),
    ],
)
def test_what_can_not_be_done_is_refused_and_no_crash(
    history: Path, bundle_path: Path, tmp_path: Path, options: list[Any], error: type[Exception], why: str
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.format(when="amount_base > 50", then="review"))
    done = run("--rules", rules, "--from", history, *options, bundle=bundle_path)
    assert isinstance(done.exception, error)
    assert why in str(done.exception)


@pytest.mark.parametrize(("name", "why"), [("history.xlsx", "what format is history.xlsx?"), ("mistyped.csv", "can't be read")])
def test_a_file_that_can_not_be_read_is_not_taken_for_a_topic(bundle_path: Path, tmp_path: Path, name: str, why: str) -> None:
    shutil.copytree(bundle_path, tmp_path / "copy")
    (tmp_path / "history.xlsx").write_bytes(b"")
    done = run("--model", tmp_path / "copy", "--from", tmp_path / name, bundle=bundle_path)
    assert why in str(done.exception)
