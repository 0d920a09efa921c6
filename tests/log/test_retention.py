"""R73: retention by age and size drops whole sealed segments that nothing pins."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pillarbox.log import Log, LogIndexError, Retention
from pillarbox.testing.disk import SimDisk
from tests.log.support import PATH, contents, new_disk, open_log


def filled(disk: SimDisk | None = None, **options: object) -> Log:
    log = open_log(disk or new_disk(), segment_bytes=8192, **options)
    for number in range(100):
        log.append(b"%3d" % number * 150)
    return log


def test_R73_size_keeps_the_newest_segments() -> None:
    log = filled(retention=Retention(bytes=30_000))
    assert log.first_index > 50
    assert log.size_bytes <= 30_000 + 8192
    assert contents(log)[-1] == b" 99" * 150
    with pytest.raises(LogIndexError, match="pin"):
        log.get(0)


def test_R73_age_drops_what_is_older() -> None:
    log = filled(retention=Retention(age_seconds=60))
    assert log.first_index == 0
    log.apply_retention(log.last_time_ns + 59 * 10**9)
    assert log.first_index == 0
    log.apply_retention(log.last_time_ns + 61 * 10**9)
    assert log.first_index > 80
    assert log.end_index == 100


def test_R73_named_tailers_and_pins_hold_what_they_need() -> None:
    log = filled()
    log.tailer("reports").to_index(40).save()
    log.pin("pipeline", 20)
    assert log.pins() == {"tailer:reports": 40, "pin:pipeline": 20}
    log.truncate_before(100)
    assert 10 < log.first_index <= 20
    log.unpin("pipeline")
    log.truncate_before(100)
    assert 20 < log.first_index <= 40
    log.delete_tailer("reports")
    log.truncate_before(100)
    assert log.first_index > 80


def test_R73_pins_survive_a_crash_once_set() -> None:
    for seed in range(20):
        disk = new_disk()
        log = filled(disk)
        log.pin("pipeline", 20)
        after = open_log(disk.crash(random.Random(seed).randrange), segment_bytes=8192)
        after.truncate_before(100)
        assert after.first_index <= 20


def test_R73_the_last_segment_is_never_dropped() -> None:
    log = filled()
    log.truncate_before(10**9)
    assert log.first_index < log.end_index == 100
    assert log.append(b"next") == 100


def test_R73_dropped_files_are_recycled_and_show_nothing_of_their_past() -> None:
    disk = new_disk()
    log = filled(disk)
    log.truncate_before(100)
    spares = [name for name in disk.names(PATH) if name.startswith("spare-")]
    assert len(spares) == 2
    for number in range(100, 140):
        log.append(b"%d" % number)
        log.append(b"y" * 700)
    assert not set(spares) & set(disk.names(PATH)), "the spares became segments"
    expected = contents(log)
    assert contents(open_log(disk.kill())) == expected


def test_R73_a_file_that_someone_reads_is_not_recycled(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", segment_bytes=8192, prepare_ahead=False)
    for number in range(60):
        log.append(b"%3d" % number * 150)
    with Log.open(tmp_path / "log", readonly=True) as reader:
        first = reader.tailer().read(1)
        held = reader._reader._files[0]
        log.truncate_before(60)
        for number in range(100):
            log.append(b"%3d" % number * 150)
        block = reader._directory.disk.pread(held.handle, 1000, 4096)
        assert first[0].data in block
    log.close()


def test_R73_compaction_in_a_loop_keeps_the_disk_bounded() -> None:
    disk = new_disk()
    log = open_log(disk, segment_bytes=8192)
    for _ in range(50):
        for _ in range(10):
            log.append(b"z" * 700)
        log.truncate_before(log.end_index)
    assert disk.used_bytes() < 60_000


def test_R73_a_segment_that_is_not_sealed_yet_is_not_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = open_log(new_disk(), segment_bytes=8192)
    monkeypatch.setattr(log._writer.commit, "_call_thread", lambda: None)
    log.append(b"x" * 1_000)
    while len(log._catalog.segments) < 2:  # the next segment has begun, and nothing is written
        log.submit([b"y" * 1_000], lazy=True)

    log.truncate_before(log.next_index)
    log.flush()

    assert log.first_index == 0
    assert log.get(0) == b"x" * 1_000
    assert log.get(log.end_index - 1) == b"y" * 1_000
    log.close()


def test_R73_tailers_skip_what_is_dropped_while_they_read() -> None:
    log = filled()
    tailer = log.tailer()
    assert tailer.read(1)[0].index == 0
    log.truncate_before(80)
    assert [record.index for record in tailer][-1] == 99
    assert tailer.index == 100
