"""A worker's data directory belongs to one worker at a time."""

import fcntl
from pathlib import Path
from typing import IO

from assay.schemas.errors import SettingError

LOCK_FILE = "worker.lock"


def claim_data_dir(path: Path) -> IO[str]:
    """Make the directory and hold its lock for as long as the returned file is open. Raises SettingError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / LOCK_FILE).open("w")
    except OSError as error:
        raise SettingError(
            f"the data directory {path} can't be used: {error.strerror}",
            expected="a directory that this user may write to",
            mend="set ASSAY_DATA_DIR to one, or mend its permissions",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise SettingError(
            f"the data directory {path} is in use by another worker",
            expected="a directory of its own for each worker",
            mend="set ASSAY_DATA_DIR (or --data-dir) to another one, or stop the other worker",
        ) from error
    return lock
