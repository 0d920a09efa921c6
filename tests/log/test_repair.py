"""R72: damage in any segment is found, refused where it must be, and repaired with a list."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from pillarbox.log import LogCorruptError, LogError, LogLockedError, repair, verify
from pillarbox.log.directory import is_segment_name
from pillarbox.log.frame_reader import Block
from pillarbox.log.layout import BLOCK_BYTES
from tests.log.support import PATH, contents, new_disk, on_disk, open_log

RECORDS = [random.Random(i).randbytes(600) for i in range(25)]


def closed_files() -> dict[str, bytes]:
    """A closed log of several segments."""
    disk = new_disk()
    log = open_log(disk, segment_bytes=8192)
    for record in RECORDS:
        log.append(record)
    log.close()
    files = disk.files()
    return {path: files[path] for path in sorted(files) if is_segment_name(path[-24:])}


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)


def saved_and_lost(files: dict[str, bytes]) -> tuple[list[bytes], list[int]]:
    """What a repaired log holds, and what the repair said is lost."""
    disk = on_disk(files)
    report = repair(PATH, disk=disk)
    assert verify(PATH, disk=disk).healthy
    assert report.lost_before == []
    log = open_log(disk, check="all")
    assert log.append(b"next") == len(RECORDS)
    found = contents(log)
    assert found[-1] == b"next"
    return found[:-1], [i for d in report.damage for i in range(d.first_index, d.end_index)]


def test_R72_a_healthy_log_has_nothing_to_report() -> None:
    files = closed_files()
    assert len(files) > 3
    disk = on_disk(files)
    report = verify(PATH, disk=disk)
    assert report.healthy
    assert (report.segments, report.records) == (len(files), len(RECORDS))
    assert repair(PATH, disk=disk).kept_aside == []
    assert {path: disk.files()[path] for path in files} == files


def test_R72_every_sampled_flip_in_any_segment_is_found_and_costs_one_record_at_most() -> None:
    files = closed_files()
    for path, data in files.items():
        for bit in range(0, len(data) * 8, 101):
            hurt = files | {path: flipped(data, bit)}
            try:
                log = open_log(on_disk(hurt), check="all")
                assert not log.recovery.clean
                assert contents(log) == RECORDS, "only a footer was hurt"
            except LogError:
                pass
            if bit % 7 == 0:
                saved, lost = saved_and_lost(hurt)
                assert len(lost) <= 1
                assert saved == [r for i, r in enumerate(RECORDS) if i not in lost]


def test_R72_reading_meets_damage_that_opening_did_not_look_for() -> None:
    files = closed_files()
    path = list(files)[1]
    place = files[path].find(RECORDS[7])
    assert place > 0
    log = open_log(on_disk(files | {path: flipped(files[path], place * 8)}))
    assert log.get(0) == RECORDS[0]
    with pytest.raises(LogCorruptError):
        contents(log)


def test_R72_a_missing_segment_refuses_to_open_and_is_listed() -> None:
    files = closed_files()
    paths = list(files)
    del files[paths[1]]
    with pytest.raises(LogCorruptError, match="missing"):
        open_log(on_disk(files))
    saved, lost = saved_and_lost(files)
    assert lost
    assert saved == [r for i, r in enumerate(RECORDS) if i not in lost]


def test_R72_a_cut_segment_in_the_middle_refuses_to_open_and_is_listed() -> None:
    whole = closed_files()
    path = list(whole)[1]
    for cut in range(0, len(whole[path]), 97):
        files = whole | {path: whole[path][:cut]}
        try:
            log = open_log(on_disk(files), check="all")
            assert not log.recovery.clean
            assert contents(log) == RECORDS, "only the footer was cut"
        except LogCorruptError:
            pass
        saved, lost = saved_and_lost(files)
        assert saved == [r for i, r in enumerate(RECORDS) if i not in lost]


def test_R72_repair_saves_the_records_of_a_segment_whose_header_is_wiped_in_part() -> None:
    files = closed_files()
    path = list(files)[1]
    data = files[path]
    saved, lost = saved_and_lost(files | {path: data[:100] + bytes(3996) + data[4096:]})
    assert (saved, lost) == (RECORDS, [])
    wiped = files | {path: bytes(4096) + data[4096:]}
    assert saved_and_lost(wiped) == (RECORDS, []), "the next segment tells what it was"
    following = list(files)[2]
    wiped[following] = bytes(4096) + files[following][4096:]
    saved, lost = saved_and_lost(wiped)
    assert lost
    assert saved == [r for i, r in enumerate(RECORDS) if i not in lost]


def test_R72_tailers_skip_lost_records_in_both_directions() -> None:
    files = closed_files()
    del files[list(files)[2]]
    disk = on_disk(files)
    repair(PATH, disk=disk)
    log = open_log(disk)
    forward = [tailer.read(1)[0] for tailer in [log.tailer()] for _ in range(len(contents(log)))]
    assert len(forward) < len(RECORDS)
    tailer = log.tailer().to_end().backward()
    assert [tailer.read(1)[0] for _ in forward] == forward[::-1]
    assert tailer.read(1) == []


def test_R72_a_backward_tailer_skips_lost_records_in_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = new_disk()
    log = open_log(disk, segment_bytes=8192)
    for _ in range(30):
        log.append_many([b"r"] * 100)
    log.close()
    names = [segment.name for segment in log._catalog.segments]
    assert len(names) > 2
    disk.unlink(f"{PATH}/{names[1]}")
    repair(PATH, disk=disk)
    log = open_log(disk)
    end = log._catalog.segments[2].base_index
    tailer = log.tailer().to_index(end).backward()
    reads = []
    frames = log.frames
    monkeypatch.setattr(log, "frames", lambda *of: reads.append(of) or frames(*of))
    (record,) = tailer.read(1)
    assert record.index == log._catalog.segments[1].base_index - 1 < end - 100
    assert len(reads) == 2


def test_R73_a_backward_tailer_skips_lost_records_that_are_dropped_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = closed_files()
    del files[list(files)[2]]
    disk = on_disk(files)
    repair(PATH, disk=disk)
    log = open_log(disk)
    end = log._catalog.segments[2].end_index
    tailer = log.tailer().to_index(end).backward()
    reads, blocks = [], log.blocks

    def drop(*of: int) -> Iterator[Block]:
        reads.append(of)
        if len(reads) == 2:
            log.truncate_before(end)
        return blocks(*of)

    monkeypatch.setattr(log, "blocks", drop)
    assert tailer.read(1) == []
    assert log.first_index == end


def test_R72_reading_damage_in_the_open_segment_ends() -> None:
    disk = new_disk()
    log = open_log(disk, segment_bytes=16384 + 33)
    for record in RECORDS[:5]:
        log.append(record)
    handle = disk.open(f"{PATH}/{log._catalog.segments[0].name}", write=True)
    frame = BLOCK_BYTES + disk.pread(handle, 8192, BLOCK_BYTES).find(RECORDS[3]) - 72
    disk.pwrite(handle, [bytes(disk.size(handle) - frame)], frame)
    with pytest.raises(LogCorruptError):
        log.get(3)


def test_R72_repair_is_for_the_one_writer_only() -> None:
    disk = new_disk()
    log = open_log(disk)
    log.append(b"x")
    with pytest.raises(LogLockedError):
        repair(PATH, disk=disk)
    assert verify(PATH, disk=disk).healthy


def test_R72_verify_tells_a_torn_tail_from_damage() -> None:
    disk = new_disk()
    log = open_log(disk)
    for record in RECORDS[:5]:
        log.append(record)
    files = disk.kill().files()
    path = next(path for path in files if path.endswith(".seg"))
    place = files[path].find(RECORDS[4])
    report = verify(PATH, disk=on_disk({path: flipped(files[path], place * 8)}))
    assert report.healthy
    assert report.torn_tail is not None
    assert report.records == 4
