"""Files of keys: public ones that are read again when they change, and a private one that nobody else may read."""

import logging
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.schemas.errors import InputError
from assay.schemas.limits import MAX_KEYS_FILE_BYTES
from assay.schemas.signature import SigningKey, VerifyingKey, read_keys

_TOO_OPEN = stat.S_IWGRP | stat.S_IRWXO  # a group may read it: Kubernetes mounts secrets so

log = logging.getLogger("assay.keys")


class KeyFile:
    """The keys of a JWK Set file. `keys` is replaced as a whole, by `refresh`.

    Raises InputError where the file can't be used at first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._state()
        self.keys: Mapping[str, VerifyingKey] = self._read()

    def refresh(self) -> None:
        """Read it again if it has changed. One that can't be used leaves the keys as they are, with an error in the log."""
        try:
            if (state := self._state()) != self._seen:
                self._seen = state
                self.keys = self._read()
                log.info("%s: %d keys from now on", self._path, len(self.keys))
        except InputError as error:
            log.error("keys stay as they were: %s", error)

    def _state(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise _unreadable(self._path, error) from error
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> Mapping[str, VerifyingKey]:
        return read_keys(read_bounded(self._path))


def read_bounded(path: Path) -> bytes:
    """A file of keys. Raises InputError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_KEYS_FILE_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(content) > MAX_KEYS_FILE_BYTES:
        raise InputError(f"{path} is too large for a file of keys", expected=f"at most {MAX_KEYS_FILE_BYTES} bytes")
    return content


def read_signing_key(path: Path, **names: Any) -> SigningKey:
    """The private key of a file that others may not read, nor its group write. Raises InputError."""
    pem = read_bounded(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _TOO_OPEN:
        raise InputError(
            f"{path} is open to others",
            expected="a private key that its owner, or at most its group, may read",
            got=f"mode {mode:o}",
            mend=f"chmod 600 {path}, and make a new key if somebody else may have read it",
        )
    try:
        return SigningKey.read(pem, **names)
    except InputError as error:
        raise InputError(f"{path}: {error.what}", expected=error.expected, mend="assay keys make FILE") from None


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"{path} can't be read: {error.strerror}", expected="a file of keys")
