"""Rows of earlier layouts, and how they become rows of this one: applied wherever a row comes from the changelog or from disk.

To change the layout: raise `LAYOUT_VERSION`, and keep here the width of the old one with a function that makes one of its rows
one of the next. A step never changes afterwards, so a row may be several versions behind.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from assay.schemas.errors import ChangelogError
from assay.tables.changelog import REBUILD
from assay.tables.profile import LAYOUT_VERSION, ROW_BYTES

VERSION_BYTES = 8  # every layout begins with its version, as a little-endian integer


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout of rows: its width, and what makes one of its rows a row of the next version (None: it is the current one)."""

    row_bytes: int
    upgrade: Callable[[bytes], bytes] | None = None


class Layouts:
    """The layouts that can be read, by version. The last is the current one.

    >>> second = (2).to_bytes(8, "little")
    >>> layouts = Layouts({1: Layout(9, lambda row: second + row[8:] * 2), 2: Layout(10)})
    >>> layouts.current((1).to_bytes(8, "little") + b"x") == layouts.current(second + b"xx") == second + b"xx"
    True
    """

    def __init__(self, known: Mapping[int, Layout]) -> None:
        self._known = dict(known)
        self._version = max(self._known)
        self._row_bytes = self._known[self._version].row_bytes
        self._head = self._version.to_bytes(VERSION_BYTES, "little")

    def current(self, row: bytes) -> bytes:
        """The row in the current layout: as it is, or upgraded. Raises ChangelogError where it is of none that is known."""
        if row.startswith(self._head) and len(row) == self._row_bytes:
            return row
        version = _version(row)
        layout = self._known.get(version)
        if layout is None or layout.upgrade is None or len(row) != layout.row_bytes:
            raise self._foreign(row)
        following = layout.upgrade(row)
        if _version(following) != version + 1:
            raise ValueError(f"the upgrade of layout {version} makes rows of layout {_version(following)}")
        return self.current(following)

    def _foreign(self, row: bytes) -> ChangelogError:
        known = [
            f"{layout.row_bytes} bytes of layout {version}" for version, layout in sorted(self._known.items(), reverse=True)
        ]
        return ChangelogError(
            "a profile is of a layout that this version does not know",
            expected=" or ".join(known),
            got=f"{len(row)} bytes" + (f" of layout {_version(row)}" if len(row) >= VERSION_BYTES else ""),
            mend=f"run the version that wrote it, or {REBUILD}",
        )


def _version(row: bytes) -> int:
    return int.from_bytes(row[:VERSION_BYTES], "little", signed=True)


LAYOUTS = Layouts({LAYOUT_VERSION: Layout(ROW_BYTES)})
