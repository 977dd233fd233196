"""The one way in which a worker ends on purpose when going on would be wrong."""

import logging
import os
import sys
from typing import NoReturn

EXIT_UNCOMMITTED = 70  # EX_SOFTWARE: a supervisor restarts the worker, and the next owner repeats what is not committed

log = logging.getLogger("assay.worker")


def end_process(reason: str, error: BaseException | None = None) -> NoReturn:
    """End at once, uncommitted, saying why. No clean-up: whatever is still buffered must not leave the process."""
    log.critical("ending: %s", reason, exc_info=error)
    for handler in logging.getLogger().handlers:
        handler.flush()
    print(f"assay: worker ends, uncommitted: {reason}: {error}", file=sys.stderr, flush=True)
    os._exit(EXIT_UNCOMMITTED)
