"""R114: delays and leases end neither early nor late because a clock was set, also over a crash.

The time of day of a child process is what a file says; it is killed for real.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import pillarbox.clock
from pillarbox.clock import Anchor, WallClock
from pillarbox.log.disk import RealDisk
from pillarbox.mailbox.durable import DurableMailbox
from pillarbox.mailbox.store_files import TIME_FILE, read_anchor
from pillarbox.testing.disk import SimDisk

HOUR = 3600 * 10**9
SECOND = 10**9

CHILD = """
import sys, time
real = time.time_ns
shift = 0
time.time_ns = lambda: real() + shift
time.time = lambda: time.time_ns() / 1e9
from pillarbox.mailbox.durable import DurableMailbox
from pillarbox.mailbox.store_files import Timekeeper
if sys.argv[3] == "old":  # as it was: only the frames of the log tell what time it was
    Timekeeper.go_on = lambda self, latest, wall: self._clock.go_on_from(max(latest, wall))
    Timekeeper.note = lambda self: None
shift = int(sys.argv[2])
box = DurableMailbox("box", str, path=sys.argv[1])
for line in sys.stdin:
    verb, _, value = line.strip().partition(" ")
    if verb == "set":
        shift = int(value)
    elif verb == "send":
        box.send("any")
    elif verb == "later":
        box.send("later", delay_seconds=int(value))
    elif verb == "lease":
        box.receive(visibility_timeout=int(value))
    elif verb == "close":
        box.close()
    stats = None if verb == "close" else box.stats()
    print(*((stats.ready, stats.scheduled, stats.in_flight) if stats else ()), flush=True)
"""


class Child:
    def __init__(self, store: Path, shift: int = 0, how: str = "new") -> None:
        command = [sys.executable, "-c", CHILD, str(store), str(shift), how]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, what: str) -> tuple[int, ...]:
        """Ready, scheduled and in flight after it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(what, file=self.process.stdin, flush=True)
        return tuple(map(int, self.process.stdout.readline().split()))

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def filled(store: Path, how: str = "new") -> Child:
    """A child whose store has a delay and a lease of fifty minutes."""
    child = Child(store, how=how)
    child.ask("send")
    child.ask("lease 3000")
    assert child.ask("later 3000") == (0, 1, 1)
    return child


@pytest.mark.parametrize("end", ["kill", "close"])
@pytest.mark.parametrize("hours", [1, -1])
def test_R114_a_clock_that_is_set_and_set_back_ends_nothing(
    tmp_path: Path, hours: int, end: str
) -> None:
    child = filled(tmp_path)
    child.ask(f"set {hours * HOUR}")
    assert child.ask("send") == (1, 1, 1)
    child.ask("set 0")
    if end == "close":
        child.ask("close")
    child.kill()
    child = Child(tmp_path)
    assert child.ask("look") == (1, 1, 1)
    child.kill()


@pytest.mark.parametrize("end", ["kill", "close"])
@pytest.mark.parametrize("hours", [1, -1])
def test_R114_a_clock_that_is_set_and_stays_ends_nothing(
    tmp_path: Path, hours: int, end: str
) -> None:
    child = filled(tmp_path)
    child.ask(f"set {hours * HOUR}")
    if end == "close":
        child.ask("close")
    child.kill()
    child = Child(tmp_path, hours * HOUR)
    assert child.ask("look") == (0, 1, 1)
    child.kill()


def test_R114_nor_does_it_make_anything_late(tmp_path: Path) -> None:
    child = Child(tmp_path)
    child.ask(f"set {HOUR}")
    child.ask("send")
    child.ask("lease 2")
    assert child.ask("later 2") == (0, 1, 1)
    child.kill()
    began = time.monotonic()
    child = Child(tmp_path, -HOUR)
    while child.ask("look") != (2, 0, 0):
        assert time.monotonic() - began < 60, "an hour late"
    child.kill()


def test_R114_control_with_the_time_of_the_frames_both_end_early(tmp_path: Path) -> None:
    child = filled(tmp_path, "old")
    child.ask(f"set {HOUR}")
    child.ask("send")
    child.ask("set 0")
    child.kill()
    child = Child(tmp_path, how="old")
    assert child.ask("look") == (3, 0, 0)
    child.kill()


