"""What a partition's changelog holds besides rows, and what it must be for the rows read from it to be whole.

Keys that begin with a zero byte are bookkeeping: no user has one, since user ids are printable. A rebuild (`assay rebuild`)
stands between two marks of the same value: whatever was read before the first is thrown away, and rows without the second are
not to be used.
"""

from dataclasses import dataclass
from pathlib import Path

from assay.schemas.errors import ChangelogError

BOOKKEEPING = b"\0"
REBUILD_BEGUN_KEY = b"\0assay-rebuild-begun"
REBUILD_DONE_KEY = b"\0assay-rebuild-done"
REBUILD = "stop the workers and run `assay rebuild`, which makes the profiles anew from the transactions topic"


def rebuild_mark(name: str, whole_since: int) -> bytes:
    """The value of both marks of a rebuild: its name, and the changelog offset that the first one lies at or after.

    >>> rebuild_mark("5f3a", 120)
    b'120 5f3a'
    """
    return f"{whole_since} {name}".encode()


@dataclass(frozen=True, slots=True)
class OnDisk:
    """What a partition's database holds, whatever its rows are.

    Attributes:
        offset: of the changelog, which its rows reflect; None: it is empty.
        changelog_id: Kafka's id of the topic that they were read from; None: not known yet.
        begun, done: the marks of the last rebuild; None: there was none.
    """

    offset: int | None = None
    changelog_id: str | None = None
    begun: bytes | None = None
    done: bytes | None = None

    @property
    def whole_since(self) -> int:
        """The first changelog offset that matters."""
        return 0 if self.begun is None else int(self.begun.split()[0])


@dataclass(frozen=True, slots=True)
class InLog:
    """A partition of the changelog topic: Kafka's id of the topic, its first offset and the one after its last."""

    topic_id: str
    earliest: int
    end: int


def check_recovered(partition: int, disk: OnDisk, log: InLog, folder: Path) -> None:
    """Whether the rows in `folder`, now that the changelog was read to its end, are all that it has ever said.

    A changelog whose beginning is gone is refused even where this disk has read it before: no other could.

    Raises ChangelogError.
    """
    if disk.changelog_id not in (None, log.topic_id):
        raise ChangelogError(
            f"partition {partition}: the changelog was deleted and made anew: the rows on disk were read from another one",
            expected=f"topic id {disk.changelog_id}",
            got=log.topic_id,
            mend=f"{REBUILD}; before the workers start, remove {folder}",
        )
    if disk.offset is not None and disk.offset >= log.end:
        raise ChangelogError(
            f"partition {partition}: the disk is ahead of the changelog, whose end was lost",
            expected=f"a changelog that goes beyond offset {disk.offset}",
            got=f"its end at {log.end}",
            mend=f"remove {folder}, so that it is read anew; if that is refused too, {REBUILD}",
        )
    if log.earliest > disk.whole_since:
        raise ChangelogError(
            f"partition {partition}: the changelog's beginning was removed: it is to be compacted and never cut off",
            expected=f"its first record at offset {disk.whole_since}",
            got=f"at {log.earliest}",
            mend=f"set the cleanup.policy of the changelog topic to compact; then {REBUILD}",
        )
    if disk.begun != disk.done:
        raise ChangelogError(
            f"partition {partition}: the profiles are being rebuilt, or a rebuild was stopped in the middle",
            expected="a rebuild that is complete",
            got="the beginning of one",
            mend="wait for `assay rebuild` to end, or run it again",
        )
