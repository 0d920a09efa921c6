"""`AsyncRedisConnection`: a pool of connections for one event loop.

A cancelled task tears off no call: it goes on by itself to its end, and what it was given then
is handed to `undo`. Only a receiver that is parked ends at once.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.redis.call import Call
from pillarbox.mailbox.redis.pool import Pool
from pillarbox.mailbox.redis.servers import Address, Servers
from pillarbox.mailbox.runner import AsyncConnection, run_async, run_awaiting


class AsyncRedisConnection(Pool, AsyncConnection):
    """A pool of connections to some servers, for one event loop."""

    _sleep = staticmethod(asyncio.sleep)

    def __init__(self, servers: Servers, retry_seconds: float) -> None:
        super().__init__(servers, retry_seconds)
        self._asking = asyncio.Lock()
        self._orphans: set[asyncio.Task[Any]] = set()  # calls whose caller was cancelled

    async def do(self, request: Call) -> Any:
        if self._moved():
            self._idle = {}
        return await (self._run(request) if request.undo is None else self._sheltered(request))

    async def _run(self, call: Call) -> Any:
        return await run_awaiting(self._call(call))

    async def _sheltered(self, call: Call) -> Any:
        task = asyncio.ensure_future(self._run(call))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if call.block_seconds:
                task.cancel()
            orphan = asyncio.ensure_future(self._make_good(task, call))
            self._orphans.add(orphan)
            orphan.add_done_callback(self._orphans.discard)
            raise

    async def _make_good(self, task: asyncio.Future[Any], call: Call) -> None:
        assert call.undo is not None
        reply: Any = (await asyncio.gather(task, return_exceptions=True))[0]
        try:
            undo = call.undo(None if isinstance(reply, BaseException) else reply)
            await run_async(self._run, undo)
        except MailboxError:  # its lease will run out
            return

    async def _find(self, slot: int) -> Address:
        async with self._asking:
            known = self._servers.address(slot)
            return known if known is not None else await run_awaiting(self._ask_seeds(slot))

    async def wake(self, verbs: Any) -> None:
        await run_awaiting(self._wake(verbs.name))

    async def close(self) -> None:
        if self._orphans:
            self._closed = True
            await asyncio.gather(*self._orphans, return_exceptions=True)
        await run_awaiting(self._close())
