"""A clock that stands still until a test advances it, which wakes waiting threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from pillarbox.core.limits import SECOND_NS
from pillarbox.mailbox.waiters import open_gate

_START = 1_800_000_000 * SECOND_NS  # 2027-01-15T08:00:00Z


class FakeClock:
    """A clock that only `advance` moves.

    Examples:
        >>> from pillarbox import InMemoryMailbox
        >>> clock = FakeClock()
        >>> box = InMemoryMailbox("later", str, clock=clock)
        >>> _ = box.send("tea", delay_seconds=60)
        >>> len(box.receive())
        0
        >>> clock.advance(60)
        >>> len(box.receive())
        1
    """

    def __init__(self, start_ns: int = _START) -> None:
        self._now = start_ns
        self.epoch_ns = 0
        self._lock = threading.Lock()
        self._alarms: list[tuple[int, Callable[[], object]]] = []

    def now(self) -> int:
        """Return the nanoseconds since the epoch."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Advance the clock, and wake all waits that end by then."""
        if not seconds >= 0:
            raise ValueError(f"a clock never goes back: can't advance by {seconds!r} seconds")
        with self._lock:
            self._now += round(seconds * SECOND_NS)
            due = [alarm for alarm in self._alarms if alarm[0] <= self._now]
            self._alarms = [alarm for alarm in self._alarms if alarm[0] > self._now]
        for _, wake in due:
            wake()

    @property
    def waiting(self) -> int:
        """The number of waiting receives, so that a test can wait until there is one."""
        with self._lock:
            return len(self._alarms)

    def wait(self, gate: threading.Lock, until: int) -> None:
        """Block until `gate` is released or the test has advanced the clock to `until`."""
        cancel = self._at(until, lambda: open_gate(gate))
        gate.acquire()
        cancel()

    def call_at(
        self, until: int, callback: Callable[[], object], loop: asyncio.AbstractEventLoop
    ) -> Callable[[], object]:
        """Let `loop` call back once the test has advanced the clock to `until`."""
        return self._at(until, lambda: loop.call_soon_threadsafe(callback))

    def _at(self, until: int, wake: Callable[[], object]) -> Callable[[], None]:
        alarm = (until, wake)
        with self._lock:
            if until > self._now:
                self._alarms.append(alarm)
                return lambda: self._cancel(alarm)
        wake()
        return lambda: None

    def _cancel(self, alarm: tuple[int, Callable[[], object]]) -> None:
        with self._lock:
            if alarm in self._alarms:
                self._alarms.remove(alarm)
