"""What can be seen of a queue, with nothing changed. The caller has the lock of its store."""

from __future__ import annotations

from itertools import islice

from pillarbox.core import lines
from pillarbox.core.queue import Queue, Record, oldest_key, page
from pillarbox.mailbox.protocol import State


def in_state(queue: Queue, state: str, count: int | None, skip: int) -> list[tuple[Record, int]]:
    """Messages in a state, in order, and how often each was delivered."""
    end = None if count is None else skip + count
    if state == "in_flight":
        leases = islice(queue.leases.soonest(), skip, end)
        return [(lease.record, lease.number) for lease in leases]
    if state == "ready":
        records = page(queue, skip, queue.ready if count is None else count)
    else:
        records = list(islice((each for _, _, each in queue.schedule.soonest()), skip, end))
    return [(record, record.deliveries) for record in records]


def find(queue: Queue, key: int, now: int) -> tuple[Record, int, State] | None:
    """A message by its key, how often it was delivered, and its state."""
    if (lease := queue.leases.find(key)) is not None:
        held = lease.deadline > now  # else it is back, once somebody has a look
        return lease.record, lease.number, "in_flight" if held else "ready"
    if (timed := queue.schedule.find(key)) is not None:
        return timed, timed.deliveries, "scheduled"
    ready = lines.find(queue, key)
    return None if ready is None else (ready, ready.deliveries, "ready")


def counts(queue: Queue, now: int) -> tuple[int, int, int, int, int | None]:
    """Ready, scheduled, in flight, dead, and the age of the oldest in line."""
    oldest = oldest_key(queue)
    age = None if oldest is None else max(0, now - (oldest << 1))
    dead = queue.dead_letters.size if queue.dead_letters is not None else 0
    return queue.ready, queue.scheduled, queue.in_flight, dead, age
