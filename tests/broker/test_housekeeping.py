"""What a broker does by itself goes on, whatever happens, and nothing that it notes only grows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from pillarbox.broker import housekeeping, retention
from pillarbox.broker.local_queue import LocalQueue
from pillarbox.core.queue import Extra, oldest_key
from pillarbox.log.disk import RealDisk
from pillarbox.testing import FakeClock
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.support import Client, World, eventually


def test_R59_retention_goes_on_after_a_round_that_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = world.sqs.create(MessageRetentionPeriod=60)
    failures = count()
    sweep = retention.sweep

    def failing_once(of: LocalQueue) -> Iterator[int]:
        if next(failures) == 0:
            raise RuntimeError("dictionary changed size during iteration")
        return sweep(of)

    monkeypatch.setattr(housekeeping, "sweep", failing_once)
    world.sqs.send(queue, "old")
    name = queue.rpartition("/")[2]
    session = world.url.broker.store.sessions[name]

    def swept() -> bool:
        world.clock.advance(5)  # rounds of housekeeping
        return next(failures) > 1 and session.queue.size == 0

    world.clock.advance(61)
    eventually(swept)


def test_R59_a_broken_certificate_does_not_end_the_rounds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        rounds = 0

        def reload_if_changed(self) -> None:
            self.rounds += 1
            raise OSError("the certificate can't be read")

    broken: Any = Broken()
    monkeypatch.setattr(world.url.broker, "tls", broken)

    def three_rounds() -> bool:
        world.clock.advance(5)
        return bool(broken.rounds >= 3)

    eventually(three_rounds)


def while_groups_come_and_go(
    url: RunningBroker, look: Callable[[LocalQueue], object], seconds: float = 1.0
) -> None:
    """Look again and again while another thread leases and returns messages of many groups."""
    sqs = Client(url)
    queue = url.broker.local.get(sqs.create(fifo=True).rpartition("/")[2])
    stop = threading.Event()

    def come_and_go() -> None:
        for number in count():
            queue.session.send((b"",), extra=partial(Extra, group=f"group {number}"))
            queue.session.acknowledge(queue.session.receive(url.broker, 10, 10**9, 0)[1:])
            if stop.is_set():
                return

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        until = monotonic() + seconds
        while monotonic() < until:
            look(queue)
    finally:
        stop.set()
        thread.join()
        sqs.close()


def test_R51_what_housekeeping_reads_is_read_under_the_lock() -> None:
    def look(queue: LocalQueue) -> None:
        retention.next_look(queue)
        queue.session.look("ready", 10)
        queue.session.counts()

    with running_broker() as url:
        while_groups_come_and_go(url, look)


def test_R51_control_without_the_lock_a_read_meets_a_change() -> None:
    def look(queue: LocalQueue) -> None:
        with suppress(IndexError):  # it met a change, too: a group that was just emptied
            oldest_key(queue.session.queue)

    with running_broker() as url, pytest.raises(RuntimeError, match=r"changed size|mutated"):
        while_groups_come_and_go(url, look, seconds=30)


def test_R51_names_of_dropped_queues_are_forgotten() -> None:
    clock = FakeClock()
    with running_broker(clock=clock, recreate_after_seconds=60) as url, Client(url) as sqs:
        for _ in range(50):
            sqs("DeleteQueue", QueueUrl=sqs.create())
        known = url.broker.local
        assert len(known._dropped_at) == 50

        clock.advance(61)
        sqs("DeleteQueue", QueueUrl=sqs.create())

        assert len(known._dropped_at) == 1
        assert not known._known


def test_R51_a_body_that_is_not_in_memory_is_read_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is asked in the loop's thread for what is in memory, and for nothing else."""
    waits: list[int] = []
    pread = RealDisk.pread

    def cold(self: RealDisk, handle: int, size: int, offset: int, *, wait: bool = True) -> bytes:
        if not wait:
            raise BlockingIOError
        waits.append(threading.get_ident())
        return pread(self, handle, size, offset)

    with running_broker(str(tmp_path), "os") as url, Client(url) as sqs:
        queue = sqs.create()
        for number in range(20):
            sqs.send(queue, str(number))
        url.broker.store._recent.clear()  # type: ignore[attr-defined]  # nothing is at hand
        monkeypatch.setattr(RealDisk, "pread", cold)

        got = sqs.bodies(queue) + sqs.bodies(queue, WaitTimeSeconds=1)

        assert got == [str(number) for number in range(20)]
        assert waits
        assert url.broker.thread not in waits


def test_R51_what_the_page_cache_has_is_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))
    disk = RealDisk()
    handle = disk.open(str(path))
    try:
        assert len(disk.pread(handle, 1_000, 5_000, wait=False)) == 1_000
        assert len(disk.pread(handle, 1_000, 99_500, wait=False)) == 500
        assert disk.pread(handle, 1_000, 200_000, wait=False) == b""
    finally:
        disk.close(handle)
