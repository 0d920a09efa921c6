"""R82: staged segments become part of the log with one commit frame, all of them or none."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pillarbox.log import Log, LogCorruptError, LogError, StagedSegment
from pillarbox.testing.disk import SimDisk
from tests.log.support import contents, new_disk, open_log


def stage(disk: SimDisk | None, path: str, records: list[bytes]) -> str:
    staged = StagedSegment(path, disk=disk)
    for start in range(0, len(records), 2):
        staged.append_many(records[start : start + 2])
    assert staged.count == len(records)
    return staged.close()


def test_R82_adopted_records_follow_the_last_one_and_keep_their_order(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        log.append_many([b"a", b"b"])
        one = stage(None, str(tmp_path / "one"), [b"c", b"d", b"e"])
        two = stage(None, str(tmp_path / "two"), [b"f"])
        assert log.adopt([one, two], b"hash 1") == 2
        assert log.append(b"g") == 6
        assert contents(log) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
        assert [log.get(index) for index in range(7)] == contents(log)
        assert [record.data for record in log.tailer().to_end().backward().read(4)] == [
            b"g",
            b"f",
            b"e",
            b"d",
        ]
    with Log.open(tmp_path / "log", check="all") as again:
        assert again.recovery.clean
        assert contents(again) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
        commits = list(again.commits())
        assert [(c.first_index, c.end_index, c.meta) for c in commits] == [(2, 6, b"hash 1")]
        with Log.open(tmp_path / "log", readonly=True) as reader:
            assert contents(reader) == contents(again)


def test_R82_an_empty_log_and_empty_files_can_be_adopted_into() -> None:
    disk = new_disk()
    log = open_log(disk)
    assert log.adopt([stage(disk, "data/one", [b"x"])], b"1") == 0
    assert log.adopt([stage(disk, "data/two", [])], b"2") == 1
    assert log.adopt([], b"3") == 1
    assert log.adopt([stage(disk, "data/three", [b"y"])], b"4") == 1
    assert log.append(b"z") == 2
    log.close()
    again = open_log(disk.kill(), check="all")
    assert contents(again) == [b"x", b"y", b"z"]
    assert [commit.meta for commit in again.commits()] == [b"1", b"2", b"3", b"4"]


def test_R82_a_staged_file_that_is_not_whole_is_refused() -> None:
    disk = new_disk()
    log = open_log(disk)
    path = stage(disk, "data/one", [b"x" * 100] * 10)
    handle = disk.open(path, write=True)
    disk.pwrite(handle, [b"!"], 4300)
    with pytest.raises(LogCorruptError):
        log.adopt([path], b"meta")
    assert log.append(b"still works") == 0


def test_R82_a_failed_link_changes_nothing() -> None:
    disk = new_disk()
    log = open_log(disk)
    log.append(b"a")
    paths = [stage(disk, f"data/{name}", [b"x"]) for name in ("one", "two")]
    links = 0

    def before(operation: str, _path: str) -> None:
        nonlocal links
        if operation == "link":
            links += 1
            if links == 2:
                raise OSError(errno.EXDEV, "another device")

    disk.before = before
    with pytest.raises(LogError, match="stage it next to"):
        log.adopt(paths, b"meta")
    disk.before = None
    assert contents(log) == [b"a"]
    assert log.adopt(paths, b"meta") == 1
    assert contents(log) == [b"a", b"x", b"x"]
