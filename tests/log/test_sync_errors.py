"""R58: a failed write or sync poisons the log; no confirmation after it, and never a retry."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from pillarbox.log import Log, LogCorruptError, LogFullError, LogPoisonedError
from pillarbox.log.segment_writer import SegmentWriter
from pillarbox.log.writer import Writer
from pillarbox.testing.disk import SimDisk
from tests.log.support import contents, new_disk, open_log

ATTEMPTS = 210


def fail_at(operation: str, k: int, error: int = errno.EIO) -> Callable[[str, str], None]:
    """Fail the k-th call of an operation on a segment file, once."""
    calls = 0

    def before(name: str, path: str) -> None:
        nonlocal calls
        if name == operation and not path.endswith("lock"):
            calls += 1
            if calls == k:
                raise OSError(error, "injected")

    return before


def append_until_refused(log: Log) -> tuple[list[bytes], list[int]]:
    """Append many times, whatever happens; what was confirmed, and at which attempts."""
    confirmed, when = [], []
    for attempt in range(ATTEMPTS):
        record = b"%d" % attempt * 20
        try:
            log.append(record)
        except LogPoisonedError:
            continue
        confirmed.append(record)
        when.append(attempt)
    return confirmed, when


def lost_after_crash(disk: SimDisk, confirmed: list[bytes], seed: int) -> bool:
    try:
        after = open_log(disk.crash(random.Random(seed).randrange))
        return contents(after)[: len(confirmed)] != confirmed
    except LogCorruptError:
        return True


@pytest.mark.parametrize("operation", ["fdatasync", "pwrite"])
def test_R58_an_error_at_call_k_poisons_for_good(operation: str) -> None:
    poisoned = 0
    for k in range(1, 201):
        disk = new_disk(before=fail_at(operation, k))
        log = open_log(disk)
        confirmed, when = append_until_refused(log)
        assert when == list(range(len(when))), "a confirmation came after the error"
        assert contents(log) == confirmed, "what was confirmed stays readable"
        poisoned += log.poisoned is not None
        with pytest.raises(LogPoisonedError, match="injected"):
            log.submit([b"more"])
        log.close()
        for seed in range(5):
            assert not lost_after_crash(disk, confirmed, seed), k
    assert poisoned == 200


def test_R58_control_a_retried_sync_confirms_what_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Writer._sync

    def retry(self: Writer, writer: SegmentWriter) -> None:
        try:
            original(self, writer)
        except LogPoisonedError:
            self.poisoned = self.stopped = None
            writer.sync()
            self.synced_index = self.end_index = writer.segment.end_index

    monkeypatch.setattr(Writer, "_sync", retry)
    lost = 0
    for k in range(5, 60):
        disk = new_disk(before=fail_at("fdatasync", k))
        log = open_log(disk)
        confirmed, _ = append_until_refused(log)
        lost += sum(lost_after_crash(disk, confirmed, seed) for seed in range(5))
    assert lost > 0


def test_R58_every_ticket_behind_the_error_fails() -> None:
    disk = new_disk()
    log = open_log(disk)
    log.append(b"safe")
    disk.before = fail_at("fdatasync", 1)
    tickets = [log.submit([b"%d" % i]) for i in range(5)]
    told: list[object] = []
    for ticket in tickets:
        with pytest.raises(LogPoisonedError):
            ticket.wait()
        ticket.add_done_callback(lambda t: told.append(t.exception()))
    assert [type(each) for each in told] == [LogPoisonedError] * 5
    assert contents(log) == [b"safe"]
    log.close()


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_R58_short_writes_and_interrupts_lose_nothing(durability: str) -> None:
    chance = random.Random(1)

    def interrupt(name: str, _path: str) -> None:
        if name in ("pwrite", "fdatasync") and chance.random() < 0.3:
            raise InterruptedError(errno.EINTR, "interrupted")

    disk = new_disk(before=interrupt, short_write=lambda n: chance.randint(1, n))
    log = open_log(disk, durability=durability)
    records = [chance.randbytes(200) for _ in range(200)]
    assert [log.append(record) for record in records] == list(range(200))
    log.close()
    assert contents(open_log(disk.kill())) == records


def test_R58_a_write_that_makes_no_progress_poisons() -> None:
    disk = new_disk()
    log = open_log(disk)
    log.append(b"safe")
    disk.short_write = lambda _: 0
    with pytest.raises(LogPoisonedError):
        log.append(b"stuck")
    assert contents(log) == [b"safe"]


def test_R58_a_failed_seal_at_close_is_told() -> None:
    disk = new_disk()
    log = open_log(disk)
    log.append(b"safe")
    disk.before = fail_at("fdatasync", 1)
    with pytest.raises(LogPoisonedError):
        log.close()
    assert contents(open_log(disk.kill())) == [b"safe"]


def test_R58_an_error_while_making_a_segment_poisons_but_no_space_does_not() -> None:
    disk = new_disk()
    log = open_log(disk, segment_bytes=8192)
    log.append(b"x" * 2500)
    disk.before = fail_at("allocate", 1, errno.ENOSPC)
    with pytest.raises(LogFullError):
        log.append(b"y" * 2500)
    assert log.append(b"z" * 2500) == 1
    disk.before = fail_at("rename", 1)
    with pytest.raises(LogPoisonedError):
        log.append(b"y" * 2500)


def test_R58_a_close_that_fails_closes_each_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(new_disk())
    log.append(b"a")
    first = log._writer._active
    with log._writer.lock:
        second = log._writer._allocate(12_000)  # no longer fits in the first segment
    assert first is not None
    assert first is not second
    closed: list[SegmentWriter] = []
    close, seal = SegmentWriter.close, SegmentWriter.seal

    def count(writer: SegmentWriter) -> None:
        closed.append(writer)
        close(writer)

    def fail_second(writer: SegmentWriter, synced_index: int) -> None:
        if writer is second:
            raise OSError(errno.EIO, "injected")
        seal(writer, synced_index)

    monkeypatch.setattr(SegmentWriter, "close", count)
    monkeypatch.setattr(SegmentWriter, "seal", fail_second)
    with pytest.raises(LogPoisonedError):
        log.close()
    assert closed == [first, second]
