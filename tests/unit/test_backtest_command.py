"""`assay backtest` over a file: one change at a time, and what is asked wrongly."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assay.deploy import cli
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


def test_the_deployed_rules_and_models_again_change_nothing(history: Path, bundle_path: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle_path, tmp_path / "copy")
    found = summary("--model", tmp_path / "copy", "--from", history, bundle=bundle_path)
    assert found["changed"] == []
    assert found["before"] == found["after"]


def test_a_page_is_written(history: Path, bundle_path: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.format(when="amount_base > 50", then="review"))
    done = run("--rules", rules, "--from", history, "--html", tmp_path / "page.html", "--examples", 1, bundle=bundle_path)
    assert done.exit_code == 0, done.output
    assert "good customers declined" in done.output
    assert "What a change would have done" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("when", "why"),
    [("amount_bse > 1", "amount_base"), ("amount_base >", "bad SQL"), ("sum(amount_base) > 1", "`sum` can't be used")],
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
