"""Receivers that wait for a message: a thread behind a lock, or a task behind a future.

A waiter is served by whoever makes a message ready: that caller leases the message for it
and wakes it, so one message wakes one waiter and nobody polls.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Protocol

from pillarbox.core.queue import Lease


class Owner(Protocol):
    """The mailbox through which somebody waits."""

    @property
    def closed(self) -> bool: ...


class Waiter(Protocol):
    """A parked receive: how much it wants, and where its leases are put."""

    owner: Owner
    count: int
    timeout: int
    leases: list[Lease] | None

    def wake(self) -> bool:
        """Let it go on; False if there is nobody left to wake."""


class ThreadWaiter:
    """A receive that blocks its thread."""

    __slots__ = ("count", "gate", "leases", "owner", "timeout")

    def __init__(self, owner: Owner, count: int, timeout: int) -> None:
        self.owner = owner
        self.count = count
        self.timeout = timeout
        self.leases: list[Lease] | None = None
        self.gate = threading.Lock()
        self.gate.acquire()

    def wake(self) -> bool:
        open_gate(self.gate)
        return True


class TaskWaiter:
    """A receive that a task of an event loop awaits."""

    __slots__ = ("_loop", "count", "done", "leases", "owner", "timeout")

    def __init__(self, owner: Owner, count: int, timeout: int) -> None:
        self.owner = owner
        self.count = count
        self.timeout = timeout
        self.leases: list[Lease] | None = None
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self.finish)
        except RuntimeError:  # its event loop is closed
            return False
        return True

    def finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


def open_gate(gate: threading.Lock) -> None:
    """Release a lock that someone waits for, if nobody else has done so."""
    try:
        gate.release()
    except RuntimeError:
        return
