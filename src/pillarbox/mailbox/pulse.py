"""One timer for a whole store: fires when a queue with a waiting receiver has something due.

Expiry never depends on it, because every operation checks the clock; it only wakes waiting
receivers. The thread runs while the timer is armed, and does not keep its store alive.
"""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from pillarbox.clock import Clock
from pillarbox.core.queue import NEVER
from pillarbox.mailbox.waiters import closed_gate, open_gate
from pillarbox.mutex import short_pause


class Beats(Protocol):
    def beat(self) -> int:
        """Process what is due and return the next time."""


class Pulse:
    """Calls its owner's `beat` at the armed time. `arm` requires the owner's lock."""

    def __init__(self, owner: Beats, clock: Clock) -> None:
        self._owner = weakref.ref(owner)
        self._clock = clock
        self._at = NEVER
        self._gate = closed_gate()
        self._running = False
        weakref.finalize(owner, open_gate, self._gate)

    def arm(self, at: int) -> None:
        """Fire at `at`, or earlier if already armed for an earlier time."""
        if at >= self._at:
            return
        self._at = at
        if self._running:
            open_gate(self._gate)
        else:
            self._running = True
            threading.Thread(target=self._run, name="pillarbox-pulse", daemon=True).start()

    def rearm(self, at: int) -> bool:
        """Set the next time after a beat; return False if there is none and the thread may end."""
        self._at = at
        self._running = at < NEVER
        return self._running

    def _run(self) -> None:
        while True:
            at = self._at
            if self._clock.now() < at:
                self._clock.wait(self._gate, at)
            owner = self._owner()
            if owner is None:
                return
            if self._clock.now() >= self._at:
                following = owner.beat()
                if following >= NEVER:
                    return
                if following <= self._clock.now():  # more is due: let other threads run
                    short_pause()
            del owner
