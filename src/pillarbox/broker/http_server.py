"""The HTTP server: listening sockets, open connections, their deadlines and their memory.

One timer checks the deadlines of all connections.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from email.utils import formatdate
from typing import Final, NamedTuple

from pillarbox.broker import limits
from pillarbox.broker.connection import Connection
from pillarbox.broker.cross_origin import CrossOriginProtection
from pillarbox.broker.http import Answer, Request, Response
from pillarbox.broker.tls import SlicedWrites

_TICK_SECONDS: Final = 0.5
_FLUSHED_MAX: Final = 64
_BACKLOG: Final = 4_096
_TLS_HANDSHAKE_SECONDS: Final = 5.0
_TLS_GOODBYE_SECONDS: Final = 1.0

Refusal = Callable[[int, str, str], Response]


class Unfinished(NamedTuple):
    """An incomplete request."""

    held_bytes: int
    began: float
    length: int  # of the complete body, as far as is known

    def burden(self, now: float) -> tuple[bool, float, float]:
        """Return the sort key: the request with the greatest burden is refused first."""
        age = now - self.began
        if age > limits.SLOW_SECONDS:
            return True, self.held_bytes * age, 0.0
        return False, self.length, self.began


class RequestBuffers:
    """Limits the memory of incomplete requests over all connections.

    At the limit, some requests are refused with a 503: first the slow ones, which held the most
    memory for the longest time, then the largest, the most recent of these first. So older
    requests can finish, and a crowd of honest clients makes progress.
    """

    def __init__(self, bytes_max: int, time: Callable[[], float]) -> None:
        self._bytes_max = bytes_max
        self._time = time
        self._held: dict[Connection, Unfinished] = {}
        self.total_bytes = 0

    def hold(self, connection: Connection, held_bytes: int, began: float, length: int) -> None:
        """Record how much memory this connection's request holds now."""
        before = self._held.pop(connection, None)
        growth = held_bytes - (before.held_bytes if before is not None else 0)
        if held_bytes:
            self._held[connection] = Unfinished(held_bytes, began, length)
        self.total_bytes += growth
        if growth > 0 and self.total_bytes > self._bytes_max:
            self._make_room()

    def _make_room(self) -> None:
        """Free a quarter at once: during a flood, not every request should cost a sort."""
        now = self._time()
        burdens = {each: request.burden(now) for each, request in self._held.items()}
        for connection in sorted(burdens, key=burdens.__getitem__, reverse=True):
            if self.total_bytes <= self._bytes_max * 3 // 4:
                return
            connection.refuse(
                503,
                "ServiceUnavailable",
                "Too many requests are arriving at once: send this one again.",
                linger=False,
            )


class HttpServer:
    """Accepts connections and hands their requests to `handle`."""

    def __init__(
        self,
        handle: Callable[[Request], Answer],
        refusal: Refusal,
        protection: CrossOriginProtection,
        *,
        shows_key: Callable[[Request], bool] = lambda request: True,
        buffer_bytes_max: int = limits.BUFFERS_BYTES_MAX,
        idle_seconds: float = limits.IDLE_SECONDS,
        connections_max: int = limits.CONNECTIONS_MAX,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.handle = handle
        self.refusal = refusal
        self.check = protection.check
        self.shows_key = shows_key  # decides by the head whether to read the body
        self.buffers = RequestBuffers(buffer_bytes_max, self.loop.time)
        self.idle_seconds = idle_seconds
        self.connections_max = connections_max
        self.connections: set[Connection] = set()
        self.stopping = False
        self.requests = 0  # started so far
        self._update_clock()
        self._unflushed: list[Connection] = []
        self._listener: asyncio.Server | None = None
        self._empty = asyncio.Event()
        self._timer = self.loop.call_later(_TICK_SECONDS, self._tick)

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Accept connections, and return the port, which the system chooses for port 0."""
        self._listener = await self.loop.create_server(
            lambda: Connection(self) if tls is None else SlicedWrites(Connection(self)),
            host,
            port,
            ssl=tls,
            backlog=_BACKLOG,
            reuse_address=True,
            ssl_handshake_timeout=_TLS_HANDSHAKE_SECONDS if tls is not None else None,
            ssl_shutdown_timeout=_TLS_GOODBYE_SECONDS if tls is not None else None,
        )
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    def flush_soon(self, connection: Connection) -> None:
        """Write its responses at the end of this iteration of the event loop, in one write.

        A client that waits for several responses then wakes up once, which halves the cost.
        """
        waiting = self._unflushed
        waiting.append(connection)
        if len(waiting) == 1:
            self.loop.call_soon(self._flush)
        elif len(waiting) == _FLUSHED_MAX:  # bounds the wait in a long iteration
            self._flush()

    def _flush(self) -> None:
        waiting, self._unflushed = self._unflushed, []
        for connection in waiting:
            connection.flush()

    def admit(self, connection: Connection) -> bool:
        if len(self.connections) >= self.connections_max or self.stopping:
            return False
        self.connections.add(connection)
        return True

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    def broken(self) -> Response:
        """Return the response for an internal error."""
        return self.refusal(500, "InternalFailure", "The broker failed; its log says why.")

    def _update_clock(self) -> float:
        """Update the cached time, which is cheaper than asking for each response."""
        self.date = formatdate(usegmt=True)
        now = self.loop.time()
        self.idle_until = now + self.idle_seconds + _TICK_SECONDS
        return now

    def _tick(self) -> None:
        now = self._update_clock()
        for connection in [each for each in self.connections if each.deadline <= now]:
            connection.time_out()
        self._timer = self.loop.call_later(_TICK_SECONDS, self._tick)

    async def close(self, seconds: float) -> None:
        """Stop accepting; let responses in progress finish for at most this many seconds."""
        self.stopping = True
        if self._listener is not None:
            self._listener.close()
        self._empty.clear()
        for connection in list(self.connections):
            connection.stop()
        if self.connections:
            try:
                await asyncio.wait_for(self._empty.wait(), seconds)
            except TimeoutError:
                for connection in list(self.connections):
                    connection._transport.abort()
        self._timer.cancel()
