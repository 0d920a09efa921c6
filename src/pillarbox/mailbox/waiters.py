"""Waiting receivers: a thread that blocks on a lock, or a task that awaits a future.

The caller that makes a message ready leases it for a waiter and wakes it, so one message wakes one
waiter, and no receiver polls. What becomes ready by time needs a timer: the `Pulse` of the store.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from pillarbox.clock import Clock
from pillarbox.core.queue import NEVER, Lease
from pillarbox.mutex import short_pause

if TYPE_CHECKING:
    from pillarbox.mailbox.store import Store


class Owner(Protocol):
    """The mailbox of a waiting receiver."""

    @property
    def closed(self) -> bool: ...


def closed_gate() -> threading.Lock:
    """Return a locked lock for a thread to wait on until `open_gate` releases it."""
    gate = threading.Lock()
    gate.acquire()
    return gate


def open_gate(gate: threading.Lock) -> None:
    """Release the lock of a waiting thread, unless it is already released."""
    try:
        gate.release()
    except RuntimeError:
        return


def new_future() -> asyncio.Future[None]:
    """Return a future of the running event loop."""
    return asyncio.get_running_loop().create_future()


class Waiter(Struct, eq=False):
    """A parked receive: its arguments, and the leases it is given."""

    owner: Owner
    count: int
    timeout: int
    leases: list[Lease] | None = None

    def wake(self) -> bool:
        """Wake the receiver; return False if it is gone."""
        raise NotImplementedError


class ThreadWaiter(Waiter, eq=False):
    """A receive that blocks its thread."""

    gate: threading.Lock = field(default_factory=closed_gate)

    def wake(self) -> bool:
        open_gate(self.gate)
        return True


class TaskWaiter(Waiter, eq=False):
    """A receive that a task of an event loop awaits."""

    done: asyncio.Future[None] = field(default_factory=new_future)

    def wake(self) -> bool:
        try:
            self.done.get_loop().call_soon_threadsafe(self.finish)
        except RuntimeError:  # the event loop is closed
            return False
        return True

    def finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class Pulse:
    """The timer of a store: fires when a queue with a waiting receiver has something due.

    Expiry never depends on it, because every operation checks the clock; it only wakes waiting
    receivers. The thread runs while the timer is armed, and does not keep its store alive.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = weakref.ref(store)
        self._clock = clock
        self._at = NEVER
        self._gate = closed_gate()
        self._running = False
        weakref.finalize(store, open_gate, self._gate)

    def arm(self, at: int) -> None:
        """Fire at `at`, or earlier if already armed for that. Requires the lock of the store."""
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
            store = self._store()
            if store is None:
                return
            if self._clock.now() >= self._at:
                following = store.beat()
                if following >= NEVER:
                    return
                if following <= self._clock.now():  # more is due: let other threads run
                    short_pause()
            del store
