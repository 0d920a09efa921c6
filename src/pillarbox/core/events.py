"""The events of a queue: what happened, with all times resolved.

For speed, the event of a send holds the list of records, and that of a receive the list of leases,
instead of an object per message. `journal` encodes events as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from pillarbox.core.queue import Lease, Outcome, Queue, Record


class Sent(Struct, frozen=True, gc=False):
    """Messages were added to the queue and are ready."""

    records: list[Record]


class Scheduled(Struct, frozen=True, gc=False):
    """Messages were added with a delay."""

    records: list[Record]
    due: int


class CameDue(Struct, frozen=True, gc=False):
    """A scheduled message became ready."""

    record: Record
    at: int


class Rescheduled(Struct, frozen=True, gc=False):
    """A scheduled message has a new due time."""

    record: Record
    due: int


class Leased(Struct, frozen=True, gc=False):
    """Messages at the head of the queue were leased."""

    leases: list[Lease]


class Hidden(Struct, frozen=True, gc=False):
    """A ready message was hidden again by its former holder, without counting a delivery."""

    leases: list[Lease]


class Acknowledged(Struct, frozen=True, gc=False):
    """Messages were acknowledged and deleted."""

    leases: list[Lease]


class Returned(Struct, frozen=True, gc=False):
    """A message was returned or its lease expired: ready now, or at `due`."""

    lease: Lease
    at: int
    outcome: Outcome
    due: int = 0


class Released(Struct, frozen=True, gc=False):
    """A message was returned without counting the delivery."""

    lease: Lease
    to_front: bool


class Extended(Struct, frozen=True, gc=False):
    """A lease has a new deadline."""

    lease: Lease
    deadline: int
    timeout: int


class Died(Struct, frozen=True, gc=False):
    """A message failed its last delivery and was dead-lettered."""

    lease: Lease
    at: int
    outcome: Outcome
    reason: str


class DiedInLine(Struct, frozen=True, gc=False):
    """A ready message had no deliveries left and was dead-lettered on receive."""

    record: Record
    at: int
    reason: str


class Redriven(Struct, frozen=True, gc=False):
    """Dead letters were moved to a queue, as new messages."""

    records: list[Record]
    target: Queue
    at: int


class Removed(Struct, frozen=True, gc=False):
    """Messages were deleted, in any state, by id or by age."""

    keys: list[int]
    expired: bool = False


class Purged(Struct, frozen=True, gc=False):
    """All messages and deduplication ids were deleted."""


Event = (
    Sent
    | Scheduled
    | CameDue
    | Rescheduled
    | Leased
    | Hidden
    | Acknowledged
    | Returned
    | Released
    | Extended
    | Died
    | DiedInLine
    | Redriven
    | Removed
    | Purged
)


def records_of(event: Any) -> Iterator[Record]:
    """Yield the records in an event; not those that it refers to by key."""
    for name in ("records", "leases"):
        for each in getattr(event, name, ()):
            yield each if isinstance(each, Record) else each.record
    if hasattr(event, "lease"):
        yield event.lease.record
    if hasattr(event, "record"):
        yield event.record
