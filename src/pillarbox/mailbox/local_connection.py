"""Runs the verbs of a queue in this process: in the calling thread, or on an event loop.

On an event loop, waiting for a message or for the disk does not block the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pillarbox.core.queue import Lease
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.runner import AsyncConnection, Connection, Step
from pillarbox.mailbox.waiters import TaskWaiter

if TYPE_CHECKING:
    from pillarbox.mailbox.local_verbs import LocalVerbs

R = TypeVar("R")


class Receive:
    """A receive that may wait for a message."""

    __slots__ = ("arguments",)

    def __init__(
        self, verbs: LocalVerbs[Any], mailbox: Any, count: int, timeout: int, wait: int
    ) -> None:
        self.arguments = verbs, mailbox, count, timeout, wait

    def __call__(self) -> list[Any]:
        verbs, mailbox, count, timeout, wait = self.arguments
        clock = verbs.store.clock
        until = clock.now() + wait if wait else 0
        while True:
            leases = verbs.session.receive(verbs, count, timeout, wait)
            messages = verbs.messages(leases, mailbox)
            if messages or not leases:
                return messages
            wait = max(0, until - clock.now()) if wait else 0

    async def in_task(self) -> list[Any]:
        """Receive without blocking the event loop."""
        verbs, mailbox, count, timeout, wait = self.arguments
        clock = verbs.store.clock
        until = clock.now() + wait
        while True:
            leases = verbs.session.receive(verbs, count, timeout, 0)
            if not leases and until > clock.now():
                leases = await _wait(verbs.session, TaskWaiter(verbs, count, timeout), until)
            messages = verbs.messages(leases, mailbox)
            if messages or not leases:
                return messages


async def _wait(session: QueueSession, waiter: TaskWaiter, until: int) -> list[Lease]:
    session.enter(waiter)
    loop = asyncio.get_running_loop()
    cancel_alarm = session.store.clock.call_at(until, waiter.finish, loop)
    try:
        await waiter.done
        return session.leave(waiter)
    except BaseException:  # cancelled: return the messages it was given
        session.give_up(waiter)
        raise
    finally:
        cancel_alarm()


class OpenStore(partial[None]):
    """Opens a store on disk; with asyncio in a thread, because a long replay takes a while."""


class LocalConnection(Connection):
    """Runs verbs in the calling thread."""

    def __init__(self, on_close: Callable[[], None] | None = None) -> None:
        self._on_close = on_close

    def do(self, request: Step[R]) -> R:
        return request()

    def wake(self, verbs: LocalVerbs[Any]) -> None:
        verbs.wake()

    def close(self) -> None:
        if self._on_close is not None:
            self._on_close()


class AsyncLocalConnection(AsyncConnection):
    """Runs verbs on an event loop, without blocking it while the disk syncs."""

    def __init__(self, verbs: LocalVerbs[Any], on_close: Callable[[], None] | None = None) -> None:
        self._verbs = verbs
        self._on_close = on_close

    async def do(self, request: Any) -> Any:
        self._moved()
        if isinstance(request, Receive):
            return await request.in_task()
        if isinstance(request, OpenStore):
            return await asyncio.to_thread(request)
        store = self._verbs.session.store
        return await store.confirmed(request) if store.waits else request()

    async def wake(self, verbs: LocalVerbs[Any]) -> None:
        verbs.wake()

    async def close(self) -> None:
        if self._on_close is not None:
            await asyncio.to_thread(self._on_close)
