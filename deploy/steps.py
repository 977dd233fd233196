"""Telling somebody who waits what is going on: on stderr, so that stdout stays for results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[str], None]


def silent(text: str) -> None:
    """A `Tell` for when nobody waits."""


@contextmanager
def steps() -> Iterator[Tell]:
    """A `Tell` that shows the step being taken: a spinner on a terminal, else a line for each."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True)
        return
    with console.status("") as status:
        yield lambda text: status.update(escape(text))
