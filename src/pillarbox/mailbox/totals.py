"""Counters of a queue since its process opened it.

Events are counted where a session writes them, with the store's lock held, so each change to a
message is counted exactly once, whatever caused it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pillarbox.core import events as e
from pillarbox.core.queue import Queue, holder_of


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

    def count(self, events: Sequence[e.Event]) -> None:
        """Count these events before they are applied."""
        for event in events:
            kind = type(event)
            if kind is e.Sent:
                self.sent += len(event.records)  # type: ignore[union-attr]
            elif kind is e.Leased:
                self.received += len(event.leases)  # type: ignore[union-attr]
            elif kind is e.Acknowledged:
                self.deleted += len(event.leases)  # type: ignore[union-attr]
                for holder in filter(None, map(holder_of, event.leases)):  # type: ignore[union-attr]
                    holder.done += 1
            else:
                self._count_seldom(event)

    def _count_seldom(self, event: e.Event) -> None:
        match event:
            case e.Released():
                self.unread += event.to_front
                if event.to_front and event.lease.holder is not None:
                    event.lease.holder.received -= 1
            case e.Returned() | e.Died():
                self.dead += type(event) is e.Died
                if event.lease.holder is not None:
                    event.lease.holder.failed += 1
            case e.Scheduled():
                self.sent += len(event.records)
            case e.DiedInLine():
                self.dead += 1
            case e.Redriven():
                self.redriven += len(event.records)
            case e.Removed(expired=True):
                self.expired += len(event.keys)
            case e.Removed():
                self.deleted += len(event.keys)
            case e.Purged():
                self.deleted += self.queue.size
