"""R71: tailers go forward and backward, to start, end, index and time; they park and wake."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox.log import Log, LogCorruptError, LogError, alts
from tests.log.support import contents, new_disk, open_log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log.open(tmp_path / "log", segment_bytes=8192) as opened:
        for number in range(200):
            opened.append_many([b"%d-%d" % (number, part) * 5 for part in range(3)])
        yield opened


def test_R71_forward_reads_everything_once(log: Log) -> None:
    tailer = log.tailer()
    records = list(tailer)
    assert [record.index for record in records] == list(range(600))
    assert [record.data for record in records] == contents(log)
    assert tailer.read() == []
    log.append(b"new")
    assert [record.data for record in tailer.read()] == [b"new"]


def test_R71_small_reads_and_large_ones_see_the_same(log: Log) -> None:
    one_by_one = log.tailer()
    found = [one_by_one.read(1)[0] for _ in range(600)]
    assert found == log.tailer().read(10_000)


def test_R71_backward_mirrors_forward(log: Log) -> None:
    forward = list(log.tailer())
    backward = list(log.tailer().to_end().backward())
    assert backward == forward[::-1]


def test_R71_turning_round_reads_the_same_records(log: Log) -> None:
    tailer = log.tailer().to_index(300)
    on = tailer.read(10)
    back = tailer.backward().read(10)
    assert back == on[::-1]
    assert tailer.forward().read(10) == on


def test_R71_to_start_end_and_index(log: Log) -> None:
    tailer = log.tailer()
    assert tailer.to_index(123).read(1)[0].index == 123
    assert tailer.to_end().read(1) == []
    assert tailer.to_start().read(1)[0].index == 0
    assert tailer.to_index(10_000).index == 600


def test_R71_to_time_finds_the_first_record_at_or_after_it(log: Log) -> None:
    records = list(log.tailer())
    for record in (records[0], records[299], records[450], records[-1]):
        first = next(each for each in records if each.time_ns >= record.time_ns)
        assert log.tailer().to_time(record.time_ns).read(1) == [first]
    assert log.tailer().to_time(records[-1].time_ns + 1).index == 600
    assert log.tailer().to_time(0).index == 0


def test_R71_peek_does_not_move(log: Log) -> None:
    tailer = log.tailer().to_index(5)
    first = tailer.peek()
    assert first is not None
    assert first.index == 5
    assert tailer.peek() == first
    assert tailer.read(1) == [first]
    assert tailer.to_end().peek() is None


def test_R71_named_tailers_start_where_they_were_saved(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        log.append_many([b"a", b"b", b"c"])
        tailer = log.tailer("reports")
        tailer.read(2)
        tailer.save()
        tailer.read(1)
    with Log.open(tmp_path / "log") as log:
        assert [record.data for record in log.tailer("reports").read()] == [b"c"]
        log.delete_tailer("reports")
        assert log.tailer("reports").index == 0
        with pytest.raises(LogError, match="letters"):
            log.tailer("../escape")


def test_R71_a_damaged_position_is_an_error_not_a_wrong_place() -> None:
    disk = new_disk()
    log = open_log(disk)
    log.append_many([b"a"] * 20)
    log.tailer("reports").to_index(12).save()
    files = disk.files()
    path = next(path for path in files if "reports" in path)
    handle = disk.open(path, write=True)
    disk.pwrite(handle, [b"2"], 0)
    with pytest.raises(LogCorruptError, match="reports"):
        log.tailer("reports")


def test_R71_wait_returns_as_soon_as_a_record_is_confirmed(log: Log) -> None:
    tailer = log.tailer().to_end()
    found: list[bytes] = []
    waiting = threading.Thread(target=lambda: found.extend(r.data for r in tailer.wait(timeout=30)))
    waiting.start()
    log.append(b"wake up")
    waiting.join()
    assert found == [b"wake up"]


def test_R71_wait_times_out_empty(log: Log) -> None:
    assert log.tailer().to_end().wait(timeout=0.01) == []


def test_R71_unblock_ends_a_wait_from_another_thread(log: Log) -> None:
    tailer = log.tailer().to_end()
    result: list[object] = []
    waiting = threading.Thread(target=lambda: result.append(tailer.wait()))
    waiting.start()
    tailer.unblock()
    waiting.join(30)
    assert result == [[]]
    log.append(b"later")
    assert [record.data for record in tailer.wait()] == [b"later"]


def test_R71_a_parked_tailer_does_not_poll(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    tailer = log.tailer().to_end()
    original = tailer.has_data

    def counted() -> bool:
        nonlocal looks
        looks += 1
        return original()

    monkeypatch.setattr(tailer, "has_data", counted)
    started = time.monotonic()
    assert tailer.wait(timeout=0.2) == []
    assert time.monotonic() - started >= 0.2
    assert looks <= 2


def test_R71_alts_returns_the_first_with_data(tmp_path: Path) -> None:
    with Log.open(tmp_path / "a") as a, Log.open(tmp_path / "b") as b:
        tailers = [a.tailer(), b.tailer()]
        assert alts(tailers, timeout=0) is None
        b.append(b"from b")
        got = alts(tailers)
        assert got is not None
        assert got[0] is tailers[1]
        assert [record.data for record in got[1]] == [b"from b"]
        found: list[object] = []
        waiting = threading.Thread(target=lambda: found.append(alts(tailers)))
        waiting.start()
        a.append(b"from a")
        waiting.join()
        assert found[0][0] is tailers[0]  # type: ignore[index]


def test_R71_a_tailer_sees_only_what_is_confirmed() -> None:
    log = open_log(new_disk())
    log.append(b"confirmed")
    ticket = log.submit([b"not yet"])
    tailer = log.tailer()
    assert [record.data for record in tailer.read()] == [b"confirmed"]
    ticket.wait()
    assert [record.data for record in tailer.read()] == [b"not yet"]
