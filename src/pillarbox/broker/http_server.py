"""Where connections come in: the listening sockets, who is connected, and their deadlines.

One timer looks at all connections; a parked one costs nothing but that look.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from email.utils import formatdate
from typing import Final

from pillarbox.broker.buffers import BYTES_MAX, RequestBuffers
from pillarbox.broker.connection import Connection
from pillarbox.broker.cross_origin import CrossOriginProtection
from pillarbox.broker.http import Answer, Request, Response

_TICK_SECONDS: Final = 0.5
IDLE_SECONDS: Final = 75.0
CONNECTIONS_MAX: Final = 50_000
_FLUSHED_MAX: Final = 64
_BACKLOG: Final = 4_096
_TLS_HANDSHAKE_SECONDS: Final = 5.0
_TLS_GOODBYE_SECONDS: Final = 1.0

Refusal = Callable[[int, str, str], Response]


class HttpServer:
    """Accepts connections and hands their requests to `handle`."""

    def __init__(
        self,
        handle: Callable[[Request], Answer],
        refusal: Refusal,
        protection: CrossOriginProtection,
        *,
        shows_key: Callable[[Request], bool] = lambda request: True,
        buffer_bytes_max: int = BYTES_MAX,
        idle_seconds: float = IDLE_SECONDS,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.handle = handle
        self.refusal = refusal
        self.check = protection.check
        self.shows_key = shows_key  # whether to read the body of a request, by its head
        self.buffers = RequestBuffers(buffer_bytes_max, self.loop.time)
        self.idle_seconds = idle_seconds
        self.connections_max = connections_max
        self.connections: set[Connection] = set()
        self.stopping = False
        self.requests = 0  # how many have begun
        self._look_at_clock()
        self._unflushed: list[Connection] = []
        self._servers: list[asyncio.Server] = []
        self._empty = asyncio.Event()
        self._timer = self.loop.call_later(_TICK_SECONDS, self._tick)

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Accept connections there; the port, for one that was left open."""
        server = await self.loop.create_server(
            lambda: Connection(self),
            host,
            port,
            ssl=tls,
            backlog=_BACKLOG,
            reuse_address=True,
            ssl_handshake_timeout=_TLS_HANDSHAKE_SECONDS if tls is not None else None,
            ssl_shutdown_timeout=_TLS_GOODBYE_SECONDS if tls is not None else None,
        )
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    def flush_soon(self, connection: Connection) -> None:
        """Its answers leave at the end of this turn of the event loop, with those of others.

        A client that waits for many is then woken once, and not by each: that is half the cost.
        """
        waiting = self._unflushed
        waiting.append(connection)
        if len(waiting) == 1:
            self.loop.call_soon(self._flush)
        elif len(waiting) == _FLUSHED_MAX:  # nobody has to wait for a long turn to end
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
        """What a client is told if the fault is ours."""
        return self.refusal(500, "InternalFailure", "The broker failed; its log says why.")

    def _look_at_clock(self) -> float:
        """What need not be exact is read from here: asking the time for each answer costs more."""
        self.date = formatdate(usegmt=True)
        now = self.loop.time()
        self.idle_until = now + self.idle_seconds + _TICK_SECONDS
        return now

    def _tick(self) -> None:
        now = self._look_at_clock()
        for connection in [each for each in self.connections if each.deadline <= now]:
            connection.time_out()
        self._timer = self.loop.call_later(_TICK_SECONDS, self._tick)

    async def close(self, seconds: float) -> None:
        """Take no more connections, and let those under way end, for so long at the most."""
        self.stopping = True
        for server in self._servers:
            server.close()
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
