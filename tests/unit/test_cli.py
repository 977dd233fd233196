"""The command line: what it lists, how it says that something is wrong, and that it starts quickly."""

import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from assay.deploy import cli
from assay.schemas.errors import ServiceError

run = CliRunner().invoke


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes `assay doctor` raise what it is given, and runs the entry point."""

    def call(error: BaseException, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
        def doctor() -> None:
            raise error

        monkeypatch.setattr("assay.deploy.doctor.doctor", doctor)
        monkeypatch.setattr(sys, "argv", ["assay", "doctor"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


def test_help_lists_every_command_with_a_summary() -> None:
    shown = run(cli.app, ["--help"], terminal_width=200).output
    for name, (_module, summary) in cli.COMMANDS.items():
        assert name in shown
        assert summary.split(":")[0].split(".")[0] in " ".join(shown.split())


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_shows_examples_in_its_help(name: str) -> None:
    shown = run(cli.app, [name, "--help"])
    assert shown.exit_code == 0, shown.output
    assert "Examples:" in shown.output
    assert f"assay {name}" in shown.output


@pytest.mark.parametrize("name", ["up", "down", "status", "fetch"])
def test_every_services_command_shows_examples_in_its_help(name: str) -> None:
    shown = run(cli.app, ["services", name, "--help"])
    assert shown.exit_code == 0, shown.output
    assert f"assay services {name}" in shown.output.split("Examples:")[1]


def test_listing_commands_imports_none_of_them() -> None:
    program = "import sys, assay.deploy.cli as c\ntry: c.app(['--help'])\nexcept SystemExit: print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"numpy", "numba", "polars", "xgboost", "faust", "aiokafka", "pydantic", "redis", "assay.streams.settings"}
    assert not heavy & set(loaded)


def test_an_error_of_ours_is_one_readable_line_and_exit_code_2(failing: Any, capsys: pytest.CaptureFixture[str]) -> None:
    error = ServiceError("no Kafka", expected="one", got="none", mend="start it")
    assert failing(error, capsys) == (2, "", "error: no Kafka (expected: one; got: none). Mend: start it\n")


def test_ctrl_c_exits_130(failing: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert failing(KeyboardInterrupt(), capsys)[0] == 130


def test_an_error_that_is_not_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def doctor() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("assay.deploy.doctor.doctor", doctor)
    monkeypatch.setattr(sys, "argv", ["assay", "doctor"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_a_command_whose_module_is_missing_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(cli.COMMANDS, "demo", ("no_such_module", "Nothing."))
    monkeypatch.setattr(sys, "argv", ["assay", "demo"])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert "no command demo" in capsys.readouterr().err


def test_an_unknown_command_is_refused_with_the_nearest_one() -> None:
    answer = run(cli.app, ["docter"])
    assert answer.exit_code == 2
    assert "'doctor'" in answer.output


def test_version_is_the_distributions() -> None:
    answer = run(cli.app, ["--version"])
    assert (answer.exit_code, answer.output.split()[0]) == (0, "assay")
