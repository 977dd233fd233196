"""What a changelog must be for the rows read from it to be whole; anything else is refused with the way out."""

from pathlib import Path

import pytest

from assay.schemas.errors import ChangelogError
from assay.tables.changelog import InLog, OnDisk, check_recovered, rebuild_mark

FOLDER = Path("data/profiles-0.rocksdb")
LOG = InLog("id", 0, 100)
MARK = rebuild_mark("one", 50)


def check(disk: OnDisk, log: InLog = LOG) -> None:
    check_recovered(0, disk, log, FOLDER)


@pytest.mark.parametrize(
    "disk",
    [OnDisk(), OnDisk(99), OnDisk(99, "id"), OnDisk(40, "id"), OnDisk(99, "id", MARK, MARK)],
    ids=["nothing was ever written", "first read", "of this topic", "compacted behind it", "rebuilt"],
)
def test_what_fits_is_taken(disk: OnDisk) -> None:
    check(disk)


def test_a_changelog_that_was_made_anew_is_refused() -> None:
    with pytest.raises(ChangelogError, match=f"made anew.*expected: topic id other; got: id.*rebuild.*remove {FOLDER}"):
        check(OnDisk(10, "other"))


def test_a_changelog_whose_end_was_lost_is_refused() -> None:
    with pytest.raises(ChangelogError, match=f"ahead of the changelog.*beyond offset 100; got: its end at 100.*{FOLDER}"):
        check(OnDisk(100, "id"))


def test_a_changelog_whose_beginning_was_removed_is_refused() -> None:
    with pytest.raises(ChangelogError, match=r"beginning was removed.*cleanup\.policy.*`assay rebuild`"):
        check(OnDisk(99, "id"), InLog("id", 7, 100))


def test_a_rebuild_stands_for_all_that_came_before_it() -> None:
    check(OnDisk(99, "id", MARK, MARK), InLog("id", 50, 100))


def test_what_was_removed_after_a_rebuild_began_is_missing() -> None:
    with pytest.raises(ChangelogError, match="its first record at offset 50; got: at 51"):
        check(OnDisk(99, "id", MARK, MARK), InLog("id", 51, 100))


@pytest.mark.parametrize("done", [None, rebuild_mark("before", 20)], ids=["the first", "a second one"])
def test_a_rebuild_that_was_stopped_is_refused(done: bytes | None) -> None:
    with pytest.raises(ChangelogError, match=r"stopped in the middle.*run it again"):
        check(OnDisk(99, "id", MARK, done))
