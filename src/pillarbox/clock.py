"""Time as mailboxes see it: nanoseconds that never go back, and how to wait for them.

`SystemClock` counts monotonic time, so that a corrected wall clock neither cuts a delay short
nor ends every lease at once; `epoch_ns` turns it into the time of day for people. Waiting is
part of the seam: a fake clock wakes those whose time has come.
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
    """What a mailbox needs to know of time."""

    epoch_ns: int  # now() + epoch_ns is the time since the epoch

    @property
    def now(self) -> Callable[[], int]:
        """now() is in nanoseconds, and never less than before."""

    def wait(self, gate: threading.Lock, until: int) -> None:
        """Block until the locked `gate` is released or `until` has come."""

    def call_at(
        self, until: int, callback: Callable[[], object], loop: asyncio.AbstractEventLoop
    ) -> Callable[[], object]:
        """Have `loop` call back at `until`; the answer cancels it."""


class SystemClock:
    """The machine's monotonic time, anchored to the time of day when the clock was made."""

    def __init__(self) -> None:
        self.now: Callable[[], int] = time.monotonic_ns  # no Python frame: this is the hot path
        self.epoch_ns = time.time_ns() - time.monotonic_ns()

    def wait(self, gate: threading.Lock, until: int) -> None:
        # Time left is rounded up to the next millisecond: waking early would mean waiting twice.
        left_ms = -((self.now() - until) // 1_000_000)
        gate.acquire(timeout=min(max(left_ms, 0) / 1_000, threading.TIMEOUT_MAX))

    def call_at(
        self, until: int, callback: Callable[[], object], loop: asyncio.AbstractEventLoop
    ) -> Callable[[], object]:
        return loop.call_later(max(0, until - self.now()) / 1e9 + 0.0005, callback).cancel


class Anchor(Struct, frozen=True):
    """Where the time of a store stood against two other clocks, when that was last noted."""

    boot_id: str  # of the start of the machine that the first difference belongs to
    since_boot_ns: int  # the store's time less the time since that start
    since_epoch_ns: int  # the store's time less the time of day


class WallClock(SystemClock):
    """Time of a store on disk: it goes on from what it was, whatever is done to the time of day.

    It begins as the time of day. From then on it counts the time since the machine was started,
    across every restart of the process. Only after a restart of the machine the time of day
    tells how long that took. `epoch_ns` is how far the two have come apart, for people.
    """

    def __init__(self) -> None:
        super().__init__()
        self._offset, self.epoch_ns = time.time_ns() - since_boot_ns(), 0
        self.now = lambda: since_boot_ns() + self._offset

    def go_on_from(self, time_ns: int, anchor: Anchor | None = None) -> None:
        """Go on from where it was anchored, if it was; never read less than `time_ns`."""
        elapsed = since_boot_ns()
        if anchor is not None and anchor.boot_id and anchor.boot_id == boot_id():
            self._offset = anchor.since_boot_ns
        elif anchor is not None:
            self._offset = time.time_ns() + anchor.since_epoch_ns - elapsed
        self._offset = max(self._offset, time_ns - elapsed)
        self._compare()

    def anchor(self) -> Anchor:
        """What to note, so that the time can go on from here."""
        self._compare()
        return Anchor(boot_id(), self._offset, -self.epoch_ns)

    def _compare(self) -> None:
        """See how far it is from the time of day; a little is none, so that times stay alike."""
        apart = time.time_ns() - self.now()
        if abs(apart - self.epoch_ns) > _APART_NS:
            self.epoch_ns = apart


@functools.cache
def boot_id() -> str:
    """Another one each time that the machine is started; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


#: How long the machine runs, the time that it slept included where the system knows that.
since_boot_ns: Callable[[], int] = (
    functools.partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic_ns
)
_APART_NS = 1_000_000_000
