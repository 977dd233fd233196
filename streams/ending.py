"""The two ways in which a worker ends on purpose: before it has begun, and when going on would be wrong."""

import logging
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import NoReturn

from assay.schemas.errors import AssayError, ChangelogError, TopologyError

EXIT_NOT_STARTED = 2  # as the command line does for what somebody has to mend
EXIT_UNCOMMITTED = 70  # EX_SOFTWARE: a supervisor restarts the worker, and the next owner repeats what is not committed

log = logging.getLogger("assay.worker")


instead: ContextVar[Callable[[str, BaseException | None], NoReturn]] = ContextVar("instead")
"""What ends a worker that is not a process of its own: set in the context that its tasks begin in. Must not return."""


def end_process(reason: str, error: BaseException | None = None) -> NoReturn:
    """End at once, uncommitted, saying why. No clean-up: whatever is still buffered must not leave the process.

    What a restart can't mend, since what is stored is not what the settings and topics say, ends as if it had not started.
    """
    if (end := instead.get(None)) is not None:
        end(reason, error)
    to_mend = isinstance(error, TopologyError | ChangelogError)
    log.critical("ending: %s", reason, exc_info=None if to_mend else error)
    why = reason if error is None else f"{reason}: {error}"
    _exit(f"assay: worker ends, uncommitted: {why}", EXIT_NOT_STARTED if to_mend else EXIT_UNCOMMITTED)


def refuse_to_start(error: AssayError) -> NoReturn:
    """End at once, with the line that names what to mend: nothing has been read yet."""
    _exit(f"error: {error}", EXIT_NOT_STARTED)


def _exit(line: str, status: int) -> NoReturn:
    for handler in logging.getLogger().handlers:
        handler.flush()
    print(line, file=sys.stderr, flush=True)
    os._exit(status)
