"""Receivers that wait for a message: a thread behind a lock, or a task behind a future.

A waiter is served by whoever makes a message ready: that caller leases the message for it
and wakes it, so one message wakes one waiter and nobody polls.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Protocol

from msgspec import Struct, field

from pillarbox.core.queue import Lease


class Owner(Protocol):
    """The mailbox through which somebody waits."""

    @property
    def closed(self) -> bool: ...


def closed_gate() -> threading.Lock:
    """A lock that `open_gate` releases, for a thread that waits until then."""
    gate = threading.Lock()
    gate.acquire()
    return gate


def open_gate(gate: threading.Lock) -> None:
    """Release a lock that someone waits for, if nobody else has done so."""
    try:
        gate.release()
    except RuntimeError:
        return


def new_future() -> asyncio.Future[None]:
    """A future of the running loop."""
    return asyncio.get_running_loop().create_future()


class Waiter(Struct, eq=False):
    """A parked receive: how much it wants, and where its leases are put."""

    owner: Owner
    count: int
    timeout: int
    leases: list[Lease] | None = None

    def wake(self) -> bool:
        """Let it go on; False if there is nobody left to wake."""
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
        except RuntimeError:  # its event loop is closed
            return False
        return True

    def finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
