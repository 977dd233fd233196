"""How a Faust application that reads a changelog back is run, ours and stock alike."""

from collections.abc import Callable

import faust
from job import end_with_parent
from recovery_job import RecoveryJob, Watch


def read_back(application: Callable[[RecoveryJob], faust.App]) -> None:
    """Run the application of the job on the command line, and report. Does not return."""
    job = RecoveryJob.from_command_line()
    end_with_parent()
    Watch(job).watch()
    worker = faust.Worker(application(job), loglevel="warning", redirect_stdouts=False, quiet=True)
    worker.spinner = None  # it writes to the standard output too
    worker.execute_from_commandline()
