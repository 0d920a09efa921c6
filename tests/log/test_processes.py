"""R58, R75: kill -9 loses nothing confirmed; many processes read while one writes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pillarbox.log import (
    Durability,
    Log,
    LogError,
    LogIndexError,
    LogLockedError,
    RealDisk,
    log_reader,
)
from pillarbox.log.directory import LogDirectory
from pillarbox.testing.disk import SimDisk
from tests.log.support import PATH, contents, new_disk, open_log
from tests.log.writer_process import record_of

ROUNDS = int(os.environ.get("PILLARBOX_KILL_ROUNDS", "6"))


@contextmanager
def writer(path: Path, durability: str, threads: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.log.writer_process", str(path), durability]
    process = subprocess.Popen([*command, str(threads)], stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def kill_after(process: subprocess.Popen[bytes], lines: int) -> dict[int, bytes]:
    """Let it confirm some records, kill it, and return every one that it said is confirmed."""
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    said += process.stdout.read().splitlines(keepends=True)
    confirmed = {}
    for line in said:
        if line.endswith(b"\n"):
            index, name, number = map(int, line.split())
            confirmed[index] = record_of(name, number)
    return confirmed


def kill_rounds(path: Path, durability: Durability, rounds: int, threads: int) -> None:
    confirmed: dict[int, bytes] = {}
    for number in range(rounds):
        with writer(path, durability, threads) as process:
            confirmed |= kill_after(process, random.Random(number).randint(20, 400))
        with Log.open(path, check="all") as log:
            found = contents(log)
        lost = [
            index for index, record in confirmed.items() if found[index : index + 1] != [record]
        ]
        assert lost == []
    assert len(confirmed) >= 20 * rounds


@pytest.mark.parametrize(("durability", "threads"), [("fsync", 1), ("fsync", 8), ("os", 4)])
def test_R58_kill_9_loses_nothing_confirmed(
    tmp_path: Path, durability: Durability, threads: int
) -> None:
    kill_rounds(tmp_path / "log", durability, ROUNDS, threads)


def test_R58_control_level_memory_loses_confirmed_records(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        kill_rounds(tmp_path / "log", "memory", 10, 2)


@pytest.mark.soak
def test_R58_soak_two_thousand_kills(tmp_path: Path) -> None:
    kill_rounds(tmp_path / "log", "fsync", 2000, 4)


def test_R75_readers_in_another_process_follow_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with writer(path, "fsync", 3) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with Log.open(path, readonly=True) as reader:
            tailer = reader.tailer()
            seen = []
            while len(seen) < 2000:
                seen += tailer.wait(timeout=30)
            assert [record.index for record in seen] == list(range(len(seen)))
            for record in seen:
                name, number = map(int, record.data.split(b":")[:2])
                assert record.data == record_of(name, number)
            assert reader.get(1234) == seen[1234].data
        with pytest.raises(LogLockedError) as caught:
            Log.open(path)
        assert caught.value.pid == process.pid


def test_R75_a_reader_sees_rolls_drops_closes_and_reopenings(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = Log.open(path, segment_bytes=8192)
    log.append(b"0")
    reader = Log.open(path, readonly=True)
    tailer = reader.tailer()
    written = [b"0"]
    for number in range(1, 60):
        record = b"%d" % number * 500
        log.append(record)
        written.append(record)
        if number % 10 == 0:
            log.close()
            log = Log.open(path, segment_bytes=8192)
    assert [record.data for record in tailer.read()] == written
    log.truncate_before(30)
    reader.refresh()
    log.append(b"last")
    assert [record.data for record in tailer.read()] == [b"last"]
    assert reader.first_index == log.first_index > 0
    assert tailer.to_start().read(1)[0].index == log.first_index
    log.close()


def test_R75_a_reader_never_sees_what_is_not_confirmed(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        log.append(b"confirmed")
        log.submit([b"submitted"])
        with Log.open(tmp_path / "log", readonly=True) as reader:
            assert contents(reader) == [b"confirmed"]
            log.flush()
            reader.refresh()
            assert contents(reader) == [b"confirmed", b"submitted"]


def test_R75_a_reader_of_no_log_says_so(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no log"):
        Log.open(tmp_path / "nothing", readonly=True)


def test_R75_a_reader_peeks_at_what_was_written_after_it_was_opened(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        log.append(b"0")
        with Log.open(tmp_path / "log", readonly=True) as reader:
            tailer = reader.tailer().to_end()
            assert tailer.peek() is None
            log.append(b"1")
            found = tailer.peek()
            assert found is not None
            assert (found.index, found.data) == (1, b"1")


def test_R75_a_reader_searches_by_time_while_segments_are_dropped(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", segment_bytes=8192) as log:
        for number in range(60):
            log.append(b"%d" % number * 500)
        with Log.open(tmp_path / "log", readonly=True) as reader:
            log.truncate_before(30)
            assert reader.index_at_time(0) == log.first_index > 0


def test_R75_a_reader_sees_commits_made_after_it_was_opened(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        log.append_committed([b"a"], b"first")
        with Log.open(tmp_path / "log", readonly=True) as reader:
            log.append_committed([b"b"], b"second")
            log.append_committed([], b"third")
            assert [each.meta for each in reader.commits()] == [b"third", b"second", b"first"]


def test_R75_a_reader_sees_commits_in_segments_begun_after_it_was_opened(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", segment_bytes=8192, prepare_ahead=False) as log:
        log.append_committed([b"x" * 1000], b"0")
        with Log.open(tmp_path / "log", readonly=True) as reader:
            for number in range(1, 20):
                log.append_committed([b"x" * 1000], b"%d" % number)
            assert [each.meta for each in reader.commits()] == [b"%d" % i for i in range(20)][::-1]
            log.truncate_before(15)  # drops the segment that the reader knew as the last
            assert next(reader.commits()).meta == b"19"


def test_R75_tailers_of_a_reader_skip_what_was_dropped_meanwhile(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", segment_bytes=8192, prepare_ahead=False) as log:
        for number in range(60):
            log.append(b"%d" % number * 300)
        with Log.open(tmp_path / "log", readonly=True) as reader:
            forward, backward = reader.tailer(), reader.tailer().to_end().backward()
            assert forward.read(1)[0].index == 0
            log.truncate_before(50)
            kept = list(range(log.first_index, 60))
            with pytest.raises(LogIndexError, match=f"contains {log.first_index} up to 60"):
                reader.get(30)
            assert [record.index for record in forward][-len(kept) :] == kept
            assert [record.index for record in reader.tailer()] == kept
            assert [record.index for record in backward] == kept[::-1]


def test_R75_a_reader_opens_while_the_last_records_of_a_segment_are_not_written() -> None:
    disk = new_disk()
    log = open_log(disk)
    log.append_committed([b"a"], b"step")
    log.submit([b"b"])
    with log._writer.lock:
        log._writer._allocate(12_000)  # begins the next segment
    with Log.open(PATH, disk=disk, readonly=True) as reader:
        assert contents(reader) == [b"a"]
        assert [commit.meta for commit in reader.commits()] == [b"step"]
        log.flush()
        reader.refresh()
        assert contents(reader) == [b"a", b"b"]


def filled_log(disk: SimDisk) -> Log:
    log = open_log(disk, segment_bytes=8192)
    for number in range(60):
        log.append(b"%d" % number * 300)
    return log


def test_R75_tailers_of_a_reader_skip_a_segment_that_the_writer_is_about_to_rename() -> None:
    disk = new_disk()
    first, second, *_ = filled_log(disk)._catalog.segments
    with Log.open(PATH, disk=disk, readonly=True) as reader:
        disk.lock(disk.open(f"{PATH}/{first.name}", write=True), exclusive=True)
        assert [record.index for record in reader.tailer()] == list(range(second.base_index, 60))


def test_R75_a_reader_opens_while_a_segment_is_recycled(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_disk()
    log = filled_log(disk)

    def recycled(directory: LogDirectory, name: str) -> None:
        monkeypatch.undo()
        log.truncate_before(10)  # while the reader has the file open, before it reads the header

    monkeypatch.setattr(log_reader, "load_segment", recycled)
    with Log.open(PATH, disk=disk, readonly=True) as reader:
        assert contents(reader) == contents(log)
        assert reader.first_index == log.first_index > 0


def test_R75_a_file_that_was_just_truncated_can_be_mapped(tmp_path: Path) -> None:
    disk = RealDisk()
    handle = disk.open(f"{tmp_path}/segment", write=True, create=True)
    disk.truncate(handle, 5000)
    assert len(disk.map(handle, 8192)) == 5000
    disk.truncate(handle, 0)
    assert len(disk.map(handle, 8192)) == 0
    disk.close(handle)
