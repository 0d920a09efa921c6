"""How events change a message itself: its position, its delivery count, its history."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from pillarbox.core import events as e
from pillarbox.core.queue import Attempt, Death, Extra, Lease, Outcome, Queue, Record

_ATTEMPTS_KEPT_MAX = 100


def note(lease: Lease, at: int, outcome: Outcome) -> None:
    """Record a failed delivery, if the message may be dead-lettered."""
    record = lease.record
    attempt = Attempt(lease.leased_at, at, outcome)
    before = record.extra.attempts if record.extra is not None else ()
    change(record, attempts=(*before, attempt)[-_ATTEMPTS_KEPT_MAX:])


def change(record: Record, **changes: Any) -> None:
    """Replace the record's extra with a changed copy; leases keep the old one."""
    record.extra = replace(record.extra, **changes) if record.extra else Extra(**changes)


def like_new(record: Record, at: int) -> None:
    """Reset the delivery count, and count the earlier ones as releases to keep handles unique."""
    before = record.deliveries + (record.extra.releases if record.extra is not None else 0)
    change(record, death=None, place=at >> 1, releases=before)
    record.deliveries = 0


def mark_dead(queue: Queue, record: Record, reason: str, at: int) -> Queue:
    """Record where, why and when a message was dead-lettered; return its dead-letter queue."""
    target = queue.dead_letters
    assert target is not None, "decide lets nothing die without a dead-letter queue"
    change(record, death=Death(queue.name, reason, at, record.deliveries), place=at >> 1)
    return target


def place_anew(queue: Queue, event: e.CameDue) -> None:
    """Order a delayed message by the time at which it came due."""
    record = event.record
    special = queue.settings.redelivery == "original" or record.extra is not None
    if special and not record.deliveries:
        change(record, place=event.at >> 1)
