"""What a check of `assay doctor` finds."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from assay.schemas.errors import AssayError


class State(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's: what was looked at, how it stands, what was found, and what to do about it."""

    name: str
    state: State
    found: str
    mend: str = ""


def ok(name: str, found: str) -> Check:
    return Check(name, State.OK, found)


def warn(name: str, found: str, mend: str) -> Check:
    return Check(name, State.WARN, found, mend)


def fail(name: str, found: str, mend: str) -> Check:
    return Check(name, State.FAIL, found, mend)


def failure(name: str, error: Exception) -> Check:
    """An error as a check: ours say what to do themselves."""
    if isinstance(error, AssayError):
        found = error.what + (f" (expected: {error.expected})" if error.expected else "")
        return fail(name, found + (f" (got: {error.got})" if error.got else ""), error.mend)
    return fail(name, f"{type(error).__name__}: {error}", "this is not an error of ours: see what it says")


def attempt(name: str, look: Callable[[], Check]) -> Check:
    """What `look` finds; an error that it raises is what was found."""
    try:
        return look()
    except Exception as error:  # a doctor reports every illness and dies of none
        return failure(name, error)
