"""The rules of a queue: each function returns the events of an operation and changes nothing.

Everything due by `now` must have been applied first, as `settle` does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial

from pillarbox.core import events as e
from pillarbox.core import lines
from pillarbox.core.errors import InvalidParameterError, MailboxFullError
from pillarbox.core.queue import (
    Lease,
    Outcome,
    Queue,
    Record,
    extra_of,
    first,
    in_order,
)


def send(queue: Queue, records: list[Record], now: int) -> list[Record]:
    """Return the new records, without those that repeat a recent deduplication id."""
    capacity = queue.settings.capacity
    fresh = records
    if any(map(extra_of, records)):
        fresh = _without_duplicates(queue, records, now)
    if fresh and capacity is not None and queue.size + len(fresh) > capacity:
        raise MailboxFullError(
            f"mailbox {queue.name!r} holds {queue.size:,} of {capacity:,} messages and can't "
            f"take {len(fresh):,} more: receive and acknowledge some, or raise its capacity"
        )
    return fresh


def original(queue: Queue, record: Record, now: int) -> int:
    """Return the key of the accepted message; for a duplicate, that of the original."""
    known = queue.duplicates.get(duplicate_id(queue, record)) if record.extra else None
    return record.key if known is None or known[1] <= now else known[0]


def duplicate_id(queue: Queue, record: Record) -> tuple[str | None, str]:
    """Return the scope and id that identify duplicates of this record."""
    assert record.extra is not None
    scope = record.extra.group if queue.settings.deduplicate_by_group else None
    return scope, record.extra.deduplication or ""


def receive(queue: Queue, count: int, timeout: int, now: int) -> list[Lease]:
    """Return new leases on the next messages; none while the queue is paused."""
    if queue.settings.paused:
        return []
    deadline = now + timeout
    records = first(queue, count)
    if len(records) == 1:
        record = records[0]
        return [Lease(record, record.deliveries + 1, now, deadline, timeout, record.extra)]
    return [
        Lease(record, record.deliveries + 1, now, deadline, timeout, record.extra)
        for record in records
    ]


def deliver(queue: Queue, count: int, timeout: int, now: int) -> list[e.Event]:
    """Return the events of a receive, with dead letters if the queue dead-letters on receive."""
    settings = queue.settings
    buries = settings.dead_on_receive and settings.max_deliveries and not settings.paused
    if buries and queue.dead_letters is not None:
        return receive_or_bury(queue, count, timeout, now)
    leases = receive(queue, count, timeout, now)
    return [e.Leased(leases)] if leases else []


def receive_or_bury(queue: Queue, count: int, timeout: int, now: int) -> list[e.Event]:
    """Receive as SQS does: dead-letter a message on the receive after its last delivery."""
    events: list[e.Event] = []
    most = queue.settings.max_deliveries
    for record in in_order(queue):
        if count == 0:
            break
        if record.deliveries >= most and record.deliveries - _before(record) >= most:
            events.append(e.DiedInLine(record, now, f"delivered {record.deliveries} times"))
        else:
            number = record.deliveries + 1
            lease = Lease(record, number, now, now + timeout, timeout, record.extra)
            events.append(e.Leased([lease]))
            count -= 1
    return events


def live(leases: Sequence[Lease], now: int) -> list[bool]:
    """Return which of these leases are valid; a lease given twice counts once."""
    if len(leases) == 1:
        return [leases[0].deadline > now]
    answers = [lease.deadline > now for lease in leases]
    if len(set(leases)) < len(leases):
        seen: set[Lease] = set()
        for i, lease in enumerate(leases):
            answers[i] = answers[i] and lease not in seen
            seen.add(lease)
    return answers


def nack(queue: Queue, leases: Iterable[Lease], delay: int, now: int) -> list[e.Event]:
    due = now + delay if delay else 0
    return [_fail(queue, lease, now, "nacked", due) for lease in leases]


def reject(queue: Queue, leases: Iterable[Lease], reason: str, now: int) -> list[e.Event]:
    """Dead-letter these messages; without a dead-letter queue, return them."""
    if queue.dead_letters is None:
        return [e.Returned(lease, now, "rejected") for lease in leases]
    return [e.Died(lease, now, "rejected", reason) for lease in leases]


def tick(queue: Queue, now: int, most: int | None = None) -> list[e.Event]:
    """Return the events due by now, ordered by due time: all, or the first `most`."""
    timed: list[tuple[int, int, e.Event]] = []
    for due, key, record in queue.schedule.due(now, most):
        timed.append((due, key, e.CameDue(record, due)))
    for lease in queue.leases.expired(now, most):
        event = _fail(queue, lease, lease.deadline, "expired", 0)
        timed.append((lease.deadline, lease.record.key, event))
    timed.sort(key=lambda entry: entry[:2])
    return [event for _, _, event in timed[:most]]


def reschedule(queue: Queue, key: int, due: int) -> list[e.Event]:
    """Change when a scheduled message is due; ignore a message that is not scheduled."""
    record = queue.schedule.find(key)
    return [] if record is None else [e.Rescheduled(record, due)]


def change_visibility(queue: Queue, key: int, timeout: int, now: int) -> list[e.Event]:
    """Make a message visible in `timeout`, even if another consumer holds it."""
    lease = queue.leases.among((key,)).get(key)
    if lease is not None and timeout:
        return [e.Extended(lease, now + timeout, timeout)]
    if lease is not None:
        return nack(queue, (lease,), 0, now)
    record = lines.find(queue, key)
    if record is None or not timeout:
        return reschedule(queue, key, now + timeout)
    return [e.Hidden([Lease(record, record.deliveries, now, now + timeout, timeout, record.extra)])]


def force(queue: Queue, now: int) -> list[e.Event]:
    """Make all scheduled messages due now, in the order of their due times."""
    return [e.CameDue(record, now) for _, _, record in queue.schedule]


def redrive(queue: Queue, keys: Collection[int], target: Queue, now: int) -> e.Redriven:
    """Move ready messages to another queue, in the order of `lines.order`, each once."""
    if target is queue:
        raise InvalidParameterError("to", target.name, "another queue")
    found = [record for key in set(keys) if (record := lines.find(queue, key)) is not None]
    return e.Redriven(sorted(found, key=partial(lines.order, queue)), target, now)


def remove(queue: Queue, keys: Collection[int]) -> e.Removed:
    """Delete the messages that exist, in any state; a key given twice counts once."""
    leased = queue.leases.among(keys)
    return e.Removed(
        sorted(
            key
            for key in set(keys)
            if key in leased or queue.schedule.find(key) or lines.find(queue, key)
        )
    )


def _fail(queue: Queue, lease: Lease, at: int, outcome: Outcome, due: int) -> e.Event:
    """Return the event of a failed delivery: redelivery, or the dead-letter queue."""
    settings = queue.settings
    here = lease.number - _before(lease.record)
    spent = 0 < settings.max_deliveries <= here and not settings.dead_on_receive
    if spent and queue.dead_letters is not None:
        return e.Died(lease, at, outcome, f"{outcome} after {lease.number} deliveries")
    return e.Returned(lease, at, outcome, due)


def _before(record: Record) -> int:
    """Return the deliveries of a dead letter in its earlier queues."""
    extra = record.extra
    return 0 if extra is None or extra.death is None else extra.death.deliveries


def _without_duplicates(queue: Queue, records: list[Record], now: int) -> list[Record]:
    fresh = []
    seen: set[tuple[str | None, str]] = set()
    for record in records:
        if record.extra is not None and record.extra.deduplication is not None:
            name = duplicate_id(queue, record)
            if name in seen or original(queue, record, now) != record.key:
                continue
            seen.add(name)
        fresh.append(record)
    return fresh
