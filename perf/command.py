"""How every benchmark is asked, and how it ends: a line of JSON for scripts, an error in one line, Ctrl-C, SIGTERM in order."""

import argparse
import json
import signal
import sys
from collections.abc import Callable, Mapping
from typing import NoReturn

from assay.schemas.errors import AssayError


def ended(run: Callable[[], Mapping[str, object]]) -> int:
    """Run it and print the figures that it returns. Returns the exit status: 0, 2 after an error, 130 after Ctrl-C."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        figures = run()
    except AssayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    print(json.dumps(figures))
    return 0


def positive(text: str) -> int:
    """A whole number of an argument. Raises ArgumentTypeError where it is not above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _terminated(*_: object) -> NoReturn:
    sys.exit(143)  # as if killed by SIGTERM, but in order
