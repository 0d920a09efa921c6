"""Counters of a queue since its process opened it.

Events are counted where a session writes them, with the store's lock held, so each change to a
message is counted exactly once, whatever caused it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pillarbox.core.events import (
    Acknowledged,
    Died,
    DiedInLine,
    Event,
    Leased,
    Purged,
    Redriven,
    Released,
    Removed,
    Returned,
    Scheduled,
    Sent,
)
from pillarbox.core.queue import Queue


class Totals(Struct, eq=False):
    """Monotonic message counters."""

    queue: Queue
    sent: int = 0
    received: int = 0
    deleted: int = 0  # acknowledged, deleted by id or an old handle, or purged
    expired: int = 0  # deleted because of their age
    dead: int = 0  # moved to the dead-letter queue
    redriven: int = 0  # moved from here to another queue
    unread: int = 0  # returned because the receiver was gone

    def count(self, events: Sequence[Event]) -> None:
        """Count these events before they are applied."""
        for event in events:
            kind = type(event)
            if kind is Sent:
                self.sent += len(event.records)  # type: ignore[union-attr]
            elif kind is Leased:
                self.received += len(event.leases)  # type: ignore[union-attr]
            elif kind is Acknowledged:
                self.deleted += len(event.leases)  # type: ignore[union-attr]
                for lease in event.leases:  # type: ignore[union-attr]
                    if lease.holder is not None:
                        lease.holder.done += 1
            else:
                self._count_seldom(event)

    def _count_seldom(self, event: Event) -> None:
        match event:
            case Released():
                self.unread += event.to_front
                if event.to_front and event.lease.holder is not None:
                    event.lease.holder.received -= 1
            case Returned() | Died():
                self.dead += type(event) is Died
                if event.lease.holder is not None:
                    event.lease.holder.failed += 1
            case Scheduled():
                self.sent += len(event.records)
            case DiedInLine():
                self.dead += 1
            case Redriven():
                self.redriven += len(event.records)
            case Removed(expired=True):
                self.expired += len(event.keys)
            case Removed():
                self.deleted += len(event.keys)
            case Purged():
                self.deleted += self.queue.size
