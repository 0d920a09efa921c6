"""The memory of requests that are still arriving, bounded for all connections together.

When it is full, room is made at the expense of whoever has held the most memory for the
longest: clients that stall lose theirs, and one that sends at an ordinary speed is served.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pillarbox.broker.connection import Connection

BYTES_MAX: Final = 64 << 20


class RequestBuffers:
    """Who holds how much, and since when."""

    def __init__(self, bytes_max: int, time: Callable[[], float]) -> None:
        self._bytes_max = bytes_max
        self._time = time
        self._held: dict[Connection, tuple[int, float]] = {}
        self.total_bytes = 0

    def hold(self, connection: Connection, count: int, began: float) -> None:
        """So many bytes of this connection's unfinished request are in memory now."""
        before, _ = self._held.pop(connection, (0, 0.0))
        if count:
            self._held[connection] = count, began
        self.total_bytes += count - before
        if count > before and self.total_bytes > self._bytes_max:
            self._make_room()

    def _make_room(self) -> None:
        """Free a quarter at once, so that a flood does not have us look at everyone each time."""
        now = self._time()
        costs = {each: count * (now - began) for each, (count, began) in self._held.items()}
        for connection in sorted(costs, key=costs.__getitem__, reverse=True):
            if self.total_bytes <= self._bytes_max * 3 // 4:
                return
            connection.refuse(
                503,
                "ServiceUnavailable",
                "Too many requests are arriving, and this one arrives slowly: send it again.",
                linger=False,
            )
