"""One armed timer for a whole store: it fires when a parked receiver's queue has work due.

Expiry never depends on it (every operation looks at the clock itself); it only wakes those
who wait. The thread lives while something is armed, and never keeps its store alive.
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
        """Do what is due; when to come again."""


class Pulse:
    """Calls `beat` of its owner at the armed time. The owner's lock guards `arm`."""

    def __init__(self, owner: Beats, clock: Clock) -> None:
        self._owner = weakref.ref(owner)
        self._clock = clock
        self._at = NEVER
        self._gate = closed_gate()
        self._running = False
        weakref.finalize(owner, open_gate, self._gate)

    def arm(self, at: int) -> None:
        """Fire at `at`, unless it fires before."""
        if at >= self._at:
            return
        self._at = at
        if self._running:
            open_gate(self._gate)
        else:
            self._running = True
            threading.Thread(target=self._run, name="pillarbox-pulse", daemon=True).start()

    def rearm(self, at: int) -> bool:
        """After a beat: the next time; False if there is none, and the thread may end."""
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
                if following <= self._clock.now():  # much is due: let others have their turn
                    short_pause()
            del owner
