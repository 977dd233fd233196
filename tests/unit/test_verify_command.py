"""`assay keys` and `assay verify`, from files."""

import base64
import stat
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest
from typer.testing import CliRunner, Result

from assay.deploy.cli import app
from assay.schemas.errors import AssayError
from assay.schemas.signature import SigningKey, to_base64url

VALUE = b'{"transaction_id":"t-1","user_id":"u-1","action":"review"}'
KEY = SigningKey.make()


@pytest.fixture
def keys(tmp_path: Path) -> str:
    (tmp_path / "keys.json").write_bytes(KEY.key_set())
    return str(tmp_path / "keys.json")


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, arguments, input=stdin)


def token(value: bytes = VALUE) -> str:
    return KEY.header(value)[1].decode()


def test_a_key_is_made_for_its_owner_alone_and_never_over_another(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    assert run("keys", "make", str(path)).exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert isinstance(run("keys", "make", str(path)).exception, AssayError)
    shown = orjson.loads(run("keys", "show", str(path), "--kid", "shop").stdout)
    assert shown == orjson.loads(SigningKey.read(path.read_bytes(), kid="shop").key_set())
    assert "d" not in shown["keys"][0]


def test_a_file_as_it_came_verifies(tmp_path: Path, keys: str) -> None:
    (tmp_path / "decision").write_bytes(VALUE)
    done = run("verify", str(tmp_path / "decision"), "--signature", token(), "--keys", keys, "--json")
    assert done.exit_code == 0
    assert orjson.loads(done.stdout) == {
        "verified": True, "kid": KEY.kid, "expected": None, "decision": orjson.loads(VALUE),
    }  # fmt: skip


def test_a_whole_jws_verifies_from_stdin(keys: str) -> None:
    protected, signature = KEY.header(VALUE)[1].split(b"..")
    whole = protected + b"." + to_base64url(VALUE) + b"." + signature
    done = run("verify", "-", "--keys", keys, stdin=whole + b"\n")
    assert (done.exit_code, done.stdout) == (0, f"verified: signed by {KEY.kid}\nreview on t-1 of u-1\n")


@pytest.mark.parametrize(
    ("value", "signature"),
    [
        (VALUE + b" ", token()),
        (VALUE, token(b"other")),
        (VALUE, base64.b64encode(b"x").decode()),
        (VALUE, SigningKey.make(kid=KEY.kid).header(VALUE)[1].decode()),
    ],
)
def test_what_was_changed_exits_with_1_and_shows_no_decision(value: bytes, signature: str, keys: str) -> None:
    done = run("verify", "-", "--signature", signature, "--keys", keys, "--json", stdin=value)
    assert done.exit_code == 1
    said = orjson.loads(done.stdout)
    assert (said["verified"], said["decision"]) == (False, None)


def test_bytes_without_a_signature_exit_with_1(keys: str) -> None:
    done = run("verify", "-", "--keys", keys, stdin=VALUE)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "--signature" in done.stderr


@pytest.mark.parametrize(
    ("record", "said"),
    [(None, "no decision on t-1 of u-1"), (SimpleNamespace(value=VALUE, headers=[]), "this decision is not signed")],
)
def test_a_decision_that_is_not_there_or_not_signed_exits_with_1(
    keys: str, monkeypatch: pytest.MonkeyPatch, record: object, said: str
) -> None:
    async def find_record(*_: object) -> object:
        return record

    monkeypatch.setattr("assay.deploy.decision_command.find_record", find_record)
    done = run("verify", "u-1", "t-1", "--keys", keys)
    assert (done.exit_code, done.stdout) == (1, "")
    assert said in done.stderr
