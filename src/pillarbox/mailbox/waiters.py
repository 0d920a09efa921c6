"""Waiting receivers: a thread that blocks on a lock, or a task that awaits a future.

The caller that makes a message ready leases it for a waiter and wakes it, so one message wakes one
waiter, and no receiver polls.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Protocol

from msgspec import Struct, field

from pillarbox.core.queue import Lease


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
