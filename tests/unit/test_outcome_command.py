"""`assay outcome`: what is no outcome is refused before anything is sent."""

import pytest
import typer
from typer.testing import CliRunner

from assay.deploy import outcome_command
from assay.deploy.cli import load
from assay.schemas.errors import AssayError
from assay.schemas.outcome import read_outcome


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes]]:
    told: list[tuple[bytes, bytes]] = []

    async def send(settings: object, key: bytes, value: bytes) -> tuple[int, int]:
        told.append((key, value))
        return 2, 41

    monkeypatch.setattr(outcome_command, "_send", send)
    return told


def run(*arguments: str) -> None:
    """Raises what ends it."""
    app = typer.Typer(add_completion=False)
    app.command()(outcome_command.outcome)
    done = CliRunner().invoke(app, ["u-1", "t-1", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_it_sends_what_it_was_told_keyed_by_the_user(sent: list[tuple[bytes, bytes]]) -> None:
    run("--status", "disputed", "--amount", "30.00", "--id", "d-7", "--detail", "fraud_type=lost")
    [(key, value)] = sent
    told = read_outcome(value)
    assert (key, told.outcome_id, told.status.value, str(told.amount)) == (b"u-1", "d-7", "disputed", "30.00")
    assert told.detail is not None
    assert told.detail.fraud_type == "lost"


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--status", "stolen"], "status"),
        (["--status", "fraud", "--amount", "much"], "amount"),
        (["--status", "fraud", "--detail", "colour=red"], "detail"),
        (["--status", "fraud", "--detail", "avs"], "detail"),
        (["--status", "fraud", "--known-at", "yesterday"], "known_at"),
        (["--status", "fraud", "--known-at", "2999-01-01T00:00:00Z"], "known_at"),
        (["--status", "fraud", "--id", "4111111111111111"], "value"),
    ],
)
def test_what_is_no_outcome_is_refused_and_not_sent(sent: list[tuple[bytes, bytes]], arguments: list[str], names: str) -> None:
    with pytest.raises(AssayError, match=names):
        run(*arguments)
    assert sent == []


def test_it_is_a_command() -> None:
    assert load("outcome").name == "outcome"
