"""Time as mailboxes see it: nanoseconds that never go back, and how to wait for them.

`SystemClock` counts monotonic time, so that a corrected wall clock neither cuts a delay short
nor ends every lease at once; `epoch_ns` turns it into the time of day for people. Waiting is
part of the seam: a fake clock wakes those whose time has come.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Protocol


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


class WallClock(SystemClock):
    """Time of day that goes on from what a store on disk has seen, even if it was set back."""

    def __init__(self) -> None:
        super().__init__()
        self._offset, self.epoch_ns = self.epoch_ns, 0
        self.now = lambda: time.monotonic_ns() + self._offset

    def go_on_from(self, time_ns: int) -> None:
        """Never read less than this."""
        self._offset = max(self._offset, time_ns - time.monotonic_ns())
