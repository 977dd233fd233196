"""With --json, stdout is for machines alone."""

import sys
from contextlib import AbstractContextManager, nullcontext, redirect_stdout


def beside_json(json_: bool) -> AbstractContextManager[object]:
    """Within, what is printed for people goes to stderr where JSON follows on stdout."""
    return redirect_stdout(sys.stderr) if json_ else nullcontext()
