"""R58: on a full disk appends are refused whole, urgent ones go on, and it recovers by itself."""

from __future__ import annotations

import contextlib

import pytest

from pillarbox.log import Log, LogFullError
from pillarbox.testing.disk import SimDisk
from tests.log.support import contents, new_disk, open_log


def fill(log: Log, record: bytes = b"s" * 500) -> int:
    """Append until the disk is full; how many went in."""
    count = 0
    while True:
        try:
            log.append(record)
        except LogFullError:
            return count
        count += 1


def fill_urgently(log: Log) -> None:
    """Use up the reserve too."""
    with contextlib.suppress(LogFullError):
        while True:
            log.submit([b"ack" * 10], urgent=True).wait()


def full_log(capacity_bytes: int = 300_000) -> tuple[SimDisk, Log, int]:
    disk = new_disk(capacity_bytes=capacity_bytes)
    log = open_log(disk, segment_bytes=65536)
    return disk, log, fill(log)


def test_R58_a_full_disk_refuses_an_append_and_changes_nothing() -> None:
    _, log, count = full_log()
    assert count > 100
    before = (log.next_index, log.end_index, log.poisoned)
    with pytest.raises(LogFullError, match="free some disk space"):
        log.append(b"s" * 500)
    assert (log.next_index, log.end_index, log.poisoned) == before == (count, count, None)
    assert len(contents(log)) == count


def test_R58_urgent_records_still_go_in_when_the_disk_is_full() -> None:
    _, log, count = full_log()
    for number in range(20):
        assert log.submit([b"ack" * 10], urgent=True).wait() == count + number
    with pytest.raises(LogFullError):
        log.append(b"s" * 500)


def test_R58_control_without_the_reserve_urgent_records_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pillarbox.log.segment_writer.urgent_bytes", lambda _: 0)
    _, log, _ = full_log()
    fill(log, b"tiny")
    with pytest.raises(LogFullError):
        log.submit([b"ack" * 10], urgent=True)


def test_R58_the_reserve_ends_too_and_says_so() -> None:
    _, log, _ = full_log()
    fill_urgently(log)
    with pytest.raises(LogFullError):
        log.submit([b"ack" * 10], urgent=True)
    assert log.poisoned is None


def test_R58_it_works_again_when_space_returns() -> None:
    disk, log, count = full_log()
    log.submit([b"ack"], urgent=True).wait()
    disk.capacity_bytes = 600_000
    assert log.append(b"s" * 500) == count + 1
    assert fill(log) > 100
    log.close()
    again = open_log(disk.kill())
    assert again.recovery.clean
    assert len(contents(again)) == log.end_index


@pytest.mark.parametrize("urgent", [0, 2_000])
def test_R113_a_part_of_the_reserve_is_freed_to_the_byte(urgent: int) -> None:
    disk = new_disk(capacity_bytes=4_000_000)
    log = open_log(disk)
    log.space.reserve(1_500_000)
    fill(log)
    for _ in range(urgent):  # with these, a part is in the open segment by now
        log.submit([b"ack" * 10], urgent=True).wait()
    left, used = log.space._urgent_left(), disk.used_bytes()
    assert not log.space.release(left - 999_999, 1_000_000), "too much is asked for"
    assert log.space.release(150_000, left - 150_000)
    assert 150_000 <= used - disk.used_bytes() <= 160_000
    assert left - 160_000 <= log.space._urgent_left() <= left - 150_000
    again = open_log(disk.kill())
    assert len(contents(again)) == log.end_index


def test_R73_dropping_old_segments_makes_room() -> None:
    _, log, count = full_log()
    assert log.truncate_before(count) > 0
    assert log.append(b"s" * 500) == count
    assert fill(log) > 100


def test_R58_a_full_log_closes_clean_and_opens_with_everything() -> None:
    disk, log, count = full_log()
    fill_urgently(log)
    end = log.end_index
    log.close()
    again = open_log(disk.kill())
    assert again.recovery.clean
    assert again.end_index == end
    assert len(contents(again)) == end
    assert end > count


def test_R58_every_capacity_either_takes_an_append_or_refuses_it_whole() -> None:
    for capacity in range(4000, 60_000, 500):
        disk = new_disk(capacity_bytes=capacity)
        log = open_log(disk, segment_bytes=16384)
        count = fill(log, b"r" * 700)
        assert log.poisoned is None, capacity
        log.close()
        assert len(contents(open_log(disk.kill()))) == count
