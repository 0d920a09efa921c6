"""`RedisConnection` and `AsyncRedisConnection`: the pool, for threads and for one event loop.

A thread takes a connection for the duration of a call, so calls of different threads never wait
for one another. Cancelling a task does not abort its call; only a parked receive ends at once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from threading import get_ident
from typing import Any

from pillarbox.closing import Closing
from pillarbox.mailbox.redis.call import Call
from pillarbox.mailbox.redis.keys import keys_of
from pillarbox.mailbox.redis.options import RETRY_SECONDS, servers_of_url
from pillarbox.mailbox.redis.pool import Pool
from pillarbox.mailbox.redis.servers import Address, Servers
from pillarbox.mailbox.runner import (
    AsyncConnection,
    Connection,
    ShieldedCalls,
    run_awaiting,
    run_blocking,
)
from pillarbox.mailbox.url import split_url
from pillarbox.mutex import reentrant_call


class RedisConnection(Pool, Connection):
    """A thread-safe pool of connections."""

    _sleep = staticmethod(time.sleep)

    def __init__(self, servers: Servers, retry_seconds: float) -> None:
        super().__init__(servers, retry_seconds)
        self._asking = threading.RLock()  # a signal handler may make calls, too

    def do(self, request: Call) -> Any:
        return run_blocking(self._call(request))

    def _find(self, slot: int) -> Address:
        with self._asking:
            return self._servers.address(slot) or run_blocking(self._ask_seeds(slot))

    def wake(self, verbs: Any) -> None:
        parked_here = any(thread == get_ident() for _, thread in list(self._parked.values()))
        if parked_here and self._parked_on(verbs.name):
            raise reentrant_call()  # the interrupted call can't continue before the handler returns
        run_blocking(self._wake(verbs.name))

    def close(self) -> None:
        run_blocking(self._close())


class RedisClient(RedisConnection, Closing):
    """Runs commands on the servers of a URL, over its own connections.

    A URL without a queue ends with a slash or with the host.
    """

    def __init__(self, url: str) -> None:
        parts = split_url(url, "the URL of a Redis server")
        path, _, name = parts.path.rpartition("/")
        url = url if name else parts._replace(path=f"{path}/-").geturl()
        self.servers, self.queue, _ = servers_of_url(url, asynchronous=False)
        self.keys = keys_of(self.queue)
        super().__init__(self.servers, RETRY_SECONDS)

    def ask(self, *command: Any, slot: int | None = None) -> Any:
        """Run a command and return the response; `slot` selects a server (default: the queue's)."""
        where = self.keys.slot if slot is None else slot
        return self.do(Call(self.queue, where, None, list(command)))


class AsyncRedisConnection(ShieldedCalls, Pool, AsyncConnection):
    """A pool of connections for one event loop."""

    _sleep = staticmethod(asyncio.sleep)

    def __init__(self, servers: Servers, retry_seconds: float) -> None:
        super().__init__(servers, retry_seconds)
        self._asking = asyncio.Lock()

    async def do(self, request: Call) -> Any:
        if self._moved():
            self._idle = {}
        if request.undo is None:
            return await self._run(request)
        return await self._shielded(request, cancel=request.block_seconds > 0)

    async def _find(self, slot: int) -> Address:
        async with self._asking:
            known = self._servers.address(slot)
            return known if known is not None else await run_awaiting(self._ask_seeds(slot))

    async def wake(self, verbs: Any) -> None:
        await run_awaiting(self._wake(verbs.name))
