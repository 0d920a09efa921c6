"""The three verbs that nearly every message meets, each decided and applied in one breath.

They are `send`, `receive` and `acknowledge` for one plain message: no delay, no group, no
duplicates. They change a queue exactly as `decide` and `apply` do, which the model test
proves, and they answer None or False where those two must be asked.
"""

from __future__ import annotations

from pillarbox.core.queue import Lease, Queue, Record


def send(queue: Queue, key: int, body: object) -> None:
    """Put a plain message at the end of the line, in a queue without a capacity."""
    lane = queue.lanes[0]
    if not lane:
        queue.mask |= 1
    lane.append(Record(key, body))


def receive(queue: Queue, timeout: int, now: int) -> Lease | None:
    """Lease the message at the head of the line; None if it isn't as simple as that."""
    mask = queue.mask
    line = queue.lines.get(timeout)
    if not mask or line is None or queue.returned or queue.groups:
        return None
    priority = 0 if mask == 1 else mask.bit_length() - 1
    lane = queue.lanes[priority]
    record: Record = lane.popleft()  # type: ignore[assignment]
    if not lane:
        queue.mask = mask ^ 1 << priority
    deadline = now + timeout
    number = record.deliveries + 1
    lease = line[record.key] = Lease(record, number, now, deadline, timeout, record.extra)
    if deadline < queue.wake_at:
        queue.wake_at = deadline
    return lease


def acknowledge(queue: Queue, lease: Lease) -> bool:
    """End a lease that lives, and its message with it; False if others must be told."""
    line = queue.lines.get(lease.timeout)
    if line is None or queue.groups:
        return False
    del line[lease.record.key]
    lease.deadline = 0
    return True
