"""The consumers of each queue, with what they received, finished and failed, for the dashboard.

A consumer is identified by address, key and User-Agent, which for Pillarbox's own clients names
host and process. A lease points to its consumer, and the queue's `Totals` count how it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Final

from msgspec import Struct

from pillarbox.broker.http import Request
from pillarbox.core.queue import Lease

CONSUMERS_MAX: Final = 1_000
_CLIENT_CHARS_MAX: Final = 200


class Consumer(Struct, eq=False, gc=False):
    """A client that receives from one queue."""

    queue: str
    address: str
    key: str
    client: str
    received: int = 0
    done: int = 0
    failed: int = 0  # nacked, rejected, or the lease expired
    waiting: int = 0  # long polls
    seen_at: float = 0.0

    def hold(self, leases: Sequence[Lease]) -> None:
        """Record these as leased to this consumer."""
        self.received += len(leases)
        for lease in leases:
            lease.holder = self


class Consumers:
    """The consumers that received most recently."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str, str], Consumer] = {}

    def __iter__(self) -> Iterator[Consumer]:
        return iter(list(self._known.values()))

    def of(self, request: Request, queue: str, key: str) -> Consumer:
        """Return the consumer that sent this request."""
        client = request.headers.get("user-agent", "")[:_CLIENT_CHARS_MAX]
        identity = queue, request.peer, key, client
        found = self._known.get(identity)
        if found is None:
            if len(self._known) >= CONSUMERS_MAX:
                self._forget_half()
            found = self._known[identity] = Consumer(*identity)
        found.seen_at = monotonic()
        return found

    def _forget_half(self) -> None:
        oldest = sorted(self._known.items(), key=lambda each: each[1].seen_at)
        for identity, _ in oldest[: CONSUMERS_MAX // 2]:
            del self._known[identity]
