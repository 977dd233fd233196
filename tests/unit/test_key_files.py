"""Files of keys: read again when they change, kept when they break, and never open to others."""

import logging
from pathlib import Path

import pytest

from assay.schemas.errors import InputError
from assay.schemas.signature import SigningKey
from assay.streams.key_files import KeyFile, read_signing_key

FIRST, SECOND = SigningKey.make(kid="first"), SigningKey.make(kid="the second")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(FIRST.key_set())
    return path


def test_keys_are_read_again_when_the_file_changes(path: Path) -> None:
    file = KeyFile(path)
    path.write_bytes(SECOND.key_set())
    file.refresh()
    assert list(file.keys) == ["the second"]


def test_a_file_that_has_not_changed_is_not_read_again(path: Path) -> None:
    file = KeyFile(path)
    before = file.keys
    file.refresh()
    assert file.keys is before


@pytest.mark.parametrize("broken", [b"{", None])
def test_keys_stay_where_the_file_breaks(path: Path, broken: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    file = KeyFile(path)
    path.unlink() if broken is None else path.write_bytes(broken)
    with caplog.at_level(logging.ERROR):
        file.refresh()
    assert list(file.keys) == ["first"]
    assert "keys stay as they were" in caplog.text


def test_a_file_that_is_not_there_is_an_error_at_first(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.json can't be read"):
        KeyFile(tmp_path / "none.json")


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o644, 0o666])
def test_a_private_key_that_others_may_read_or_its_group_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(FIRST.pem())
    path.chmod(mode)
    with pytest.raises(InputError, match="open to others"):
        read_signing_key(path)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440])
def test_a_private_key_that_only_we_may_read_is_taken(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(FIRST.pem())
    path.chmod(mode)
    assert read_signing_key(path, kid="first").header(b"x") == FIRST.header(b"x")


def test_a_private_key_of_another_kind_is_refused_with_its_file_named(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    path.chmod(0o600)
    with pytest.raises(InputError, match=r"key.pem: this is no key to sign with"):
        read_signing_key(path)
