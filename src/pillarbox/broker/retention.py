"""Messages that nobody received in time are deleted: MessageRetentionPeriod."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from pillarbox.core.events import Removed
from pillarbox.core.queue import Queue, Record, first, oldest_key, waiting

if TYPE_CHECKING:
    from pillarbox.broker.catalogue import BrokerQueue


def expire(queue: BrokerQueue) -> int:
    """Delete what is too old, if the message that would be next is; how many."""
    state = queue.desk.queue
    head = first(state, 1)
    if not head or born(head[0]) + queue.retention_ns > queue.desk.store.clock.now():
        return 0
    return sweep(queue)


def sweep(queue: BrokerQueue) -> int:
    """Delete whatever is too old and not in flight; how many."""

    def happen(state: Queue, now: int) -> list[Removed]:
        latest = now - queue.retention_ns
        timed = (record for _, _, record in state.schedule)
        old = [each.key for each in chain(waiting(state), timed) if born(each) <= latest]
        return [Removed(old)] if old else []

    events = queue.desk.step(happen)
    count = sum(len(event.keys) for event in events)
    queue.expired += count
    return count


def is_due(queue: BrokerQueue) -> bool:
    """Whether the oldest message in line is too old."""
    oldest = oldest_key(queue.desk.queue)
    now = queue.desk.store.clock.now()
    return oldest is not None and (oldest << 1) + queue.retention_ns <= now


def born(record: Record) -> int:
    """When a message was sent; a redriven one counts from when it was."""
    extra = record.extra
    if extra is None or extra.death is not None or not extra.place:
        return record.key << 1
    return extra.place << 1
