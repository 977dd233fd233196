"""What the programs share that read a changelog back: the job they are given, and how long it took by Faust's own word."""

import json
import logging
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path

BEGINS, ENDS = "Restoring state from changelog topics", "Done reading from changelog topics"


@dataclass(frozen=True)
class RecoveryJob:
    """JSON on the command line.

    Attributes:
        prefix: of topics and group.
        row_bytes: the width of the rows in the changelog.
        rows: how many records it holds.
    """

    bootstrap_servers: str
    prefix: str
    partitions: int
    row_bytes: int
    rows: int
    data_dir: str

    @classmethod
    def from_command_line(cls) -> "RecoveryJob":
        return cls(**json.loads(sys.argv[1]))


class Watch(logging.Handler):
    """Takes the time between two lines of Faust's recovery, ours and stock alike, and prints one line of JSON."""

    def __init__(self, job: RecoveryJob) -> None:
        super().__init__()
        self._rows = job.rows
        self._began = self._began_computing = 0.0

    def watch(self) -> None:
        """From now on."""
        logger = logging.getLogger("faust.tables.recovery")
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if BEGINS in record.getMessage():
            self._began, self._began_computing = time.monotonic(), time.process_time()
        elif ENDS in record.getMessage():
            seconds, computed = time.monotonic() - self._began, time.process_time() - self._began_computing
            found = {"rows_per_s": self._rows / seconds, "cpu_us": computed / self._rows * 1e6, "rss_mb": _most_memory_mb()}
            print(json.dumps(found), flush=True)


def _most_memory_mb() -> float:
    """Of this program: on Linux ru_maxrss begins with what the parent had when it forked."""
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
