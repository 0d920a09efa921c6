"""Clocks: nanoseconds that never go back, and how to wait for them.

`SystemClock` counts monotonic time, so that setting the wall clock neither shortens a delay nor
expires leases; adding `epoch_ns` gives the time of day. Waiting is part of the interface, so that
a fake clock can wake waiters.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct


class Clock(Protocol):
    """What a mailbox needs of a clock."""

    epoch_ns: int  # now() + epoch_ns is the time since the epoch

    @property
    def now(self) -> Callable[[], int]:
        """now() returns nanoseconds, never less than before."""

    def wait(self, gate: threading.Lock, until: int) -> None:
        """Block until the locked `gate` is released or the time `until` is reached."""

    def call_at(
        self, until: int, callback: Callable[[], object], loop: asyncio.AbstractEventLoop
    ) -> Callable[[], object]:
        """Have `loop` call `callback` at `until`; returns a function that cancels it."""


class SystemClock:
    """The monotonic time of the machine, with `epoch_ns` as of the creation of the clock."""

    def __init__(self) -> None:
        self.now: Callable[[], int] = time.monotonic_ns  # no Python frame: this is the hot path
        self.epoch_ns = time.time_ns() - time.monotonic_ns()

    def wait(self, gate: threading.Lock, until: int) -> None:
        # Round up to milliseconds: waking too early would mean waiting twice.
        left_ms = -((self.now() - until) // 1_000_000)
        gate.acquire(timeout=min(max(left_ms, 0) / 1_000, threading.TIMEOUT_MAX))

    def call_at(
        self, until: int, callback: Callable[[], object], loop: asyncio.AbstractEventLoop
    ) -> Callable[[], object]:
        return loop.call_later(max(0, until - self.now()) / 1e9 + 0.0005, callback).cancel


class Anchor(Struct, frozen=True):
    """The difference between the time of a store and two other clocks, saved with the store."""

    boot_id: str  # of the boot that the next field belongs to
    since_boot_ns: int  # store time minus time since that boot
    since_epoch_ns: int  # store time minus time of day


class WallClock(SystemClock):
    """The time of a store on disk, which continues even if the time of day is set.

    It starts as the time of day. Then it counts the time since boot, across restarts of the
    process. Only after a reboot, the time of day tells how much time has passed. `epoch_ns` is
    the difference from the time of day.
    """

    def __init__(self) -> None:
        super().__init__()
        self._offset, self.epoch_ns = time.time_ns() - since_boot_ns(), 0
        self.now = lambda: since_boot_ns() + self._offset

    def go_on_from(self, time_ns: int, anchor: Anchor | None = None) -> None:
        """Continue from an anchor, if given; never return less than `time_ns`."""
        elapsed = since_boot_ns()
        if anchor is not None and anchor.boot_id and anchor.boot_id == boot_id():
            self._offset = anchor.since_boot_ns
        elif anchor is not None:
            self._offset = time.time_ns() + anchor.since_epoch_ns - elapsed
        self._offset = max(self._offset, time_ns - elapsed)
        self._compare()

    def anchor(self) -> Anchor:
        """What to save, so that the time can continue from here."""
        self._compare()
        return Anchor(boot_id(), self._offset, -self.epoch_ns)

    def _compare(self) -> None:
        """Update `epoch_ns`, unless the difference is small."""
        apart = time.time_ns() - self.now()
        if abs(apart - self.epoch_ns) > _APART_NS:
            self.epoch_ns = apart


@functools.cache
def boot_id() -> str:
    """Return a random id of the current boot; empty if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


#: Nanoseconds since boot, including time asleep where the system supports it.
since_boot_ns: Callable[[], int] = (
    functools.partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic_ns
)
_APART_NS = 1_000_000_000
