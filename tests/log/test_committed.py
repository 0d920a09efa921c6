"""R82: records and the commit that completes them are one frame; commits are found and kept."""

from __future__ import annotations

import itertools
import tracemalloc
import zlib
from pathlib import Path

import pytest

from pillarbox.log import Log, RecordLostError, repair
from pillarbox.log.readable_log import ReadableLog
from tests.log.crash_workloads import OPERATIONS, Run
from tests.log.support import PATH, contents, new_disk, open_log

pa = pytest.importorskip("pyarrow")


def metas(log: ReadableLog) -> list[bytes]:
    """Of all commits, oldest first."""
    return [commit.meta for commit in log.commits()][::-1]


def test_R82_a_commit_travels_with_its_records(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        log.append(b"a")
        assert log.append_committed([b"b", b"c"], b"one") == 1
        assert log.append_committed([b"d"], b"two") == 3
        log.append(b"e")
        assert contents(log) == [b"a", b"b", b"c", b"d", b"e"]
        assert [log.get(index) for index in range(5)] == contents(log)
        assert pa.Table.from_batches(log.read_arrow()).column("record").to_pylist() == [
            b"a",
            b"b",
            b"c",
            b"d",
            b"e",
        ]
    with Log.open(tmp_path / "log", check="all") as again:
        assert again.recovery.clean
        found = [(c.first_index, c.end_index, c.meta) for c in again.commits()]
        assert found == [(3, 4, b"two"), (1, 3, b"one")]


def test_R82_a_reader_beside_the_writer_sees_the_commits(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        log.append_committed([b"a"], b"one")
        with Log.open(tmp_path / "log", readonly=True) as reader:
            assert contents(reader) == [b"a"]
            assert [commit.meta for commit in reader.commits()] == [b"one"]


class Committing(Run):
    """A run whose commits must be there exactly when their records are."""

    def go_on(self, log: Log, disk: object, found: list[bytes]) -> None:
        for commit in log.commits():
            if commit.end_index > log.end_index:
                self.problems.append("a commit without its records")
        super().go_on(log, disk, found)  # type: ignore[arg-type]


def test_R82_a_crash_leaves_the_records_with_their_commit_or_neither() -> None:
    states = 0
    for names in itertools.product(("commit", "append", "roll", "reopen", "groups"), repeat=2):
        run = Committing(zlib.crc32(repr(names).encode()), states_per_step=2)
        run.perform(Run.commit, *(OPERATIONS[name] for name in names))
        assert run.problems == [], names
        states += run.states
    assert states > 1000


def test_R82_a_commit_may_have_no_records() -> None:
    disk = new_disk()
    log = open_log(disk)
    assert log.append_committed([], b"1") == 0
    assert log.append_committed([b"x"], b"2") == 0
    assert log.append_committed([], b"3") == 1
    assert log.append(b"y") == 1
    log.close()
    again = open_log(disk.kill(), check="all")
    assert contents(again) == [b"x", b"y"]
    assert metas(again) == [b"1", b"2", b"3"]


def test_R73_retention_keeps_a_commit_as_long_as_the_records_that_it_completed() -> None:
    disk = new_disk()
    log = open_log(disk, segment_bytes=8192)
    assert log.append_committed([b"x"] * 10, b"meta") == 0
    while len(disk.names(PATH)) < 4:
        log.append(b"y" * 1000)
    log.truncate_before(5)
    assert metas(log) == [b"meta"]
    log.truncate_before(log.end_index)
    assert log.first_index > 10
    assert metas(log) == []


def test_R72_a_repair_keeps_the_commits_that_it_could_save(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Log.open(path) as log:
        log.append_committed([b"a" * 100], b"one")
        log.append(b"lost" * 100)
        log.append_committed([b"b" * 100], b"two")
        log.append_committed([b"c" * 100], b"three")
    (segment,) = path.glob("*.seg")
    raw = bytearray(segment.read_bytes())
    place = raw.index(b"lostlost")
    raw[place : place + 4] = b"!!!!"
    segment.write_bytes(raw)
    repair(path)
    with Log.open(path) as again:
        assert metas(again) == [b"one", b"two", b"three"]
        assert again.get(3) == b"c" * 100
        with pytest.raises(RecordLostError):
            again.get(1)


def test_R72_a_closed_log_may_be_opened_by_its_footer_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for number in range(5):
        with Log.open(path, check="footer") as log:
            assert log.recovery.clean
            log.append_committed([b"%d" % number] * 2, b"%d" % number)
    with Log.open(path, check="all") as again:
        assert contents(again) == [b"%d" % number for number in range(5) for _ in (0, 1)]
        assert metas(again) == [b"%d" % number for number in range(5)]
        again.append(b"not closed")
        (segment,) = path.glob("*.seg")
        raw = segment.read_bytes()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / segment.name).write_bytes(raw[: raw.rindex(b"not closed") + 4])
    with Log.open(tmp_path / "torn", check="footer") as torn:
        assert not torn.recovery.clean
        assert contents(torn) == [b"%d" % number for number in range(5) for _ in (0, 1)]


def test_R82_a_reader_does_not_keep_large_batches_in_memory(tmp_path: Path) -> None:
    size = 9 << 20
    with Log.open(tmp_path / "log") as log:
        for _ in range(4):
            log.append_committed([bytes(size)], b"")
        tracemalloc.start()
        try:
            assert sum(len(frame.records[0]) for frame in log.frames()) == 4 * size
            assert tracemalloc.get_traced_memory()[0] < size
        finally:
            tracemalloc.stop()


def test_R82_many_commits_without_records_hide_nothing(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", durability="os") as log:
        log.append(b"before")
        for _ in range(300):  # more than one read covers
            log.append_committed([], b"x" * 250)
        with Log.open(tmp_path / "log", readonly=True) as early:
            assert early.index_at_time(log.last_time_ns) == 1
            log.append(b"after")
            early.refresh()
            with Log.open(tmp_path / "log", readonly=True) as late:
                for each in (early, late, log):
                    assert contents(each) == [b"before", b"after"]
                    assert each.index_at_time(log.last_time_ns) == 1


def test_R82_a_half_written_commit_at_the_end_is_no_damage() -> None:
    disk = new_disk()
    log = open_log(disk)
    log.append(b"a")
    segment = log._catalog.segments[0]
    end = segment.end_offset
    log.append_committed([], b"x" * 500)
    handle = disk.open(f"{PATH}/{segment.name}", write=True)
    disk.pwrite(handle, [bytes(400)], end + 100)
    with Log.open(PATH, disk=disk, readonly=True) as reader:
        assert contents(reader) == [b"a"]
        assert reader.index_at_time(log.last_time_ns + 1) == 1


def test_R82_a_file_that_ends_with_its_last_frame_can_be_searched_by_time() -> None:
    disk = new_disk()
    log = open_log(disk)
    log.append(b"a")
    handle = disk.open(f"{PATH}/{log._catalog.segments[0].name}", write=True)
    disk.truncate(handle, log._catalog.segments[0].end_offset)
    assert Log.open(PATH, disk=disk, readonly=True).index_at_time(log.last_time_ns + 1) == 1


def test_R82_commits_end_where_segments_were_dropped_meanwhile(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", segment_bytes=8192, prepare_ahead=False) as log:
        for number in range(20):
            log.append_committed([b"x" * 1000], b"%d" % number)
        with Log.open(tmp_path / "log", readonly=True) as reader:
            log.truncate_before(15)
            assert log.first_index > 0
            assert metas(reader) == metas(log) == [b"%d" % i for i in range(log.first_index, 20)]
