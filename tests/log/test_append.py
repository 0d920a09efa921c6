"""R70: append-only, addressed by index, immutable, on disk; confirmed as durable as asked."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from pathlib import Path

import pytest

from pillarbox.log import (
    Durability,
    Log,
    LogClosedError,
    LogError,
    LogIndexError,
    LogLockedError,
    RecordTooLargeError,
    Ticket,
)
from tests.log.support import contents, new_disk, open_log

LEVELS: list[Durability] = ["fsync", "os", "memory"]


@pytest.mark.parametrize("durability", LEVELS)
def test_R70_records_come_back_by_index_and_in_order(
    tmp_path: Path, durability: Durability
) -> None:
    records = [b"%d" % i * (i % 50) for i in range(500)]
    with Log.open(tmp_path / "log", durability=durability, segment_bytes=8192) as log:
        assert [log.append(record) for record in records[:100]] == list(range(100))
        assert log.append_many(records[100:]) == 100
        log.flush()
        assert log.end_index == log.next_index == 500
        assert [log.get(i) for i in range(0, 500, 7)] == records[::7]
        assert contents(log) == records
    with Log.open(tmp_path / "log") as again:
        assert again.recovery.clean
        assert contents(again) == records
        assert again.append(b"next") == 500


def test_R70_every_record_is_found_by_its_index_live_sealed_and_reopened(tmp_path: Path) -> None:
    chance = random.Random(5)
    written: list[bytes] = []

    def check(log: Log) -> None:
        for index in chance.sample(range(len(written)), len(written)):
            assert log.get(index) == written[index]

    with Log.open(tmp_path / "log", segment_bytes=1 << 18, durability="os") as log:
        for _ in range(400):
            size = chance.choice([0, 10, 300, 5000, 60_000])
            batch = [chance.randbytes(size) for _ in range(chance.choice([1, 1, 2, 9]))]
            log.append_many(batch)
            written += batch
        check(log)
    with Log.open(tmp_path / "log") as log, Log.open(tmp_path / "log", readonly=True) as reader:
        check(log)
        log.append(b"one more")
        written.append(b"one more")
        check(log)
        reader.refresh()
        assert [reader.get(index) for index in range(len(written))] == written


def test_R70_the_next_segment_is_prepared_in_the_background(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", segment_bytes=1 << 21, durability="os") as log:
        for _ in range(3000):
            log.append(b"x" * 3000)
        assert len(list((tmp_path / "log").glob("*.seg"))) >= 4
        assert log.get(2999) == b"x" * 3000
        log._writer.spares._join()
        spares = list((tmp_path / "log").glob("spare-*"))
        assert len(spares) <= 2
        assert all(spare.stat().st_size == 1 << 21 for spare in spares)


def test_R70_indices_grow_by_one_under_many_threads(tmp_path: Path) -> None:
    given: dict[int, bytes] = {}
    with Log.open(tmp_path / "log", segment_bytes=65536) as log:

        def produce(name: int) -> None:
            for number in range(50):
                record = b"%d-%d" % (name, number)
                given[log.append(record)] = record

        threads = [threading.Thread(target=produce, args=(name,)) for name in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(given) == list(range(1000))
        assert contents(log) == [given[index] for index in range(1000)]
        assert sum(1 for _ in log.frames()) < 1000, "some were committed together"


def test_R70_submit_gives_indices_in_call_order_and_one_group_is_one_frame() -> None:
    log = open_log(new_disk())
    tickets = [log.submit([b"a", b"b"]) for _ in range(5)]
    assert [ticket.first_index for ticket in tickets] == [0, 2, 4, 6, 8]
    assert not any(ticket.done() for ticket in tickets)
    assert log.end_index == 0
    assert tickets[-1].wait() == 8
    assert all(ticket.done() for ticket in tickets)
    assert [len(frame.records) for frame in log.frames()] == [10]


def test_R70_lazy_records_go_with_the_next_group() -> None:
    log = open_log(new_disk())
    lazy = log.submit([b"lazy"], lazy=True)
    assert log.append(b"now") == 1
    assert lazy.done()
    assert contents(log) == [b"lazy", b"now"]
    log.close()


def test_R70_lazy_records_are_written_though_nobody_waits(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        log.submit([b"lazy"], lazy=True)
        assert [r.data for r in log.tailer().wait(timeout=30)] == [b"lazy"]


def test_R70_callbacks_are_called_in_index_order(tmp_path: Path) -> None:
    told: list[int] = []
    done = threading.Event()
    with Log.open(tmp_path / "log") as log:
        for number in range(100):
            ticket = log.submit([b"%d" % number])
            ticket.add_done_callback(lambda t: told.append(t.first_index))
        ticket.add_done_callback(lambda _: done.set())
        assert done.wait(30)
        assert log.end_index == 100
    assert told == sorted(told)
    assert len(told) == 100


def test_R70_a_callback_that_fails_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Log.open(tmp_path / "log") as log:
        ticket = log.submit([b"a"])
        ticket.add_done_callback(lambda _: 1 / 0)
        assert log.append(b"b") == 1
        log.flush()
    assert "done-callback" in caplog.text


def test_R70_tickets_can_be_awaited(tmp_path: Path) -> None:
    async def produce(log: Log, number: int) -> int:
        return await log.submit([b"%d" % number])

    async def main() -> list[int]:
        with Log.open(tmp_path / "log") as log:
            return await asyncio.gather(*(produce(log, number) for number in range(200)))

    assert asyncio.run(main()) == list(range(200))


def slow_leader() -> tuple[Log, threading.Thread, threading.Event]:
    """A log with one record, and a thread whose sync of the next one lasts until the event."""
    disk = new_disk()
    log = open_log(disk)
    log.append(b"first")
    in_sync, go_on = threading.Event(), threading.Event()

    def before(operation: str, _path: str) -> None:
        if operation == "fdatasync":
            in_sync.set()
            go_on.wait(30)

    disk.before = before
    leader = threading.Thread(target=log.append, args=(b"slow",))
    leader.start()
    assert in_sync.wait(30)
    return log, leader, go_on


def test_R70_waiting_times_out_while_another_leads() -> None:
    log, leader, go_on = slow_leader()
    ticket = log.submit([b"behind"])
    with pytest.raises(TimeoutError):
        ticket.wait(timeout=0)
    go_on.set()
    leader.join()
    assert ticket.wait() == 2


def test_R70_groups_form_while_a_leader_syncs() -> None:
    disk = new_disk()
    log = open_log(disk)
    log.append(b"first")
    in_sync, go_on = threading.Event(), threading.Event()
    syncs = 0

    def before(operation: str, _path: str) -> None:
        nonlocal syncs
        if operation == "fdatasync":
            syncs += 1
            in_sync.set()
            go_on.wait(30)

    disk.before = before
    threads = [threading.Thread(target=log.append, args=(b"leader",))]
    threads[0].start()
    assert in_sync.wait(30)
    tickets = [log.submit([b"%d" % i]) for i in range(50)]
    threads += [threading.Thread(target=ticket.wait) for ticket in tickets]
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert syncs == 2
    assert [len(frame.records) for frame in log.frames()] == [1, 1, 50]


def test_R70_closing_waits_for_the_append_under_way() -> None:
    log, leader, go_on = slow_leader()
    threads = [leader, threading.Thread(target=log.close)]
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join()
    again = open_log(log._directory.disk.kill())
    assert again.recovery.clean
    assert contents(again) == [b"first", b"slow"]


def test_R70_every_way_to_submit_at_once_loses_nothing(tmp_path: Path) -> None:
    """Lone appends, tickets, callbacks, awaits, lazy records and flushes, all in one log."""
    given: dict[int, bytes] = {}
    called = threading.Semaphore(0)

    def note(ticket: Ticket, record: bytes) -> None:
        given[ticket.first_index] = record
        called.release()

    def produce(log: Log, name: int) -> None:
        for number in range(60):
            record = b"%d-%d" % (name, number) * 20
            if number % 4 == 0:
                given[log.append(record)] = record
            elif number % 4 == 1:
                ticket = log.submit([record], lazy=name % 2 == 0)
                ticket.add_done_callback(lambda t, r=record: note(t, r))  # type: ignore[misc]
            elif number % 4 == 2:
                given[log.submit([record]).wait()] = record
            else:
                log.flush()

    async def produce_async(log: Log) -> None:
        for number in range(60):
            record = b"async-%d" % number
            given[await log.submit([record])] = record

    with Log.open(tmp_path / "log", segment_bytes=16384) as log:
        threads = [threading.Thread(target=produce, args=(log, name)) for name in range(8)]
        threads.append(threading.Thread(target=lambda: asyncio.run(produce_async(log))))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(8 * 15):
            assert called.acquire(timeout=30)
        assert sorted(given) == list(range(8 * 45 + 60))
        assert contents(log) == [given[index] for index in sorted(given)]


def test_R70_a_batch_is_all_or_nothing_and_larger_than_a_segment_if_need_be(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", segment_bytes=8192) as log:
        log.append(b"small")
        log.append_many([b"x" * 5000] * 10)
        log.append(b"small again")
    with Log.open(tmp_path / "log") as again:
        assert contents(again) == [b"small", *[b"x" * 5000] * 10, b"small again"]


def test_R70_a_batch_beyond_every_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pillarbox.log.writer.FRAME_BYTES_MAX", 1000)
    log = open_log(new_disk())
    with pytest.raises(RecordTooLargeError, match="split it"):
        log.append(b"x" * 1000)
    assert log.append(b"x") == 0


def test_R70_an_index_outside_the_log_is_an_error() -> None:
    log = open_log(new_disk())
    log.append(b"only")
    for index in (-1, 1, 100):
        with pytest.raises(LogIndexError):
            log.get(index)


def test_R70_a_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log"), pytest.raises(LogLockedError, match="readonly") as caught:
        Log.open(tmp_path / "log")
    assert caught.value.pid == os.getpid()
    Log.open(tmp_path / "log").close()


def test_R70_a_closed_log_takes_nothing_and_closes_twice(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    log.append(b"x")
    log.close()
    log.close()
    with pytest.raises(LogClosedError):
        log.append(b"y")


def test_R70_wrong_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="durability"):
        Log.open(tmp_path / "log", durability="none")  # type: ignore[call-overload]
    with pytest.raises(LogError, match="segment_bytes"):
        Log.open(tmp_path / "log", segment_bytes=10)
    with pytest.raises(LogError, match="nothing to submit"):
        open_log(new_disk()).submit([])


def test_R70_time_never_goes_back_across_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_disk()
    log = open_log(disk)
    log.append(b"a")
    before = log.last_time_ns
    log.close()
    monkeypatch.setattr("time.time_ns", lambda: 1000)
    log = open_log(disk)
    assert log.last_time_ns == before
    log.append(b"b")
    assert log.last_time_ns == before


def test_R58_level_os_survives_a_kill_and_level_memory_a_close() -> None:
    disk = new_disk()
    log = open_log(disk, durability="os")
    log.append_many([b"a", b"b"])
    assert contents(open_log(disk.kill())) == [b"a", b"b"]
    disk = new_disk()
    log = open_log(disk, durability="memory")
    ticket = log.submit([b"a"])
    assert ticket.done()
    log.close()
    assert contents(open_log(disk.kill())) == [b"a"]


def test_R58_level_fsync_syncs_once_for_each_append_of_a_lone_writer() -> None:
    disk = new_disk()
    log = open_log(disk)
    log.append(b"first")
    operations: list[str] = []
    disk.after = operations.append
    for _ in range(10):
        log.append(b"x" * 50)
    assert operations == ["pwrite", "fdatasync"] * 10


def test_R70_a_waiter_that_leaves_breaks_no_chain() -> None:
    """Waiters wake each other, so one whose time is up must not take the others' turn along."""
    log, leader, go_on = slow_leader()
    tickets = [log.submit([b"%d" % number]) for number in range(60)]
    confirmed: list[int] = []

    def wait(number: int) -> None:
        try:
            tickets[number].wait(timeout=0.001 if number % 3 else None)
        except TimeoutError:
            tickets[number].wait()
        confirmed.append(number)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(60)]
    for thread in threads:
        thread.start()
    go_on.set()
    for thread in (leader, *threads):
        thread.join(30)
    assert sorted(confirmed) == list(range(60))
