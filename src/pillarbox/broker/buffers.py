"""Limits the memory of incomplete requests over all connections.

At the limit, some requests are refused with a 503: first the slow ones, which held the most
memory for the longest time, then the largest, the most recent of these first. So older requests
can finish, and a crowd of honest clients makes progress.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from pillarbox.broker import limits

if TYPE_CHECKING:
    from pillarbox.broker.connection import Connection

BYTES_MAX: Final = 64 << 20


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
    """The memory that each connection's incomplete request holds."""

    def __init__(self, bytes_max: int, time: Callable[[], float]) -> None:
        self._bytes_max = bytes_max
        self._time = time
        self._held: dict[Connection, Unfinished] = {}
        self.total_bytes = 0

    def hold(self, connection: Connection, request: Unfinished) -> None:
        """Record how much memory this connection's request holds now."""
        before = self._held.pop(connection, None)
        growth = request.held_bytes - (before.held_bytes if before is not None else 0)
        if request.held_bytes:
            self._held[connection] = request
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
