"""apply(queue, event): the only code that changes a queue. It can't fail.

Replaying a log calls nothing else, so the state follows from the events alone. `settle` decides and
applies everything that is due, and must run before any other operation on a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pillarbox.core import decide, lines
from pillarbox.core import events as e
from pillarbox.core.queue import (
    NEVER,
    Attempt,
    Death,
    Lease,
    Outcome,
    Queue,
    Record,
    change,
    extra_of,
    next_deadline,
    priority_of,
)

_ATTEMPTS_KEPT_MAX = 100
_KEYS_AHEAD_NS_MAX = 1_000_000_000  # keys of a large batch may be ahead of the clock


def settle(queue: Queue, now: int) -> list[e.Event]:
    """Apply everything that is due by now; return the events."""
    events = decide.tick(queue, now)
    settled(queue, events)
    return events


def settled(queue: Queue, events: Iterable[e.Event]) -> None:
    """Apply the events of a tick, and set the next wake-up time."""
    for event in events:
        apply(queue, event)
    queue.wake_at = next_deadline(queue) or NEVER


def apply(queue: Queue, event: e.Event) -> None:
    HOW[type(event)](queue, event)


def sent(queue: Queue, event: e.Sent) -> None:
    records = event.records
    if len(records) > 1 and _are_plain(records):
        append_plain(queue, records, records[0].priority)
        return
    for record in records:
        if record.extra is None:
            queue.mask |= 1 << record.priority
            queue.lanes[record.priority].append(record)
        else:
            remember(queue, record)
            lines.join(queue, record)


def append_plain(queue: Queue, records: Sequence[Record], priority: int) -> None:
    """Do what `sent` does, for messages of one priority without extra."""
    if records:
        queue.lanes[priority].extend(records)
        queue.mask |= 1 << priority


def scheduled(queue: Queue, records: list[Record], due: int) -> None:
    for record in records:
        if record.extra is not None:
            remember(queue, record)
        queue.schedule.add(due, record)
    queue.wake_at = min(queue.wake_at, due)


def rescheduled(queue: Queue, record: Record, due: int) -> None:
    queue.schedule.remove(record.key)
    queue.schedule.add(due, record)
    queue.wake_at = min(queue.wake_at, due)


def leased(queue: Queue, event: e.Leased) -> None:
    """Apply leases that were granted together: they share timeout and deadline."""
    leases = event.leases
    if queue.mask & (queue.mask - 1) == 0 and not queue.groups and not queue.returned:
        lines.take_from_lane(queue, queue.mask.bit_length() - 1, leases)
    else:
        for lease in leases:
            lines.take(queue, lease.record, held=1)
    queue.leases.add_all(leases)
    if leases[0].deadline < queue.wake_at:
        queue.wake_at = leases[0].deadline


def hidden(queue: Queue, leases: Sequence[Lease]) -> None:
    for lease in leases:
        leased_out_of_turn(queue, lease)  # first, so that its group is kept
        lines.remove(queue, (lease.record,))


def acknowledged(queue: Queue, event: e.Acknowledged) -> None:
    leases = event.leases
    queue.leases.end(leases)
    if queue.groups:
        for lease in leases:
            lines.unhold(queue, lease.record)


def extended(queue: Queue, lease: Lease, deadline: int) -> None:
    queue.leases.extend(lease, deadline)
    queue.wake_at = min(queue.wake_at, deadline)


def returned(queue: Queue, event: e.Returned) -> None:
    lease = event.lease
    if queue.settings.max_deliveries or queue.settings.dead_on_receive:
        note(lease, event.at, event.outcome)
    queue.leases.end((lease,))
    lease.record.deliveries = lease.number
    if event.due:
        queue.schedule.add(event.due, lease.record)
        queue.wake_at = min(queue.wake_at, event.due)
    else:
        lines.give_back(queue, lease.record)


def released(queue: Queue, event: e.Released) -> None:
    record = event.lease.record
    queue.leases.end((event.lease,))
    change(record, releases=record.extra.releases + 1 if record.extra is not None else 1)
    lines.give_back(queue, record, to_front=event.to_front)


def came_due(queue: Queue, event: e.CameDue) -> None:
    record = event.record
    queue.schedule.remove(record.key)
    if record.deliveries:  # it was returned with a delay
        lines.give_back(queue, record)
        return
    if record.extra is not None or queue.settings.redelivery == "original":
        change(record, place=event.at >> 1)  # ordered by the time at which it came due
    lines.join(queue, record)


def died(queue: Queue, event: e.Died) -> None:
    note(event.lease, event.at, event.outcome)
    acknowledged(queue, e.Acknowledged([event.lease]))
    event.lease.record.deliveries = event.lease.number
    bury(queue, event.lease.record, event.reason, event.at)


def died_in_line(queue: Queue, event: e.DiedInLine) -> None:
    lines.take(queue, event.record, held=0)
    bury(queue, event.record, event.reason, event.at)


def redriven(queue: Queue, event: e.Redriven) -> None:
    lines.remove(queue, event.records)
    for record in event.records:
        like_new(record, event.at)
        lines.join(event.target, record)


def removed(queue: Queue, keys: Iterable[int]) -> None:
    """Delete these messages, whatever their state."""
    wanted = sorted(keys)
    leases = queue.leases.among(wanted)
    waiting: list[Record] = []
    for key in wanted:
        record = queue.schedule.find(key)
        if key in leases:
            acknowledged(queue, e.Acknowledged([leases[key]]))
        elif record is not None:
            queue.schedule.remove(key)
            if record.deliveries:
                lines.unhold(queue, record)
        elif (record := lines.find(queue, key)) is not None:
            waiting.append(record)
    lines.remove(queue, waiting)


def taken_out(queue: Queue, key: int) -> Record | None:
    """Take a message out of the queue, whatever its state; None if it does not exist."""
    lease = queue.leases.find(key)
    record = lease.record if lease is not None else queue.schedule.find(key)
    if record is None:
        record = lines.find(queue, key)
    if record is not None:
        removed(queue, (key,))
    return record


def leased_out_of_turn(queue: Queue, lease: Lease) -> None:
    """Put a message that was taken out in flight."""
    lines.hold(queue, lease.record)
    queue.leases.add(lease)
    queue.wake_at = min(queue.wake_at, lease.deadline)


def purged(queue: Queue) -> None:
    queue.empty()


def note(lease: Lease, at: int, outcome: Outcome) -> None:
    """Record a failed delivery, if the message may be dead-lettered."""
    record = lease.record
    attempt = Attempt(lease.leased_at, at, outcome)
    before = record.extra.attempts if record.extra is not None else ()
    change(record, attempts=(*before, attempt)[-_ATTEMPTS_KEPT_MAX:])


def like_new(record: Record, at: int) -> None:
    """Reset the delivery count, and count the earlier ones as releases to keep handles unique."""
    before = record.deliveries + (record.extra.releases if record.extra is not None else 0)
    change(record, death=None, place=at >> 1, releases=before)
    record.deliveries = 0


def _are_plain(records: Sequence[Record]) -> bool:
    """Return whether these have one priority and no extra."""
    return not any(map(extra_of, records)) and len(set(map(priority_of, records))) == 1


def bury(queue: Queue, record: Record, reason: str, at: int) -> None:
    """Move a message that was taken out to the dead-letter queue."""
    target = queue.dead_letters
    assert target is not None, "decide lets nothing die without a dead-letter queue"
    change(record, death=Death(queue.name, reason, at, record.deliveries), place=at >> 1)
    lines.join(target, record)


def remember(queue: Queue, record: Record) -> None:
    """Store its deduplication id, and remove expired ones."""
    if record.extra is None or record.extra.deduplication is None:
        return
    known = queue.duplicates
    sent_at = record.key << 1
    while known and next(iter(known.values()))[1] + _KEYS_AHEAD_NS_MAX <= sent_at:
        known.popitem(last=False)
    name = decide.duplicate_id(queue, record)
    known[name] = (record.key, sent_at + queue.settings.deduplication_ns)
    known.move_to_end(name)


HOW: dict[type[e.Event], Callable[[Queue, Any], None]] = {
    e.Sent: sent,
    e.Scheduled: lambda q, event: scheduled(q, event.records, event.due),
    e.CameDue: came_due,
    e.Rescheduled: lambda q, event: rescheduled(q, event.record, event.due),
    e.Leased: leased,
    e.Hidden: lambda q, event: hidden(q, event.leases),
    e.Acknowledged: acknowledged,
    e.Returned: returned,
    e.Released: released,
    e.Extended: lambda q, event: extended(q, event.lease, event.deadline),
    e.Died: died,
    e.DiedInLine: died_in_line,
    e.Redriven: redriven,
    e.Removed: lambda q, event: removed(q, event.keys),
    e.Purged: lambda q, _: purged(q),
}