# -- the machine is started anew --------------------------------------------------------------


class Machine:
    """What a process can know of time."""

    def __init__(self) -> None:
        self.wall = 1_800_000_000 * SECOND
        self.uptime = 500 * SECOND
        self.boot = "first"

    def run(self, seconds: int) -> None:
        self.wall += seconds * SECOND
        self.uptime += seconds * SECOND

    def restart(self, seconds: int) -> None:
        """It was off for so long."""
        self.wall += seconds * SECOND
        self.uptime, self.boot = 30 * SECOND, self.boot + "+"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(time, "time_ns", lambda: machine.wall)
    monkeypatch.setattr(pillarbox.clock, "since_boot_ns", lambda: machine.uptime)
    monkeypatch.setattr(pillarbox.clock, "boot_id", lambda: machine.boot)
    return machine


def opened(disk: SimDisk) -> DurableMailbox[str]:
    return DurableMailbox("box", str, path="data", disk=disk)


def counts(box: DurableMailbox[Any]) -> tuple[int, int, int]:
    stats = box.stats()
    return stats.ready, stats.scheduled, stats.in_flight


def test_R114_after_a_restart_of_the_machine_the_time_of_day_tells_how_long_it_took(
    machine: Machine,
) -> None:
    disk = SimDisk()
    box = opened(disk)
    box.send("later", delay_seconds=100)
    machine.restart(60)
    box = opened(disk.kill())
    assert counts(box) == (0, 1, 0)
    machine.run(39)
    assert counts(box) == (0, 1, 0)
    machine.run(1)
    assert counts(box) == (1, 0, 0)


def test_R114_a_clock_that_was_set_before_that_is_known_to_have_been_set(machine: Machine) -> None:
    disk = SimDisk()
    box = opened(disk)
    box.send("later", delay_seconds=3_000)
    machine.wall += HOUR
    box.close()
    machine.restart(60)
    box = opened(disk)
    assert counts(box) == (0, 1, 0)
    machine.run(3_000 - 60)
    assert counts(box) == (1, 0, 0)


def test_R114_a_clock_set_back_while_the_machine_was_off_ends_nothing_early(
    machine: Machine,
) -> None:
    disk = SimDisk()
    box = opened(disk)
    box.send("later", delay_seconds=100)
    machine.run(50)
    box.send("a")
    machine.restart(-3_600)
    box = opened(disk.kill())
    assert counts(box) == (1, 1, 0)
    machine.run(50)
    assert counts(box) == (2, 0, 0)


def test_R114_times_for_people_are_the_time_of_day(machine: Machine) -> None:
    disk = SimDisk()
    box = opened(disk)
    machine.wall += HOUR
    box.close()
    box = opened(disk)
    box.send("a")
    (message,) = box.receive()
    assert abs(message.enqueued_at.timestamp() * SECOND - machine.wall) < SECOND


def test_R114_a_store_from_before_that_was_noted_opens(machine: Machine) -> None:
    disk = SimDisk()
    box = opened(disk)
    box.send("later", delay_seconds=100)
    box.close()
    disk.unlink(f"data/{TIME_FILE}")
    box = opened(disk)
    assert counts(box) == (0, 1, 0)
    machine.run(100)
    assert counts(box) == (1, 0, 0)
    assert f"data/{TIME_FILE}" in disk.files()


def test_R114_a_damaged_note_of_the_time_is_as_none(tmp_path: Path) -> None:
    (tmp_path / TIME_FILE).write_bytes(b"?")
    assert read_anchor(RealDisk(), str(tmp_path)) is None
    with DurableMailbox("box", str, path=tmp_path) as box:
        box.send("a")
    assert read_anchor(RealDisk(), str(tmp_path)) is not None


def test_R114_where_starts_of_the_machine_have_no_name_the_time_of_day_is_left(
    machine: Machine,
) -> None:
    machine.boot = ""
    clock = WallClock()
    clock.go_on_from(0, Anchor("", 5, -HOUR))
    assert clock.now() == machine.wall - HOUR
