"""How the pure loops are compiled: by numba, without the GIL, kept in its cache on disk.

A trap: that cache knows a function by the file it stands in and by the types of its arguments. A compiled function
calls others of its own file only; what it takes from elsewhere comes in the types (sizes, columns) or never changes.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """The function, compiled at its first call for the types it is called with."""
    return cast(F, numba.njit(nogil=True, cache=True)(function))
