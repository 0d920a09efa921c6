"""How events change a message itself: its place in line, its count, its history."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from pillarbox.core import events as e
from pillarbox.core.queue import Attempt, Death, Extra, Lease, Outcome, Queue, Record

_ATTEMPTS_KEPT_MAX = 100


def note(lease: Lease, at: int, outcome: Outcome) -> None:
    """Keep the history of a message that may die of it."""
    record = lease.record
    attempt = Attempt(lease.leased_at, at, outcome)
    before = record.extra.attempts if record.extra is not None else ()
    change(record, attempts=(*before, attempt)[-_ATTEMPTS_KEPT_MAX:])


def change(record: Record, **changes: Any) -> None:
    """A new extra for a record: whoever looks at the old one sees no change."""
    record.extra = replace(record.extra, **changes) if record.extra else Extra(**changes)


def like_new(record: Record, at: int) -> None:
    """Its count starts anew, so what was counted before must make its handles differ."""
    before = record.deliveries + (record.extra.releases if record.extra is not None else 0)
    change(record, death=None, place=at >> 1, releases=before)
    record.deliveries = 0


def mark_dead(queue: Queue, record: Record, reason: str, at: int) -> Queue:
    """Note where, why and when a message died; the queue that it goes to."""
    target = queue.dead_letters
    assert target is not None, "decide lets nothing die without a dead-letter queue"
    change(record, death=Death(queue.name, reason, at, record.deliveries), place=at >> 1)
    return target


def place_anew(queue: Queue, event: e.CameDue) -> None:
    """What was delayed stands in line by the time at which it came due."""
    record = event.record
    special = queue.settings.redelivery == "original" or record.extra is not None
    if special and not record.deliveries:
        change(record, place=event.at >> 1)
